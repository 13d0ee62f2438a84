// One traced program as blocks of the graph (trace.h says how).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/formats/rank_trace.h"
#include "orrery/graph/graph.h"
#include "orrery/workload/importers/trace/communicators.h"

namespace orrery::workload {

// A kernel of the graph whose time the traced GPU gave.
struct MeasuredKernel {
  std::size_t block = 0, kernel = 0;  // Graph::blocks[block].kernels[kernel]
  std::int64_t duration_ps = 0;
};

// What a lowering found and took for granted, over all programs.
struct LoweringNotes {
  std::vector<MeasuredKernel> measured;
  std::int64_t kernels = 0, kernels_measured = 0;  // operators with a kernel
  std::map<std::string, std::int64_t> unknown_operators;
  std::int64_t host_operators = 0;     // on tensors of the host
  std::int64_t waits_before_step = 0;  // for what an earlier step issued
  std::int64_t uneven = 0;             // all-to-alls
  std::int64_t side_kernels = 0;       // not on the default stream
};

// Appends program `p` of the directory and its blocks. Gives the FLOPs of its forward and backward
// passes, recomputation left out.
Result<double> LowerProgram(const formats::TraceDirectory& directory, std::size_t p,
                            const Communicators& communicators, graph::Graph* graph,
                            LoweringNotes* notes);

}  // namespace orrery::workload
