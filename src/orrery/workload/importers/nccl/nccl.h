// The calls of NCCL (formats/nccl_calls.h) as a graph: communication alone, as each rank's streams
// issue it. Work between the calls is not in such files: a call begins when the one before it on
// its stream has ended. Where the inspector says what collectives took, they have that as measured:
// the least of the group's members, the time of the last that came.
#pragma once

#include <string>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/formats/nccl_calls.h"
#include "orrery/graph/graph.h"

namespace orrery::workload {

struct NcclImport {
  graph::Graph graph;
  std::vector<std::string> assumed;
};

Result<NcclImport> ImportNccl(const formats::NcclCalls& calls, const std::string& name);

}  // namespace orrery::workload
