#include "orrery/collective/lowering/flow_grain.h"

#include <algorithm>

#include "orrery/cluster/salts.h"
#include "orrery/collective/algorithms/nvls.h"
#include "orrery/collective/lowering/lowering.h"
#include "orrery/collective/white_box.h"

namespace orrery::collective {
namespace {

using model::Chunk;
using model::Edge;

// One message a slice; trees send a chunk as one.
std::int64_t ChunkWire(const Plan& plan, const Edge& edge, const Chunk& chunk) {
  if (chunk.slices == 0) return 0;
  const auto wire = [&](std::int64_t data) {
    return edge.Packed(edge.Message(model::OnWire(plan.protocol, data)));
  };
  if (plan.algorithm == Algorithm::kTree) return wire(chunk.bytes);
  return (chunk.slices - 1) * wire(chunk.slice) + wire(chunk.last());
}

// A part of one head over NVLink, or its sum through NICs.
std::int64_t NvlsWire(const Plan& plan, const model::WhiteBox& box, bool near) {
  const model::Pieces pieces = model::Cut(plan);
  const auto wire = [&](const Chunk& chunk) -> std::int64_t {
    if (chunk.slices == 0) return 0;
    return near ? box.intra.Packed(model::OnSwitch(box, chunk.bytes))
                : box.inter.Packed(chunk.bytes);
  };
  return pieces.rounds * wire(pieces.full) + wire(pieces.tail);
}

std::int64_t EdgeWire(const Plan& plan, const Edge& edge) {
  const model::Pieces pieces = model::Cut(plan);
  const bool rotating = plan.algorithm == Algorithm::kRing && model::IsRotating(plan.collective);
  const std::int64_t sends = rotating ? model::RingSteps(plan) - 1 : 1;
  return sends *
         (pieces.rounds * ChunkWire(plan, edge, pieces.full) + ChunkWire(plan, edge, pieces.tail));
}

// Every pair's message, all as one channel, as its rounds keep in step. What leaves a domain goes
// over NVLink to the GPU beside the receiver's rail first, where there is one (PXN; all_to_all.h).
void AddExchange(const Plan& plan, const cluster::Cluster& cluster,
                 std::span<const DeviceId> members, FlowGrain* grain) {
  const model::WhiteBox box = model::MakeWhiteBox(plan, cluster.spec());
  const std::int64_t part = std::max<std::int64_t>(1, plan.bytes / plan.shape.ranks);
  std::int64_t wire = model::OnWire(plan.protocol, part);
  const auto count = static_cast<std::uint32_t>(members.size());
  for (std::uint32_t from = 0; from < count; ++from) {
    for (std::uint32_t to = 0; to < count; ++to) {
      // A gather's messages go to member 0, a scatter's come from there.
      if (to == from || (plan.collective == graph::Collective::kGather && to != 0)) continue;
      if (plan.collective == graph::Collective::kScatter && from != 0) continue;
      if (plan.uneven.shares != nullptr) {
        wire = model::OnWire(plan.protocol, plan.uneven.Message(plan.bytes, from, to));
        if (wire == 0) continue;
      }
      if (cluster.nvlink_domain(members[from]) == cluster.nvlink_domain(members[to])) {
        grain->edges.push_back({from, to, box.intra.Packed(wire)});
      } else {
        grain->edges.push_back({from, to, box.inter.Packed(wire), plan.pxn ? cluster::kByRail : 0});
      }
    }
  }
  grain->first = {0, static_cast<std::uint32_t>(grain->edges.size())};
}

// A connection between domains: `wire` bytes, cut among its queue pairs.
void AddQueuePairs(const Plan& plan, const Connection& c, std::int64_t wire, FlowGrain* grain) {
  const std::int64_t pairs = plan.queue_pairs;
  for (std::int64_t k = 0; k < pairs; ++k) {
    grain->edges.push_back({c.from, c.to, wire * (k + 1) / pairs - wire * k / pairs,
                            cluster::QueuePair(c.channel, static_cast<std::uint32_t>(k))});
  }
}

// Of each channel's connections, what their dimension carries.
void AddPat(const Plan& plan, const cluster::Cluster& cluster, const Schedule& schedule,
            FlowGrain* grain) {
  const model::WhiteBox box = model::MakeWhiteBox(plan, cluster.spec());
  const model::Pieces pieces = model::Cut(plan);
  const pat::Pattern pattern(plan);
  std::vector<std::int64_t> carries(static_cast<std::size_t>(pattern.dims));
  for (const pat::Action& action : pattern.Actions()) {
    if (action.send < 0) continue;
    carries[static_cast<std::size_t>(action.send)] +=
        pieces.rounds * box.inter.Packed(action.send_blocks * pieces.full.bytes) +
        (pieces.tail.slices > 0 ? box.inter.Packed(action.send_blocks * pieces.tail.bytes) : 0);
  }
  const auto ranks = static_cast<std::size_t>(plan.shape.ranks);
  const std::size_t per_channel = ranks * carries.size();
  const auto connections = schedule.connections();
  for (std::size_t i = 0; i < connections.size(); ++i) {
    if (i % per_channel == 0)
      grain->first.push_back(static_cast<std::uint32_t>(grain->edges.size()));
    AddQueuePairs(plan, connections[i], carries[i / ranks % carries.size()], grain);
  }
  grain->first.push_back(static_cast<std::uint32_t>(grain->edges.size()));
}

bool TowardsHead(std::uint64_t salt) {
  return salt == cluster::kIntoSwitch || salt == cluster::kThroughSwitch ||
         salt == cluster::kToHead || salt == cluster::kIntoLeaf || salt == cluster::kIntoTop;
}

// Every way of a channel carries one head's part, or, in a chain, all of the channel's. What a
// domain alone has of a gather, or gets of a scattered sum, is its part of that.
void AddCollNet(const Plan& plan, const cluster::Cluster& cluster,
                std::span<const DeviceId> members, const model::WhiteBox& box, FlowGrain* grain) {
  const model::Pieces pieces = model::Cut(plan);
  const auto wire = [&](bool near) -> std::int64_t {
    const auto of = [&](const Chunk& chunk) -> std::int64_t {
      if (chunk.slices == 0) return 0;
      if (!near) return box.inter.Packed(chunk.bytes);
      return box.intra.Packed(plan.algorithm == Algorithm::kNvls ? model::OnSwitch(box, chunk.bytes)
                                                                 : chunk.bytes);
    };
    return pieces.rounds * of(pieces.full) + of(pieces.tail);
  };
  const std::int64_t intra = wire(true), inter = wire(false);
  const Schedule schedule(plan, cluster, members);
  grain->first.assign(1, 0);
  int channel = 0;
  for (const Connection& c : schedule.connections()) {
    if (c.channel != channel) {
      grain->first.push_back(static_cast<std::uint32_t>(grain->edges.size()));
      channel = c.channel;
    }
    const bool up = TowardsHead(c.salt);
    const bool whole = up ? nvls::Scatters(plan.collective) : nvls::Gathers(plan.collective);
    if (cluster::InFabric(c.salt)) {
      grain->edges.push_back({c.from, c.to, whole ? inter : inter / plan.shape.domains, c.salt});
    } else if (whole) {
      grain->edges.push_back({c.from, c.to, intra, c.salt});
    }
  }
  grain->first.push_back(static_cast<std::uint32_t>(grain->edges.size()));
}

}  // namespace

FlowGrain MakeFlowGrain(const Plan& plan, const cluster::Cluster& cluster,
                        std::span<const DeviceId> members) {
  FlowGrain grain;
  if (members.size() < 2 || plan.bytes == 0) return grain;
  if (model::IsExchange(plan.collective)) {
    AddExchange(plan, cluster, members, &grain);
    return grain;
  }
  const model::WhiteBox box = model::MakeWhiteBox(plan, cluster.spec());
  const bool nvls = model::IsNvls(plan);
  if (model::IsCollNet(plan)) {
    AddCollNet(plan, cluster, members, box, &grain);
    return grain;
  }
  const std::int64_t intra = nvls ? NvlsWire(plan, box, true) : EdgeWire(plan, box.intra);
  const std::int64_t inter = nvls ? NvlsWire(plan, box, false) : EdgeWire(plan, box.inter);
  const bool chain = plan.algorithm != Algorithm::kTree && !nvls &&
                     !(plan.algorithm == Algorithm::kRing && model::IsRotating(plan.collective));
  const Schedule schedule(plan, cluster, members);
  if (plan.algorithm == Algorithm::kPat) {
    AddPat(plan, cluster, schedule, &grain);
    return grain;
  }
  grain.edges.reserve(schedule.connections().size());
  grain.first.assign(1, 0);
  int channel = 0;
  for (const Connection& c : schedule.connections()) {
    if (c.channel != channel) {
      grain.first.push_back(static_cast<std::uint32_t>(grain.edges.size()));
      channel = c.channel;
    }
    if (chain && c.to == 0) continue;  // nothing returns to the root
    const bool near =
        cluster.nvlink_domain(members[c.from]) == cluster.nvlink_domain(members[c.to]);
    // An all-gather's heads load nothing, a reduce-scatter's store nothing.
    const bool up = c.salt == cluster::kIntoSwitch || c.salt == cluster::kThroughSwitch;
    if (up && !nvls::Scatters(plan.collective)) continue;
    if (c.salt == cluster::kOutOfSwitch && !nvls::Gathers(plan.collective)) continue;
    if (near || c.salt != 0) {
      grain.edges.push_back({c.from, c.to, near ? intra : inter, c.salt});
      continue;
    }
    AddQueuePairs(plan, c, inter, &grain);
  }
  grain.first.push_back(static_cast<std::uint32_t>(grain.edges.size()));
  return grain;
}

}  // namespace orrery::collective
