// What a block's operations cost one kind of rank by themselves: kernels by interference class, and
// the host's part of every launch. Communications are priced when they meet (transport.h).
#pragma once

#include <array>
#include <vector>

#include "orrery/cluster/cluster.h"
#include "orrery/compute/compute.h"
#include "orrery/engine/prices.h"
#include "orrery/graph/graph.h"

namespace orrery::engine::general {

struct OpCost {
  std::array<SimTime, kClasses> duration{};  // of a kernel
  SimTime host = 0;                          // of its launch
};

struct BlockCosts {
  std::vector<OpCost> ops;  // by operation; empty where nothing is priced
  // Kernel time by provenance and Σ time·spread, for the result.
  std::array<SimTime, compute::kProvenances> provenance{};
  double spread_ps = 0;
};

// O(operations). A kernel of a day or more is refused, as prices.h refuses it.
Result<BlockCosts> CostsOf(const graph::Block& block, const compute::CostModel& compute,
                           const cluster::Spec& spec, double speed,
                           const interference::Learned* slowdown = nullptr);

}  // namespace orrery::engine::general
