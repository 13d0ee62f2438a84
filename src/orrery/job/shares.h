// What the time of a graph is made of, op by op: kernels by name, collectives by size. For
// explanations; nothing is run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "orrery/cluster/cluster.h"
#include "orrery/collective/collective.h"
#include "orrery/compute/compute.h"
#include "orrery/graph/graph.h"

namespace orrery::job {

// Kernels of one name in one module: of one iteration of a program.
struct KernelShare {
  std::string name, module;
  std::int64_t runs = 0;
  SimTime time = 0;  // alone on the GPU
  compute::Provenance provenance = compute::Provenance::kModelled;
  double spread = 0;
};

// Collectives of one kind and size in one group slot.
struct CollectiveShare {
  graph::GroupSlot group = graph::GroupSlot::kTp;
  graph::Collective collective = graph::Collective::kAllReduce;
  std::int64_t bytes = 0;  // of one, as nccl-tests counts
  int ranks = 0, domains = 0;
  std::int64_t runs = 0;
  SimTime each = 0;  // alone
  bool blocking = false;
  std::string plan;  // "ring, Simple, 16 channels"
};

struct Shares {
  std::int32_t stage = 0;
  std::int64_t ranks = 0;                    // that run the program
  std::vector<KernelShare> kernels;          // most time first
  std::vector<CollectiveShare> collectives;  // most time first
};

// One for each program. Sends, receives and copies are left out.
std::vector<Shares> SharesOf(const graph::Graph& graph, const cluster::Cluster& cluster,
                             const cluster::Placement& placement, const compute::CostModel& compute,
                             const collective::Planner& planner);

}  // namespace orrery::job
