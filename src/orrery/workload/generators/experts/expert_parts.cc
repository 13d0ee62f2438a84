#include "orrery/workload/generators/experts/expert_parts.h"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "orrery/base/check.h"
#include "orrery/workload/generators/layers/layer.h"
#include "orrery/workload/generators/layers/split_backward.h"

namespace orrery::workload {
namespace {

using graph::Op;
using graph::OpKind;

// Tokens on their way, as experts.cc names them.
bool IsExchange(const graph::Block& layer, const Op& op, const Names& names) {
  if (op.kind != OpKind::kComm || layer.comms[op.index].group != graph::GroupSlot::kEp) {
    return false;
  }
  constexpr std::array<std::string_view, 4> kNames = {"dispatch", "combine", "all_gather.tokens",
                                                      "reduce_scatter.tokens"};
  const std::string& name = names.all()[op.name.index()];
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

// Positions behind the last two exchanges: those before them are a recomputed forward pass.
std::array<std::size_t, kExpertParts + 1> Cuts(const graph::Block& layer, const Names& names) {
  std::vector<std::size_t> cuts;
  for (std::size_t i = 0; i < layer.ops.size(); ++i) {
    if (IsExchange(layer, layer.ops[i], names)) cuts.push_back(i + 1);
  }
  ORRERY_CHECK(cuts.size() >= 2, "a layer with experts exchanges tokens twice");
  return {0, cuts[cuts.size() - 2], cuts[cuts.size() - 1], layer.ops.size()};
}

}  // namespace

graph::Block PartOf(const graph::Block& layer, int part, Names* names) {
  const auto cuts = Cuts(layer, *names);
  const auto at = static_cast<std::size_t>(part);
  graph::Block out = layer;
  out.name = names->Intern(names->all()[layer.name.index()] + "." + std::to_string(part + 1));
  out.ops.assign(layer.ops.begin() + static_cast<std::ptrdiff_t>(cuts[at]),
                 layer.ops.begin() + static_cast<std::ptrdiff_t>(cuts[at + 1]));
  if (part + 1 < kExpertParts) {
    graph::Comm& exchange = out.comms[out.ops.back().index];
    exchange.blocking = false;
    exchange.event = graph::kCallEvent;
  }
  // Where each temporary is made and given back.
  const auto part_of = [&](std::size_t op) {
    return std::upper_bound(cuts.begin() + 1, cuts.end() - 1, op) - cuts.begin();
  };
  std::map<std::uint32_t, std::ptrdiff_t> made;
  std::map<std::uint32_t, bool> crosses;
  for (std::size_t i = 0; i < layer.ops.size(); ++i) {
    const Op& op = layer.ops[i];
    if (op.kind != OpKind::kAlloc && op.kind != OpKind::kFree) continue;
    const graph::Buffer& buffer = layer.buffers[op.index];
    if (buffer.lifetime != graph::Lifetime::kCall) continue;
    if (op.kind == OpKind::kAlloc) made[buffer.id] = part_of(i);
    if (op.kind == OpKind::kFree) crosses[buffer.id] |= made[buffer.id] != part_of(i);
  }
  for (graph::Buffer& buffer : out.buffers) {
    if (buffer.lifetime == graph::Lifetime::kCall && crosses[buffer.id]) {
      buffer.lifetime = graph::Lifetime::kMicrobatch;
    }
  }
  out.Seal();
  return out;
}

graph::Block BackwardPart(const Shape& s, int part, Names* names) {
  const graph::Block whole = PartOf(LayerBackward(s, names), part, names);
  const bool delays = s.experts.delays_weights && part > 0;
  return delays ? DataHalf(s, whole, names, OperandGather::kInData) : whole;
}

graph::Block WeightPart(const Shape& s, int part, Names* names) {
  return WeightHalf(s, PartOf(LayerBackward(s, names), part, names), names, OperandGather::kInData);
}

}  // namespace orrery::workload
