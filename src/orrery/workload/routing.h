// How a router spreads tokens over experts, layer by layer, and what each expert-parallel rank
// gets.
//
// Shares of a layer's experts (they sum to 1) are drawn, one draw a layer, by the key (seed, layer,
// expert), so that nothing depends on the order in which layers or ranks are asked for:
//   dirichlet   Dirichlet(alpha, …, alpha): alpha large is even, below 1 a few experts get most;
//               by gamma variates (Marsaglia and Tsang 2000, "A simple method for generating gamma
//               variables")
//   drawn-zipf  in proportion to 1/i^s, i being a permutation of the experts drawn a layer
//   a file      a line a layer, or one for all: the experts' shares or token counts, commas between
// A token meets an expert once at most: no share is above 1/k; what is above goes to the others in
// proportion. Every rank's tokens have the same shares. With a capacity factor c an expert takes at
// most c/E of the tokens' copies, the rest is dropped (Megatron's moe_expert_capacity_factor).
//
// Logarithm and exponential are series of + − × ÷ (1e-14 relative), the same for every compiler.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "orrery/base/ids.h"
#include "orrery/base/status.h"
#include "orrery/workload/plan.h"

namespace orrery::workload {

// Tokens' copies in thousandths of T·k, what a rank would send and get if all were even.
struct LayerLoad {
  std::vector<std::int64_t> received;  // by expert-parallel rank
  std::int64_t busiest = 1000;         // the largest of these
  SharesId shares;                     // that say the same in a graph; of one rank none
  std::int64_t sent = 1000;            // those that are not dropped
};

// Tokens of the busiest of `ranks` with `experts` each over the mean, if every division of tokens
// among experts is as likely as the others (Dirichlet with 1 for each): the mean of the largest of
// `ranks` gamma variates of shape `experts`, since shares do not depend on what their sum was. Some
// 1,000 steps of integration with up to `experts` terms.
double BusiestOfAnyDivision(std::int64_t experts, std::int64_t ranks);

// Whether ranks and layers differ.
inline bool DrawsRouting(const Plan& plan) { return plan.experts.routing >= Routing::kDirichlet; }

// Shares of the experts of layer `layer`. REQUIRES: DrawsRouting(plan), Validate is ok.
std::vector<double> ExpertShares(const Model& model, const Plan& plan, int layer);
LayerLoad LoadOfLayer(const Model& model, const Plan& plan, int layer);

Status CheckRouting(const Model& model, const Plan& plan);

// `name` is what errors and results call it. Checks form only.
Result<GivenRouting> ParseRouting(std::string_view name, std::string_view text);

}  // namespace orrery::workload
