// Who is joined to whom in a lowered run: every connection of every collective's schedule, between
// simulated ranks. Built once, before the first event.
//
// All partitions read it; a wire's two sides have one owner each, who alone writes them.
// Cost: O(connections · log) to build.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "orrery/cluster/salts.h"
#include "orrery/collective/lowering/lowering.h"
#include "orrery/engine/loop.h"
#include "orrery/engine/straight/machine.h"

namespace orrery::engine {

// One lane of one part of the communication at the head of a rank's stream.
struct LaneRef {
  std::uint32_t rank = kNobody;
  std::uint8_t stream = 0, part = 0;
  std::uint16_t lane = 0;
  std::uint64_t key() const {
    return (std::uint64_t{stream} << 32) | (std::uint64_t{part} << 16) | lane;
  }
};

// A directed connection between two ranks on one channel; it outlives the collectives that use it.
struct Wire {
  std::uint32_t from = 0, to = 0;  // simulated ranks
  std::uint32_t meet = kNobody;
  std::uint64_t salt = 0;        // of the route
  SimTime credit_latency = 0;    // from the receiver back to the sender
  std::int32_t all_credits = 0;  // none is under way
  // Sender's side, owned by its partition.
  std::int32_t credits = 0;
  LaneRef sender_waits;
  std::uint32_t sent = 0;         // messages
  std::uint32_t queue_pairs = 1;  // they take them in turn
  // Receiver's side.
  std::int32_t ready = 0;    // messages that nobody took yet
  std::uint32_t landed = 0;  // in order
  LaneRef receiver_waits;
};

// A schedule on the members of one meet, with its connections' wires.
struct Bound {
  const collective::Schedule* schedule = nullptr;
  std::vector<std::uint32_t> wire;  // by connection of the schedule
  // Whom the first member cannot end without, and whom the others.
  std::array<collective::WaitsFor, 2> partners{};
};

class Wiring {
 public:
  explicit Wiring(const LoopInputs& in) : in_(in) {}

  void Build() {
    const Layout& layout = *in_.layout;
    for (std::uint32_t r = 0; r < layout.ranks.size(); ++r) {
      const Variant& v = layout.variants[layout.ranks[r].variant];
      for (const BlockPrice* block : v.blocks) {
        if (block == nullptr) continue;
        for (const CommPrice& comm : block->comms) {
          if (comm.plan >= 0) Bind(MeetOf(layout.ranks[r], comm.comm), comm.plan);
        }
      }
    }
  }

  const Bound* Find(std::uint32_t meet, int plan) const {
    const auto it = bound_.find({meet, plan});
    return it == bound_.end() ? nullptr : &it->second;
  }
  // The rank's place in the meet; a pair: the sender is 0. REQUIRES: it takes part.
  std::uint32_t MemberOf(std::uint32_t meet, std::uint32_t rank, bool receives) const {
    const MeetInfo& info = in_.layout->meets[meet];
    if (info.pair) return receives ? 1 : 0;
    const auto first = in_.layout->participants.begin() + info.first;
    return static_cast<std::uint32_t>(std::find(first, first + info.count, rank) - first);
  }
  DeviceId device(std::uint32_t sim_rank) const {
    return in_.inputs->placement->device[in_.layout->ranks[sim_rank].rank.index()];
  }
  // Of a rank's transfers (network::Transfer::creator).
  std::uint32_t creator(std::uint32_t sim_rank) const {
    return in_.layout->ranks[sim_rank].rank.value;
  }
  // The least time from any member's arrival to its first step.
  SimTime least_setup() const {
    SimTime least = kNever;
    for (const auto& schedule : schedules_) least = std::min(least, schedule->setup());
    return least;
  }

  std::vector<Wire> wires;

 private:
  void Bind(std::uint32_t meet, int plan) {
    if (meet == kNobody || bound_.contains({meet, plan})) return;
    const MeetInfo& info = in_.layout->meets[meet];
    std::vector<DeviceId> devices;
    for (std::uint32_t i = 0; i < info.count; ++i) {
      devices.push_back(device(in_.layout->participants[info.first + i]));
    }
    auto schedule = std::make_unique<collective::Schedule>(in_.prices->plan(plan),
                                                           *in_.inputs->cluster, devices);
    Bound& b = bound_[{meet, plan}];
    b.schedule = schedule.get();
    for (const collective::Connection& c : schedule->connections()) {
      const std::uint32_t from = in_.layout->participants[info.first + c.from];
      const std::uint32_t to = in_.layout->participants[info.first + c.to];
      b.wire.push_back(WireOf(meet, c, from, to, schedule->credits()));
      if (Crosses(from, to) && c.salt == 0) {
        wires[b.wire.back()].queue_pairs =
            static_cast<std::uint32_t>(in_.prices->plan(plan).queue_pairs);
      }
    }
    std::int64_t credits = 0;
    for (const std::uint32_t id : b.wire) {
      credits = std::max<std::int64_t>(credits, wires[id].all_credits);
    }
    b.partners = {schedule->PartnersOf(0, credits), schedule->PartnersOf(1, credits)};
    schedules_.push_back(std::move(schedule));
  }

  bool Crosses(std::uint32_t from, std::uint32_t to) const {
    const cluster::Cluster& cluster = *in_.inputs->cluster;
    return cluster.nvlink_domain(device(from)) != cluster.nvlink_domain(device(to));
  }

  std::uint32_t WireOf(std::uint32_t meet, const collective::Connection& c, std::uint32_t from,
                       std::uint32_t to, int credits) {
    const auto key = std::make_tuple(meet, c.channel, c.from, c.to, c.salt);
    const auto it = wire_ids_.find(key);
    if (it != wire_ids_.end()) return it->second;
    Wire w;
    w.from = from;
    w.to = to;
    w.salt = c.salt != 0 ? c.salt : cluster::QueuePair(c.channel, 0);
    w.meet = meet;
    w.credits = w.all_credits = credits;
    std::vector<LinkId> path;
    in_.inputs->cluster->Route(device(to), device(from), w.salt, &path);
    for (LinkId l : path) w.credit_latency += in_.inputs->cluster->links()[l.index()].latency;
    wires.push_back(w);
    const auto id = static_cast<std::uint32_t>(wires.size() - 1);
    wire_ids_.emplace(key, id);
    return id;
  }

  const LoopInputs& in_;
  std::map<std::pair<std::uint32_t, int>, Bound> bound_;
  std::map<std::tuple<std::uint32_t, std::uint16_t, std::uint32_t, std::uint32_t, std::uint64_t>,
           std::uint32_t>
      wire_ids_;
  std::vector<std::unique_ptr<collective::Schedule>> schedules_;
};

}  // namespace orrery::engine
