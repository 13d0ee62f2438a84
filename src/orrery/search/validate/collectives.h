// A row of an nccl-tests table → one collective, planned and priced in closed form.
//
// nccl-tests launches its iterations back to back on one stream and divides the whole time by their
// number: the host's launch is hidden behind the iteration before, so that a row is compared with
// the closed form alone (set-up on the GPU, latencies, transmission), every rank arriving at once.
// `size_bytes` is nccl-tests' size column; sendrecv is a ring of pairs, priced by its slowest pair.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "orrery/collective/collective.h"
#include "orrery/graph/graph.h"
#include "orrery/search/validate/configuration.h"
#include "orrery/search/validate/row_tables.h"

namespace orrery::search {

struct CollectiveCase {
  cluster::Spec cluster;
  collective::Environment environment;
  graph::Collective collective = graph::Collective::kAllReduce;
  std::int64_t bytes = 0;
  bool hypercube = false;  // nccl-tests' all-gather in log2(ranks) exchanges, one kernel each
};

// What the column `collective` may say.
std::vector<std::string_view> CollectiveNames();

Result<CollectiveCase> MapCollective(const Configuration& row, std::vector<std::string>* assumed,
                                     const RowTables& tables = BuiltInRowTables());

// Seconds. Says in `assumed` what was planned, and where the library would have chosen otherwise.
// `fixed_share`: of it, latencies and set-up.
Result<double> PriceCollective(const CollectiveCase& c, const cluster::Cluster& cluster,
                               double* fixed_share, std::vector<std::string>* assumed);

// "collectives >= 1 MB" (2^20 bytes) or "collectives < 1 MB".
std::string_view CollectiveStratum(const Configuration& row);

}  // namespace orrery::search
