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

// "8x400 Gb/s", "IB 8x NDR 400Gbps", "RoCE 16x100Gbps", "EFA 3200Gbps/node", "400Gbps/GPU": NICs of
// a node and the rate of each; {0, 0} when the text states none.
struct NicText {
  int nics = 0;  // 0: the rate is of the node
  std::int64_t gigabits = 0;
};
NicText ReadNics(std::string_view network, int gpus_per_node);
// Refuses a fabric that a person types where anything but a name and such a rate stands in it;
// columns of tables may say more.
Status CheckFabricText(std::string_view text);
// "8 NICs of 400 Gb/s a host, InfiniBand".
std::string DescribeFabric(const cluster::Spec& spec);

}  // namespace orrery::search
