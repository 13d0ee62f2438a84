// Kernels of a trace on another GPU than the one that ran them.
//
// All that a trace tells of a kernel is its name and its time. The name says what bounds it
// (data/traces/kernels.csv): products and attention the tensor cores' peak of their element type,
// copies between host and device neither GPU, everything else the memory's bandwidth. Its time is
// multiplied by the ratio of that bound. Delays, threads and communication stay.
#pragma once

#include <cstddef>
#include <string>

#include "orrery/cluster/cluster.h"
#include "orrery/graph/graph.h"
#include "orrery/job/importers.h"

namespace orrery::job {

struct Repriced {
  std::size_t compute = 0, memory = 0, kept = 0;  // operations by bound
  std::string assumed;                            // one sentence for the result
};

// Rescales the times of operations on streams of GPUs (those whose name begins with "stream" or
// "GPU"), and on none.
Repriced RepriceKernels(const cluster::DeviceSpec& from, const cluster::DeviceSpec& to,
                        graph::Graph* graph);

// Gives a trace's kernels their times on GPU `to`, timed by `from`, and says so in the result:
// those that the trace knows the shapes of (ImportedTrace::timed) are priced anew on another GPU.
void MoveKernels(const cluster::DeviceSpec& from, const cluster::DeviceSpec& to,
                 ImportedTrace* trace);

}  // namespace orrery::job
