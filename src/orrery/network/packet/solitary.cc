// Flows on lanes alone: stretches of packets, what arrives, and the way back to single packets.
#include <algorithm>

#include "orrery/network/packet/hosts.h"

namespace orrery::network::packet {
namespace {

constexpr std::uint32_t kLeastPackets = 4;  // of a stretch; fewer are sent one by one

}  // namespace

// Begins a stretch of the flows in the ready ring if its packets wait for nothing but each other.
bool Hosts::SendStretch(HostPort* port, std::size_t cls, SimTime now) {
  Ring<std::uint32_t>& ready = port->ready[cls];
  if (ready.empty() || !port->late.empty()) return false;
  const std::uint32_t lane = flows_[ready.front()].lane;
  if (!lanes_.alone(lane)) return false;
  const std::int32_t bytes = settings_.packet_bytes();
  const auto flows = static_cast<std::uint32_t>(ready.size());
  const SimTime lead = FetchTime(flows_[ready.front()], bytes);
  std::uint32_t rounds = kNone;
  for (std::uint32_t j = 0; j < flows; ++j) {
    Flow& flow = flows_[ready[j]];
    if (flow.fetched || flow.begun + lead > now || !HasWork(&flow)) return false;
    if (flow.pace.rate_Bps > 0) return false;
    PacketBytes(&flow, flow.next);
    const Message& message = flow.messages[flow.at_message];
    rounds = std::min(rounds, message.first + message.packets - 1 - flow.next);
  }
  if (std::uint64_t{rounds} * flows < kLeastPackets) return false;
  // Before the NIC only the link that is slower may be busy: it sets the step.
  const SimTime service = fabric_->ServiceTime(fabric_->port(port->link), bytes);
  SimTime step = service, begin = now - lead;
  for (const std::uint32_t l : lanes_.lane(lane).before) {
    Port& link = fabric_->port(l);
    const SimTime here = fabric_->ServiceTime(link, bytes);
    step = std::max(step, here);
    if (here <= service && free_[l] > begin) return false;
    begin = std::max(begin, free_[l]) + here + link.latency;
  }
  if (!lanes_.Clear(lanes_.lane(lane), begin, bytes)) return false;
  lanes_.Trim(lane, now);
  for (std::uint32_t j = 0; j < flows; ++j) {
    Flow& flow = flows_[ready[j]];
    Packet p;
    p.flow = flow.flow;
    p.number = flow.next;
    p.bytes = bytes;
    p.cls = flow.cls;
    p.at = begin + step * j;
    lanes_.SendRun(lane, p, step * flows, rounds);
    flow.next += rounds;
  }
  port->stretch = {flows, rounds, lane, now, begin, step, cls};
  return true;
}

// What of the stretch had its turn before `now` was sent; the rest never was.
void Hosts::EndStretch(HostPort* port, SimTime now) {
  const Stretch s = std::exchange(port->stretch, {});
  if (s.flows == 0) return;
  Ring<std::uint32_t>& ready = port->ready[s.cls];
  const std::int32_t bytes = settings_.packet_bytes();
  const SimTime service = fabric_->ServiceTime(fabric_->port(port->link), bytes);
  const SimTime second = s.begin + service;  // turn
  const SimTime turns = now <= second ? 1 : 1 + (now - second + s.step - 1) / s.step;
  const auto sent =
      static_cast<std::uint32_t>(std::min<SimTime>(turns, SimTime{s.flows} * s.rounds));
  if (sent < s.flows * s.rounds) lanes_.Cut(s.lane, s.flows, sent, s.step);
  for (std::uint32_t j = 0; j < s.flows; ++j) {
    Flow& flow = flows_[ready[j]];
    flow.next -= s.rounds - (sent > j ? (sent - j + s.flows - 1) / s.flows : 0);
  }
  fabric_->totals().data_packets += sent;
  // The links before the NIC: as the last packet was read, in time for its turn; from the slower
  // link on it came a step after the one before.
  const SimTime last = s.begin + s.step * (sent - 1);
  SimTime at = sent == 1 ? s.turn : last - s.step + service;
  at -= FetchTime(flows_[ready.front()], bytes);
  bool slower = false;
  SimTime rest = FetchTime(flows_[ready.front()], bytes);
  for (const std::uint32_t l : lanes_.lane(s.lane).before) {
    Port& link = fabric_->port(l);
    const SimTime here = fabric_->ServiceTime(link, bytes);
    slower = slower || here > service;
    if (slower) at = last - rest;
    fabric_->CountUse(l, std::max<SimTime>(at - s.step * (sent - 1), 0), s.step, sent, bytes);
    free_[l] = at + here;
    at += here + link.latency;
    rest -= here + link.latency;
  }
  for (std::uint32_t turn = 0; turn < sent % s.flows; ++turn) {
    const std::uint32_t flow = ready.front();
    ready.Pop();
    ready.Push(flow);
  }
}

void Hosts::TakeLanding() {
  const Lanes::Landing landing = lanes_.landings.Top();
  lanes_.landings.Pop();
  if (lanes_.lane(landing.lane).version != landing.version) return;
  Flow& flow = flows_[landing.flow];
  flow.expected = landing.number + 1;
  Complete(&flow, landing.at_gpu);
  Forget(&flow);
}

// The lane is no longer alone: its packets go where they are now.
void Hosts::Disturb(std::uint32_t number, SimTime now) {
  Lanes::Lane& lane = lanes_.lane(number);
  const std::uint32_t node = fabric_->port(lane.links.front()).from;
  Host& host = HostAt(node);
  EndStretch(&*std::ranges::find(host.ports, lane.links.front(), &HostPort::link), now);
  struct Place {
    const Lanes::Run* run = nullptr;
    std::uint32_t i = 0;
    SimTime begin(std::size_t hop) const { return run->at[hop] + run->step * i; }
  };
  std::vector<Place> flying;
  for (std::size_t r = 0; r < lane.runs.size(); ++r) {
    const Lanes::Run& run = lane.runs[r];
    for (std::uint32_t i = 0; i < run.count; ++i) {
      const bool landed =
          run.number + i < flows_[run.flow].expected || lanes_.LandingOf(lane, run, i) < now;
      const Place place{&run, i};
      for (std::size_t h = 0; h < lane.links.size(); ++h) {
        // A host's own links are taken with the arrival at its NIC.
        const bool begun = landed || h == 0 || (h < lane.hops && place.begin(h) < now);
        if (!begun) break;
        const SimTime begin = place.begin(h);
        lane.freed[h] = std::max(lane.freed[h], begin + lanes_.Service(lane, h, run.bytes));
        lanes_.Count(lane, h, begin, 0, 1, run.bytes);
      }
      if (!landed) flying.push_back(place);
    }
  }
  for (const std::uint32_t flow : lane.flows) flows_[flow].expected = flows_[flow].next;
  for (const Place& p : flying) {
    std::uint32_t& expected = flows_[p.run->flow].expected;
    expected = std::min(expected, p.run->number + p.i);
  }
  std::ranges::sort(flying, [](const Place& a, const Place& b) { return a.begin(0) < b.begin(0); });
  for (std::size_t h = 0; h < lane.links.size(); ++h) {
    const std::uint32_t link = lane.links[h];
    (h < lane.hops ? fabric_->port(link).free : free_[link]) = lane.freed[h];
  }
  for (const Place& place : flying) {
    const Lanes::Run& run = *place.run;
    std::size_t hop = 0;
    while (hop + 1 < lane.hops && place.begin(hop + 1) < now) ++hop;
    const Paths::Way& way = paths_->way(run.flow, 0);
    Packet p;
    p.sent = place.begin(0);
    p.at = place.begin(hop) + lanes_.Service(lane, hop, run.bytes) +
           fabric_->port(lane.links[hop]).latency;
    p.flow = run.flow;
    p.number = run.number + place.i;
    paths_->Send(way, &p);
    p.hop = static_cast<std::uint8_t>(hop);
    p.bytes = run.bytes;
    p.cls = run.cls;
    if (p.at >= now) {
      fabric_->PutOnWire(p);
    } else {
      fabric_->PutInQueue(p, place.begin(hop + 1));
    }
  }
  while (!lane.runs.empty()) lane.runs.Pop();
  lanes_.Leave(number);
  fabric_->Wake(node, std::max(now, std::min(OwnTurn(host), fabric_->NextArrival(node))));
}

}  // namespace orrery::network::packet
