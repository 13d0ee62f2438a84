// How far a host may run ahead of the rest: several turns in one go, while its flows are at hand.
//
// What reaches a host before the latency of its links is over has been sent. Beside that, only a
// timer of its flows and messages that begin there can change what it does. Messages begin when the
// caller says so (network.cc's limit) and when it hears that another has ended; and no message ends
// before the packets that it lacks have come over the last link: those on that link come when they
// come, any other at least its latency from now, one after the other.
#include <algorithm>

#include "orrery/network/packet/hosts.h"

namespace orrery::network::packet {

// The flow has a message under way.
void Hosts::Watch(Flow* flow, SimTime now) {
  if (!ahead_ || flow->watched) return;
  flow->watched = true;
  endings_.push_back({now, now, flow->flow});
  std::push_heap(endings_.begin(), endings_.end());
}

// The first of the flow's messages that is under way.
SimTime Hosts::EndsNoEarlier(const Flow& flow, SimTime now) const {
  const Message& message = flow.messages[flow.completed];
  const std::uint32_t missing = message.first + message.packets - flow.expected;
  const std::uint32_t lacks = std::max(missing, flow.arrived.size() + 1) - flow.arrived.size();
  std::uint32_t coming = 0;
  for (const Passing& passing : fabric_->inbox(flow.to_node)) {
    if (passing.link == flow.last_link && ++coming == lacks) return passing.at;
  }
  Port& port = fabric_->port(flow.last_link);
  // All but one of a message's packets are full.
  const auto behind = std::max<SimTime>(lacks - coming, 2) - 2;
  return fabric_->known_until(now) + port.latency +
         behind * fabric_->ServiceTime(port, flow.packet_bytes);
}

// No message ends before; at most `until`.
SimTime Hosts::NextEnding(SimTime now, SimTime until) {
  const SimTime enough = now + (until - now) / 2;
  while (!endings_.empty() && endings_.front().bound < enough) {
    Ending ending = endings_.front();
    if (ending.seen == now) break;
    std::pop_heap(endings_.begin(), endings_.end());
    Flow& flow = flows_[ending.flow];
    if (flow.completed == flow.messages.size()) {
      flow.watched = false;
      endings_.pop_back();
      continue;
    }
    endings_.back() = {std::max(ending.bound, EndsNoEarlier(flow, now)), now, ending.flow};
    std::push_heap(endings_.begin(), endings_.end());
  }
  return endings_.empty() ? until : std::min(until, endings_.front().bound);
}

SimTime Hosts::RunsAhead(std::uint32_t node, SimTime now, SimTime until) {
  const SimTime next = now + 1;
  if (!ahead_) return next;
  until = std::min(until, fabric_->known_until(now) + fabric_->batch(node));
  if (settings_.rto > 0) until = std::min(until, now + settings_.rto);
  if (timers.NextTime() < until) until = timers.NextTime() + 1;
  if (done.NextTime() < until) until = done.NextTime() + 1;
  return std::max(next, std::min(until, NextEnding(now, until) + 1));
}

// Two hosts whose packets take the same link inside a host do not run ahead of each other.
void Hosts::NoteInside(std::span<const std::uint32_t> links, std::uint32_t node) {
  for (const std::uint32_t l : links) {
    std::uint32_t& user = inside_user_[l];
    if (user != kNone && user != node) ahead_ = false;
    if (user != node) HostAt(node).inside.push_back(l);
    user = node;
  }
}

}  // namespace orrery::network::packet
