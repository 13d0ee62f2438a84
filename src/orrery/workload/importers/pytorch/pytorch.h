// Profiles of PyTorch programs (Kineto's, with execution traces or without; Nsight Systems') as
// graphs: one step of each rank, as it ran.
//
// A rank's step is a block that nobody issues: threads, streams of GPUs and communication as
// rank_program.h has them, with times that a profile measured. Replayed with measured communication
// every node begins when it did, up to what clocks differ by. Communication has its bytes and its
// group, so that a run may price it on another cluster instead.
//
// Replicas: the traced job `replicas` times over, for a job that is data-parallel in groups whose
// description says so, or that span all of its ranks. These are joined across the copies, all
// others stay within a copy. Every copy does the same work; the buffers of collectives keep their
// size, their times are unknown.
//
// Cost: O(events · log events); memory some 250 bytes an event of a step beside the profiles.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/base/time.h"
#include "orrery/graph/graph.h"
#include "orrery/workload/importers/pytorch/communications.h"

namespace orrery::workload {

struct PyTorchOptions {
  std::int64_t step = -1;  // of "ProfilerStep#N"; negative: the last that is whole
  std::int64_t replicas = 1;
};

struct PyTorchImport {
  graph::Graph graph;
  std::string gpu;        // as the profiles name it; empty: none
  SimTime measured = -1;  // the step, over all ranks; -1: of replicas
  std::vector<std::string> assumed;
  std::vector<std::string> missing;  // what the profiles should have said
};

// `files`: one a rank, in any order. Errors name file and byte, or rank and group.
Result<PyTorchImport> ImportPyTorch(std::vector<PyTorchRank> files, const PyTorchOptions& options,
                                    const std::string& name);

}  // namespace orrery::workload
