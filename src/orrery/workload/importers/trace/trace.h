// Traces of training programs (formats/rank_trace.h) as graphs: every distinct program as it was
// recorded, run by all the ranks that it stands for.
//
// A program's operations keep their order; the host issues them. Each operator is a kernel
// (operators.h) on its stream, each collective and message a communication of its group
// (communicators.h) on that communicator's stream, behind the stream that was current; waits,
// events and the host's synchronisations are kept where something hangs on them. Collectives of
// one group call are one communication of all their bytes, as NCCL fuses them; messages of a group
// call are one batch. Views, calls of modules and of collectives cost the host what host_work.h
// says of plain PyTorch. A step is repeated until it settles.
//
// Blocks end where the pass, the micro-batch or a limit says so; equal ones are kept once.
// Assumes what `Imported::assumed` says; a communication that it cannot express is an error with
// its name and line.
//
// Cost: O(lines of the files + ranks · groups); memory 40 bytes an operation.
#pragma once

#include <string>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/formats/rank_trace.h"
#include "orrery/graph/graph.h"
#include "orrery/workload/importers/trace/lowering.h"

namespace orrery::workload {

struct ImportedRanks {
  graph::Graph graph;
  std::vector<std::string> assumed, warnings;
  // Kernels that were timed, and on which GPU: the graph holds them as the model prices them, since
  // only who knows the cluster can say whether the times hold (UseMeasured).
  std::vector<MeasuredKernel> measured;
  std::string gpu;
};

// Gives measured kernels their times.
void UseMeasured(const std::vector<MeasuredKernel>& measured, graph::Graph* graph);

// A graph of one job, `name`; program p of the directory is ProgramId p.
Result<ImportedRanks> ImportRankTraces(const formats::TraceDirectory& directory,
                                       const std::string& name);

}  // namespace orrery::workload
