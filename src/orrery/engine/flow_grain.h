// Collectives and messages as fluids over the cluster's links, for networks that serve them.
//
// A meet under a plan is bound once: the edges of every channel (collective/flow_grain.h) are
// mapped to links by Cluster::Route, with the channel as salt (a queue pair of its own), and
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
// Cost: a bind O(channels · edges · hops), once per (meet, plan), again after a failure, and
// at every start (16 paths an edge) where routing is adaptive; a start O(loads).
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "orrery/collective/flow_grain.h"
#include "orrery/engine/loop.h"
#include "orrery/network/failures.h"

namespace orrery::engine {

class FlowGrain {
 public:
  // REQUIRES: the network serves fluids over links and has been set up on the inputs' cluster.
  FlowGrain(const LoopInputs& in, network::Network* network);

  struct Binding {
    std::uint32_t first = 0, fluids = 0;  // into fluids_
    bool private_path = false;            // a pair's: only links that are the two ends' own
    std::uint64_t settled = 0;            // times it was settled ahead of the clock
    SimTime settled_busy = 0;
    SimTime fixed = -1, transfer = -1, alone = 0;  // the last cost asked for, and its time
  };
  Binding& Bind(std::uint32_t meet, int plan);
  // The fluids of a plan over its members' links, whoever meets in it.
  Binding MakeBinding(const collective::Plan& plan, std::span<const DeviceId> members);

  // The time of the meet with its links to itself: what the network would take, to the picosecond.
  SimTime Alone(Binding& binding, const collective::Cost& cost);
  // Counts a meet that the network never sees.
  void Settle(SimTime start, Binding& binding, const collective::Cost& cost) {
    ++binding.settled;
    binding.settled_busy += binding.alone - cost.fixed;
    if (network_->use_log()->on()) LogSettled(start, binding, cost);
  }
  // REQUIRES: FollowFailures(now) before.
  void Start(SimTime now, std::uint32_t meet, int plan, const collective::Cost& cost);
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
  void MapChannel(std::span<const collective::ChannelEdge> edges, std::span<const DeviceId> members,
                  std::size_t channel);
  void Route(DeviceId from, DeviceId to, std::uint64_t salt);
  void RouteByLoad(DeviceId from, DeviceId to, std::uint64_t salt);
  std::vector<DeviceId> Members(std::uint32_t meet) const;
  void MoveFlights(SimTime now);
  void AddTemplate(Binding* binding, std::size_t channel);
  void LogSettled(SimTime start, const Binding& binding, const collective::Cost& cost);
  bool IsPrivate(const Binding& binding, std::span<const DeviceId> members) const;
  std::uint32_t Launch(network::Network* network, SimTime now, const Binding& binding,
                       const collective::Cost& cost, bool own_ids);

  const LoopInputs& in_;
  network::Network* network_;
  std::unique_ptr<network::Network> alone_;  // to time a meet by itself
  SimTime alone_now_ = 0;
  std::vector<Binding> bindings_;
  std::unordered_map<std::uint64_t, std::uint32_t> binding_of_;  // by meet and plan
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
