// What a step takes at least, from its graph alone: no rank is run.
//
// A rank's compute stream does its kernels one after the other, and stands still while a blocking
// collective runs. Neither can be faster than alone on a GPU of speed 1 with nothing beside it, so
// that the sum over a program's calls bounds what the program takes from below. Messages between
// pipeline stages, exchanges beside compute and the host are left out.
#pragma once

#include <vector>

#include "orrery/base/time.h"
#include "orrery/cluster/cluster.h"
#include "orrery/collective/collective.h"
#include "orrery/compute/compute.h"
#include "orrery/graph/graph.h"

namespace orrery::job {

struct WorkFloor {
  struct Program {
    SimTime layers = 0;  // all passes of a step through layers
    SimTime ends = 0;    // through embedding, output layer and loss
    SimTime rest = 0;    // outside the pipeline: the optimizer's step
    SimTime total() const { return layers + ends + rest; }
  };
  std::vector<Program> programs;  // of the graph, in its order
};

WorkFloor FloorOf(const graph::Graph& graph, const cluster::Cluster& cluster,
                  const cluster::Placement& placement, const compute::CostModel& compute,
                  const collective::Planner& planner);

}  // namespace orrery::job
