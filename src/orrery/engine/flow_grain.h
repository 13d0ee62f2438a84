// Collectives and messages as fluids over the cluster's links, for networks that serve them.
//
// A meet under a plan is bound once: the edges of every channel (collective/lowering/flow_grain.h)
// are mapped to links by Cluster::Route, with the channel as salt (a queue pair of its own), and
// channels of equal loads become one fluid of their summed weight. A fluid's bytes are those of its
// busiest edge, its loads the bytes of every link relative to them. It moves no faster than the
// closed form's transfer time allows (the CTA, and ports as the plan sees them), after half of the
// plan's fixed time; the other half follows the last byte. The meet ends when its last fluid has.
//
// Links that fail (network/failures.h): channels are fluids of their own, who crosses a link as it
// goes down moves what it has left to another path, and meets that begin meanwhile are bound to the
// paths of the moment. With adaptive routing every edge of a channel takes, each time a meet
// begins, the path of 16 whose most loaded link has the fewest flights for its bandwidth.
//
// Meets that nobody can touch are settled without the network (Lone): what they take alone is
// played once for all that are alike, links renamed.
//
// Folded (symmetry.h), a fluid loads the links that stand for its own with what all that it stands
// for do.
//
// Cost: a bind O(channels · edges · hops), once per (meet, plan), again after a failure, and
// at every start (16 paths an edge) where routing is adaptive; a start O(fluids) where paths stay,
// else O(loads).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "orrery/collective/lowering/flow_grain.h"
#include "orrery/engine/loop.h"
#include "orrery/network/failures.h"

namespace orrery::engine {

class FlowGrain {
 public:
  // REQUIRES: the network serves fluids over links and has been set up on the inputs' cluster.
  FlowGrain(const LoopInputs& in, network::Network* network);

  struct Binding {
    std::uint32_t first = 0, fluids = 0;  // into templates_
    bool private_path = false;            // a pair's: only links that are the two ends' own
  };
  // A meet under a plan at a cost, with its links to itself.
  struct Lone {
    std::int32_t plan = -1;
    std::uint32_t meet = 0, binding = 0;
    std::uint32_t next = kNobody;     // of the same meet
    SimTime fixed = 0, transfer = 0;  // its cost
    SimTime time = 0;                 // what the network would take, to the picosecond
    std::uint64_t times = 0;          // it was settled ahead of the clock
  };
  Binding& Bind(std::uint32_t meet, int plan);
  struct FluidView {
    std::int64_t bytes = 0;
    std::uint32_t weight = 1;
    std::span<const network::LinkLoad> loads;  // until the next binding
  };
  FluidView fluid(const Binding& binding, std::uint32_t i) const {
    const Template& t = templates_[binding.first + i];
    return {t.bytes, t.weight, std::span(loads_).subspan(t.first, t.loads)};
  }
  // The GPUs that meet; folded, those of one meeting of all that it stands for.
  std::vector<DeviceId> Members(std::uint32_t meet) const;
  // The fluids of a plan over its members' links, whoever meets in it.
  Binding MakeBinding(const collective::Plan& plan, std::span<const DeviceId> members);

  // The binding's fluids, numbered from 0, and their loads.
  void FluidsOf(const Binding& binding, const collective::Cost& cost,
                std::vector<network::LinkFluid>* fluids, std::vector<network::LinkLoad>* loads) {
    MakeBatch(binding, cost);
    *fluids = batch_;
    *loads = batch_loads_;
  }

