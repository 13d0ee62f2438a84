// The other reading of a plan: transfers at chunk grain.
//
// A Schedule is the static part, one per (plan, members): channels, and per channel and member the
// connections it has. A Cursor is one member's progress through one channel: it yields steps lazily, so
// that a collective of any size costs O(1) memory per member and channel. Each member starts on its own
// arrival and waits for data of its upstream and credits of its downstream connections.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "orrery/collective/collective.h"

namespace orrery::collective {

// A directed connection between two members on one channel.
struct Connection {
  std::uint16_t channel = 0;
  std::uint32_t from = 0, to = 0;        // indices into the group's members
};

// One action of a member on a channel. A step may need a message from upstream, then takes `work`
// (reduction or copy), then may send a message downstream.
struct Step {
  std::int32_t recv_connection = -1;     // index into Schedule::connections; -1: needs nothing
  std::int32_t send_connection = -1;     // -1: sends nothing
  std::int64_t bytes = 0;                // on the wire, protocol overhead included
  SimTime work = 0;                      // between receiving and sending
  bool done = false;                     // no further step; other fields void
};

class Schedule {
 public:
  // REQUIRES: plan.shape is the shape of `members`.
  Schedule(const Plan& plan, const cluster::Cluster& cluster, std::span<const DeviceId> members);

  int channels() const;
  int lanes() const;                     // independent step sequences per member (tree: up and down)
  std::span<const Connection> connections() const { return connections_; }
  SimTime setup() const { return setup_; }          // from arrival to the first step
  int credits() const { return plan_.credits; }
  const Plan& plan() const { return plan_; }

  // The step number `index` (from 0) of a member on a lane. O(1), no state.
  Step At(std::uint32_t member, int lane, std::uint64_t index) const;

 private:
  Plan plan_;
  std::vector<Connection> connections_;
  SimTime setup_ = 0;
};

}  // namespace orrery::collective
