// The rules of expert parallelism, and how unevenly a routing loads its ranks.
#pragma once

#include "orrery/base/status.h"
#include "orrery/workload/plan.h"

namespace orrery::workload {

// Whether a plan's exchanges of tokens can run beside another micro-batch's compute
// (ExpertPlan::moe_comm_overlap): Megatron's rules for overlap_moe_expert_parallel_comm, and what
// is built of it.
Status CheckTokenOverlap(const Plan& plan);
// Megatron's rules for experts, expert tensor parallelism and latent attention.
Status CheckExperts(const Model& model, const Plan& plan);

// Tokens of the busiest expert-parallel rank over the mean. Balanced: 1. Zipf: the load of expert i
// is in proportion to 1/i (exponent 1), experts dealt to ranks one after the other, as a router
// without a balancing loss tends to. Natural: BusiestOfAnyDivision (routing.h), at most what a
// token's different experts allow. Times ExpertPlan::moe_imbalance. Applied to all ranks and
// layers: a step waits for the busiest rank, which is then everywhere.
double BusiestLoad(const Model& model, const Plan& plan);

}  // namespace orrery::workload
