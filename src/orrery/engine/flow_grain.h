// Collectives and messages as fluids over the cluster's links, for networks that serve them.
//
// A meet under a plan is bound once: the edges of every channel (collective/flow_grain.h) are
// mapped to links by Cluster::Route, with the channel as salt (a queue pair of its own), and
// channels of equal loads become one fluid of their summed weight. A fluid's bytes are those of its
// busiest edge, its loads the bytes of every link relative to them. It moves no faster than the
// closed form's transfer time allows (the CTA, and ports as the plan sees them), after half of the
// plan's fixed time; the other half follows the last byte. The meet ends when its last fluid has.
//
// Cost: a bind O(channels · edges · hops), once per (meet, plan); a start O(loads).
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "orrery/collective/flow_grain.h"
#include "orrery/engine/loop.h"

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
  void Start(SimTime now, std::uint32_t meet, Binding& binding, const collective::Cost& cost);
  // Takes one completion of the network; the meet if that was its last, else kNobody.
  std::uint32_t Complete(network::FlightId flight);
  void AddSettledTraffic(std::vector<network::PortStatistics>* traffic) const;

 private:
  struct Template {
    std::int64_t bytes = 0;
    std::uint32_t weight = 1;
    std::uint32_t first = 0, loads = 0;  // into loads_
  };
  void MapChannel(std::span<const collective::ChannelEdge> edges, std::span<const DeviceId> members,
                  std::size_t channel);
  void AddTemplate(Binding* binding);
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
  std::vector<network::FlightId> free_;
  // Scratch.
  std::vector<LinkId> route_;
  std::vector<std::pair<LinkId, std::int64_t>> link_bytes_;
  std::vector<network::LinkLoad> channel_;
  std::int64_t channel_bytes_ = 0;
  std::vector<network::LinkFluid> batch_;
  std::vector<network::LinkLoad> batch_loads_;
  std::vector<network::Completion> done_;
};

}  // namespace orrery::engine
