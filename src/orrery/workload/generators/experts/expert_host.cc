#include "orrery/workload/generators/experts/expert_host.h"

#include <algorithm>
#include <array>

namespace orrery::workload {
namespace {

using graph::Pass;

// Operators of a piece, views and autograd nodes included: plain, and fused by Transformer Engine
// (moe_router_fusion for the router, moe_permute_fusion for the rest).
struct Operators {
  std::int64_t forward, backward, fused_forward, fused_backward;
};
constexpr std::array<Operators, 6> kOperators = {{
    {40, 24, 14, 8},  // router: gating 4, top-k and maps 14, auxiliary loss 22
    {18, 0, 18, 0},   // sums, reshapes and copies of counts
    {12, 5, 4, 2},    // mask, argsort, gathers of tokens and weights
    {4, 3, 4, 3},     // exchange: reshapes around the collective
    {6, 4, 3, 2},     // sorting by expert: split, concatenate; weights too
    {6, 5, 6, 5},     // activation: function, weights, casts
}};

}  // namespace

bool RunsEagerly(std::string_view module) {
  constexpr std::array<std::string_view, 5> kEager = {"layers.mlp.dispatch", "layers.mlp.combine",
                                                      "layers.mlp.experts", "layers.mlp.latent",
                                                      "layers.mlp.shared_experts"};
  return std::any_of(kEager.begin(), kEager.end(),
                     [&](std::string_view prefix) { return module.starts_with(prefix); });
}

void ExpertHost(const Shape& s, BlockWriter* w, ExpertPiece piece, Pass pass) {
  const Operators& n = kOperators[static_cast<std::size_t>(piece)];
  const bool fused =
      piece == ExpertPiece::kRouter ? s.framework.moe_fused_router : s.framework.moe_fused_permute;
  const bool forward = pass == Pass::kForward;
  const std::int64_t operators =
      forward ? (fused ? n.fused_forward : n.forward) : (fused ? n.fused_backward : n.backward);
  w->Host("operators", operators * (forward ? s.framework.host.operator_forward
                                            : s.framework.host.operator_backward));
}

void GroupedHost(const Shape& s, BlockWriter* w, std::int64_t calls) {
  w->Host("grouped", calls * s.experts.local * s.framework.host.grouped_expert);
}

}  // namespace orrery::workload
