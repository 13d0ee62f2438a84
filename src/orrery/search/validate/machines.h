// A row's machine columns → cluster::Spec.
//
// The GPU names a device and the first cluster with it, of the tables of data/ and a user's; NIC
// count and rate, fabric, nodes, memory size and NVLink domain come from the columns where they say
// so; of collectives also the host's CPU (hosts.h). Ranks are packed onto nodes in order.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/cluster/cluster.h"
#include "orrery/search/validate/configuration.h"
#include "orrery/search/validate/row_tables.h"

namespace orrery::search {

Result<cluster::Spec> MapTrainingMachine(const Configuration& row, const RowTables& tables,
                                         std::vector<std::string>* assumed);
// nodes · gpus_per_node GPUs, all of them in the collective.
Result<cluster::Spec> MapCollectiveMachine(const Configuration& row, const RowTables& tables,
                                           std::vector<std::string>* assumed);

}  // namespace orrery::search