  // The time of the binding with its links to itself: what the network would take, to the
  // picosecond.
  SimTime Alone(const Binding& binding, const collective::Cost& cost);
  // Notes what the meet takes alone, for Find. A pair: only where no other can use its path.
  // REQUIRES: steady().
  void Prepare(std::uint32_t meet, int plan, const collective::Cost& cost);
  // Null where it was not prepared. Several threads may ask, and count in Lone::times, each for
  // meets of its own, once all that is to be prepared is.
  Lone* Find(std::uint32_t meet, int plan, const collective::Cost& cost) {
    if (meet >= lone_of_.size()) return nullptr;
    for (std::uint32_t i = lone_of_[meet]; i != kNobody; i = lones_[i].next) {
      Lone& lone = lones_[i];
      if (lone.plan == plan && lone.fixed == cost.fixed && lone.transfer == cost.transfer) {
        return &lone;
      }
    }
    return nullptr;
  }
  // A meet that the network never sees, in its log. REQUIRES: the log is on.
  void LogSettled(SimTime start, const Lone& lone);
  // The meet ends at the returned time or later. REQUIRES: FollowFailures(now) before.
  SimTime Start(SimTime now, std::uint32_t meet, int plan, const collective::Cost& cost);
  // Moves what is in flight off links that went down by `now`. O(1) while nothing changes.
  void FollowFailures(SimTime now) {
    if (failures_.next() <= now) MoveFlights(now);
  }
  // Paths do not depend on the time: links are as they were at the start, routes too.
  bool steady() const { return steady_; }
  // Not OK once a meet has no path left.
  const Status& status() const { return status_; }
  // Takes one completion of the network; the meet if that was its last, else kNobody.
  std::uint32_t Complete(network::FlightId flight);
  void AddSettledTraffic(std::vector<network::PortStatistics>* traffic) const;

 private:
  struct Template {
    std::int64_t bytes = 0;
    std::uint32_t weight = 1;
    std::uint32_t first = 0, loads = 0;  // into loads_
    std::uint32_t channel = 0;           // its first one
  };
  // What starts with a meet under a plan at a cost, where paths stay.
  struct Ready {
    std::int32_t plan = -1;
    std::uint32_t first = 0, count = 0, next = kNobody;  // into ready_; of the same meet
    SimTime fixed = 0, transfer = 0, soonest = 0;
  };
  void MapChannel(std::span<const collective::ChannelEdge> edges, std::span<const DeviceId> members,
                  std::size_t channel);
  void Route(DeviceId from, DeviceId to, std::uint64_t salt);
  void RouteByLoad(DeviceId from, DeviceId to, std::uint64_t salt);
  const Ready& FindReady(std::uint32_t meet, int plan, const collective::Cost& cost);
  network::FlightId NewFlight(std::uint32_t meet);
  void MoveFlights(SimTime now);
  void AddTemplate(Binding* binding, std::size_t channel);
  std::uint64_t Likeness(const Binding& binding, const collective::Cost& cost) const;
  bool IsPrivate(const Binding& binding, std::span<const DeviceId> members) const;
  void MakeBatch(const Binding& binding, const collective::Cost& cost);

  const LoopInputs& in_;
  network::Network* network_;
  std::unique_ptr<network::Network> alone_;  // to time a meet by itself
  SimTime alone_now_ = 0;
  std::vector<Binding> bindings_;
  std::unordered_map<std::uint64_t, std::uint32_t> binding_of_;  // by meet and plan
  std::vector<Ready> readies_;
  std::vector<std::uint32_t> ready_of_;  // by meet: first of a chain
  std::vector<network::LinkFluid> ready_;
  std::vector<Lone> lones_;
  std::vector<std::uint32_t> lone_of_;                   // by meet: first of a chain
  std::unordered_map<std::uint64_t, SimTime> alone_of_;  // by Likeness
  std::vector<Template> templates_;
  std::vector<network::LinkLoad> loads_;
  std::vector<std::uint32_t> pending_;  // fluids in flight, by meet
  std::vector<std::uint32_t> meet_of_;  // by flight
  struct Bound {
    std::int32_t plan = -1;  // -1: not in flight
    std::uint32_t channel = 0;
    std::vector<LinkId> links;
  };
  std::vector<Bound> bound_;  // by flight, where links may go down
  network::Failures failures_;
  bool steady_ = true, adaptive_ = false;
  Status status_;
  std::vector<network::FlightId> free_;
  // Scratch.
  std::vector<LinkId> route_, other_;
  std::vector<std::uint32_t> chosen_;  // flights that the bind in hand adds, by link
  std::vector<std::pair<LinkId, std::int64_t>> link_bytes_;
  std::vector<network::LinkLoad> channel_;
  std::int64_t channel_bytes_ = 0;
  std::vector<network::LinkFluid> batch_;
  std::vector<network::LinkLoad> batch_loads_;
  std::vector<network::Completion> done_;
};

}  // namespace orrery::engine
