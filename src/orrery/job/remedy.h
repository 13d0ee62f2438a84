// What would make a job fit that runs out of device memory.
//
// Changes are tried in the order of what they usually cost, each by building the changed plan's
// graph and replaying its allocations: allocator settings, sharding of optimizer state, sequence
// parallelism, selective recompute, a smaller micro-batch, full recompute; then more and more of
// them together. GPUs and their split into tensor, pipeline and data parallel stay. Cost: at most a
// dozen graphs and replays, only for a job that does not fit.
#pragma once

#include <string>

#include "orrery/graph/graph.h"
#include "orrery/job/job.h"
#include "orrery/memory/memory.h"

namespace orrery::job {

// One sentence. `graph` is the job's own, `worst` its footprint that needs most.
std::string MemoryRemedy(const Job& job, std::size_t workload, const graph::Graph& graph,
                         const memory::Footprint& worst);

}  // namespace orrery::job
