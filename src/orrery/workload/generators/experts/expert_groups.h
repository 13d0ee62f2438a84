// Groups of expert parallelism: over the ranks of a stage, expert tensor parallelism fastest, then
// expert parallelism, then replicas of the experts (Megatron's expert decoder order).
#pragma once

#include "orrery/graph/graph.h"
#include "orrery/workload/plan.h"

namespace orrery::workload {

// Adds the groups of one job and binds its ranks, which stand from `first` on, stage by stage. With
// `programs` rank e over ep runs the e-th program behind the one that it is bound to.
// REQUIRES: Validate(model, plan) is ok and the model has experts. O(ranks).
void AddExpertGroups(const Plan& plan, std::size_t first, bool programs, graph::Graph* graph);

}  // namespace orrery::workload
