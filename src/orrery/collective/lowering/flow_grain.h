// A plan at flow grain: who sends how much to whom on each channel, over the whole collective.
//
// A ring channel moves at its slowest edge, every edge carrying the same; a tree channel lists its
// edges up and down, so that a parent's port is counted once for each child. Pipeline fill, set-up
// and reduction are not here: they are Cost::fixed of the plan's closed form, and what the CTA of a
// channel can do at best is Cost::transfer. A connection of several queue pairs is as many edges,
// one behind the other.
//
// Cost: O(channels · members).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "orrery/collective/collective.h"

namespace orrery::collective {

struct ChannelEdge {
  std::uint32_t from = 0, to = 0;  // indices into the group's members
  std::int64_t wire_bytes = 0;     // flags of LL and LL128 and the headers of packets included
  std::uint64_t salt = 0;  // of the route, where the connection has one of its own (NVLS, PXN)
};

struct FlowGrain {
  std::vector<ChannelEdge> edges;    // channel by channel
  std::vector<std::uint32_t> first;  // of each channel's edges; one past the end at last

  std::size_t channels() const { return first.empty() ? 0 : first.size() - 1; }
  std::span<const ChannelEdge> channel(std::size_t c) const {
    return {edges.data() + first[c], first[c + 1] - first[c]};
  }
};

// No channels where nothing moves (one member, no bytes). REQUIRES: plan.shape is the shape of
// `members`. Broadcast, gather, scatter: members[0] is the root; point-to-point: members[0] sends
// to members[1].
FlowGrain MakeFlowGrain(const Plan& plan, const cluster::Cluster& cluster,
                        std::span<const DeviceId> members);

}  // namespace orrery::collective
