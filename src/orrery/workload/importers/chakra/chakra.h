// Chakra execution traces (formats/chakra.h) as graphs that run on Orrery's own clusters.
//
//   COMP           its duration_micros, on the GPU (or the CPU, is_cpu_op), one at a time, the
//                  lowest id first; without a duration num_ops and tensor_size as a kernel, which
//                  the cluster's GPU prices
//   COMM_COLL      a collective of the group pg_name, in the order of ids within a group
//   COMM_SEND/RECV a message, matched by (source, receiver, tag) in order
//   MEM_LOAD/STORE a copy of tensor_size bytes between host and device
//   METADATA       PyTorch's process groups; takes no time, as INVALID
// All-gather's comm_size is a rank's share, that of other collectives the whole buffer, as
// ASTRA-sim has it. Nobody issues: an operation begins when what it depends on is done.
//
// Cost: O(operations), one file open at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/formats/chakra.h"
#include "orrery/graph/graph.h"
#include "orrery/workload/importers/chakra/groups.h"

namespace orrery::workload {

struct ChakraImport {
  graph::Graph graph;
  std::vector<std::string> warnings;
};

// `read`: the trace of a rank; `data_parallel`: ids of communicators that replicas make. A graph of
// one job, `name`, whose programs run once.
Result<ChakraImport> ImportChakra(
    std::size_t ranks, const std::function<Result<formats::ChakraTrace>(std::size_t)>& read,
    const ChakraGroups& groups, const std::string& name,
    const std::set<std::int64_t>& data_parallel = {});

}  // namespace orrery::workload
