// The NIC: whose turn it is to send.
#include "orrery/network/packet/hosts.h"

#include <algorithm>
#include <limits>

#include "orrery/base/check.h"
#include "orrery/base/rng.h"

namespace orrery::network::packet {

void Hosts::Setup(const cluster::Cluster& cluster, const Settings& settings, Fabric* fabric,
                  Paths* paths) {
  *this = Hosts();
  settings_ = settings;
  fabric_ = fabric;
  paths_ = paths;
  control_ = settings.control->make();
  host_of_.assign(cluster.vertices(), kNone);
  out_.resize(cluster.vertices());
  free_.assign(cluster.links().size(), 0);
  lanes_.Setup(settings, fabric, paths, &free_, cluster.links().size());
  ahead_ = !cluster.direct() && !lanes_.possible();
  inside_user_.assign(cluster.links().size(), kNone);
  for (std::uint32_t l = 0; l < cluster.links().size(); ++l) {
    const cluster::Link& link = cluster.links()[l];
    if (!fabric->is_host(link.from)) continue;
    if (!cluster.direct() && cluster::IsLocal(link.kind)) continue;
    out_[link.from].push_back(l);
  }
}

Hosts::Host& Hosts::HostAt(std::uint32_t node) {
  if (host_of_[node] == kNone) {
    host_of_[node] = static_cast<std::uint32_t>(hosts_.size());
    Host& host = hosts_.emplace_back();
    for (const std::uint32_t link : out_[node]) host.ports.push_back({.link = link});
  }
  return hosts_[host_of_[node]];
}

std::uint32_t Hosts::AddFlow(DeviceId from, DeviceId to, std::uint64_t salt) {
  const int ways = settings_.balance == Balance::kEcmp ? 1 : settings_.paths;
  const std::uint32_t number = paths_->Add(from, to, salt, ways);
  ORRERY_CHECK(number == flows_.size(), "flows and their ways have the same numbers");
  Flow& flow = flows_.emplace_back();
  const Paths::Way& way = paths_->way(number, 0);
  Port& first = fabric_->port(paths_->link(way.first));
  flow.flow = number;
  flow.node = first.from;
  flow.line_Bps = first.bandwidth_Bps;
  flow.packet_bytes = settings_.packet_bytes();
  flow.network_rtt = settings_.base_rtt;
  flow.hops = way.hops;
  flow.window = settings_.window;
  flow.parameters = &settings_.parameters;
  for (std::uint32_t h = 0; h < way.hops; ++h) {
    Port& port = fabric_->port(paths_->link(way.first + h));
    flow.base_rtt += port.latency + fabric_->ServiceTime(port, flow.packet_bytes);
    flow.to_node = port.to;
    flow.last_link = paths_->link(way.first + h);
  }
  const Paths::Way& back = paths_->back(number);
  for (std::uint32_t h = 0; h < back.hops; ++h) {
    Port& port = fabric_->port(paths_->link(back.first + h));
    flow.base_rtt += port.latency + fabric_->ServiceTime(port, kControlBytes);
  }
  flow.credit = flow.unasked = flow.told =
      static_cast<std::uint32_t>(settings_.window / flow.packet_bytes);
  flow.fetch_time = FetchTimeOf(flow, flow.packet_bytes);
  flow.lane = lanes_.LaneOf(number);
  NoteInside(paths_->before(number), flow.node);
  NoteInside(paths_->after(number), flow.to_node);
  control_->Begin(flow, &flow.pace);
  SetRateWindow(&flow);
  HostAt(flow.node);
  HostAt(flow.to_node);
  return number;
}

bool Hosts::Numbers(std::uint32_t number, std::int64_t bytes) const {
  const std::int64_t packets = (bytes - 1) / settings_.payload + 1;
  return packets <= std::int64_t{std::numeric_limits<std::uint32_t>::max()} - flows_[number].end;
}

void Hosts::Post(SimTime now, std::uint32_t number, const Transfer& transfer) {
  Flow& flow = flows_[number];
  if (transfer.creator >= sequences_.size()) sequences_.resize(std::size_t{transfer.creator} + 1);
  const std::uint64_t sequence = sequences_[transfer.creator]++;
  if (transfer.bytes == 0) {
    SimTime latency = 0;
    const Paths::Way& way = paths_->way(number, 0);
    for (std::uint32_t h = 0; h < way.hops; ++h) {
      latency += fabric_->port(paths_->link(way.first + h)).latency;
    }
    for (const std::uint32_t l : paths_->before(number)) latency += fabric_->port(l).latency;
    for (const std::uint32_t l : paths_->after(number)) latency += fabric_->port(l).latency;
    done.Push({now + latency, sequence, transfer.creator, transfer.id});
    return;
  }
  const std::int64_t payload = settings_.payload;
  const auto packets = static_cast<std::uint32_t>((transfer.bytes + payload - 1) / payload);
  if (!HasWork(&flow)) {
    flow.begun = now;
    if (settings_.control->credit) TopUp(&flow);
  }
  flow.cls = static_cast<std::uint8_t>(kClasses - 1 - std::min<int>(transfer.priority, 2));
  flow.messages.Push({flow.end, packets, transfer.bytes, sequence, transfer.creator, transfer.id});
  flow.end += packets;
  ++unfinished_;
  Watch(&flow, now);
  lanes_.Begin(flow.lane, &disturbed_);
  for (const std::uint32_t lane : disturbed_) Disturb(lane, now);
  disturbed_.clear();
  if (flow.waiting) return;  // for its turn
  HostAt(flow.node).fresh.push_back({transfer.creator, sequence, number});
  fabric_->Wake(flow.node, now);
}

// A window beside the rate, where the run asks for one.
void Hosts::SetRateWindow(Flow* flow) const {
  if (!settings_.rate_window) return;
  const auto line = static_cast<double>(flow->line_Bps);
  const bool varies = settings_.rate_window_varies && flow->pace.rate_Bps > 0;
  flow->pace.window = flow->bdp() * (varies ? std::min(flow->pace.rate_Bps / line, 1.0) : 1);
}

// A sender that had nothing left has asked for no more: it begins again with what may be under way
// before the first pull.
void Hosts::TopUp(Flow* flow) {
  const std::int64_t room = (settings_.window - flow->in_flight) / flow->packet_bytes;
  if (room <= std::int64_t{flow->credit}) return;
  flow->unasked += static_cast<std::uint32_t>(room) - flow->credit;
  flow->credit = static_cast<std::uint32_t>(room);
}

std::int32_t Hosts::PacketBytes(Flow* flow, std::uint32_t number) {
  Ring<Message>& messages = flow->messages;
  std::uint32_t i =
      std::min<std::uint32_t>(flow->at_message, static_cast<std::uint32_t>(messages.size()) - 1);
  while (i > 0 && number < messages[i].first) --i;
  while (number >= messages[i].first + messages[i].packets) ++i;
  flow->at_message = i;
  const Message& m = messages[i];
  const std::int64_t before = std::int64_t{number - m.first} * settings_.payload;
  const std::int64_t bytes = std::min<std::int64_t>(settings_.payload, m.bytes - before);
  return static_cast<std::int32_t>(bytes) + settings_.header;
}

// ---- turns ----

void Hosts::Run(std::uint32_t node, SimTime now, SimTime until) {
  arrived_.clear();
  pauses_.clear();
  fabric_->TakeArrivals(node, until, &arrived_, &pauses_);
  Host& host = HostAt(node);
  for (const HostPort& port : host.ports) fabric_->FetchPort(port.link);
  for (const std::uint32_t link : host.inside) fabric_->FetchPort(link);
  for (const Passing& passing : arrived_) {
    const char* flow = reinterpret_cast<const char*>(&flows_[fabric_->pool()[passing.packet].flow]);
    for (std::size_t at = 0; at < sizeof(Flow); at += 64) __builtin_prefetch(flow + at);
  }
  std::size_t packet = 0, pause = 0;
  for (;;) {
    for (; pause < pauses_.size() && pauses_[pause].time <= now; ++pause) {
      fabric_->TakePause(pauses_[pause]);
    }
    for (; packet < arrived_.size() && arrived_[packet].at <= now; ++packet) {
      Take(node, arrived_[packet].packet, now);
    }
    Turn(&host, now);
    SimTime next = OwnTurn(host);
    if (packet < arrived_.size()) next = std::min(next, arrived_[packet].at);
    if (pause < pauses_.size()) next = std::min(next, pauses_[pause].time);
    if (next >= until) return fabric_->Wake(node, std::min(next, fabric_->NextArrival(node)));
    now = next;
  }
}

// A packet that has come to the host.
void Hosts::Take(std::uint32_t node, std::uint32_t number, SimTime now) {
  const Packet packet = fabric_->pool()[number];
  if (packet.hop + 1 < packet.hops) {
    return fabric_->Forward(node, number, paths_->link(packet.path + packet.hop));
  }
  fabric_->pool().Free(number);
  switch (packet.kind) {
    case Kind::kData:
      return OnData(packet, now);
    case Kind::kHeader:
      return OnHeader(packet, now);
    case Kind::kAck:
      return OnAck(packet, now);
    case Kind::kNack:
      return OnNack(packet, now);
    case Kind::kPull:
      return OnPull(packet, now);
  }
}

// What the host does at `now`, once it has taken what came.
void Hosts::Turn(Host* turning, SimTime now) {
  Host& host = *turning;
  ++fabric_->totals().turns;
  for (const std::uint32_t lane : disturbed_) Disturb(lane, now);
  disturbed_.clear();
  GivePulls(&host, now);
  std::ranges::sort(host.fresh, [](const Fresh& a, const Fresh& b) {
    return a.creator != b.creator ? a.creator < b.creator : a.sequence < b.sequence;
  });
  for (const Fresh& fresh : host.fresh) {
    EndStretch(&PortOf(&flows_[fresh.flow]), now);
    MakeReady(&flows_[fresh.flow], now);
  }
  host.fresh.clear();
  for (HostPort& port : host.ports) ServePort(&port, now);
}

// The host's next turn, unless something comes before.
SimTime Hosts::OwnTurn(const Host& host) {
  SimTime next = kNever;
  if (!host.creditors.empty()) next = std::min(next, host.next_pull);
  for (const HostPort& port : host.ports) {
    const Port& link = fabric_->port(port.link);
    bool ready = false;
    for (std::size_t c = 0; c < kClasses; ++c) {
      ready = ready || ((link.paused >> c & 1) == 0 && !port.ready[c].empty());
    }
    if ((link.waiting & ~link.paused) != 0) next = std::min(next, link.free);
    if (port.held != kNone) {
      next = std::min(next, std::max(link.free, port.held_until));
    } else if (ready) {
      next = std::min(next, link.free);
    }
    if (!port.late.empty()) next = std::min(next, std::max(link.free, port.late.front().time));
  }
  return next;
}

void Hosts::ServePort(HostPort* port, SimTime now) {
  const Port& link = fabric_->port(port->link);
  while (link.free <= now) {
    EndStretch(port, now);
    while (!port->late.empty() && port->late.front().time <= now) {
      const std::uint32_t number = port->late.front().flow;
      std::pop_heap(port->late.begin(), port->late.end());
      port->late.pop_back();
      port->ready[flows_[number].cls].Push(number);
    }
    if (fabric_->ServeQueued(port->link, now, 1)) continue;
    // What passes through, or answers within its class, takes turns with the host's own packets.
    if (port->transit_next && fabric_->ServeQueued(port->link, now, kClasses)) {
      port->transit_next = false;
    } else if (SendFromReady(port, now)) {
      port->transit_next = true;
    } else if (!fabric_->ServeQueued(port->link, now, kClasses)) {
      return;
    }
  }
}

// The flow stands aside until `time`.
void Hosts::Delay(HostPort* port, const Flow& flow, SimTime time) {
  port->late.push_back({time, flow.flow});
  std::push_heap(port->late.begin(), port->late.end());
}

// The packet that was waited for, unless it has to go on waiting.
bool Hosts::SendHeld(HostPort* port, SimTime now) {
  Flow& flow = flows_[port->held];
  if ((fabric_->port(port->link).paused >> flow.cls & 1) != 0) {
    port->held = kNone;
    Delay(port, flow, port->held_until);
    return false;
  }
  if (port->held_until > now) return false;
  port->held = kNone;
  flow.waiting = false;
  if (!MaySend(&flow)) return false;
  Send(port, &flow, now);
  MakeReady(&flow, now);
  return true;
}

bool Hosts::SendFromReady(HostPort* port, SimTime now) {
  if (port->held != kNone && SendHeld(port, now)) return true;
  for (std::size_t c = 1; c < kClasses && port->held == kNone; ++c) {
    if ((fabric_->port(port->link).paused >> c & 1) != 0) continue;
    if (SendStretch(port, c, now)) return true;
    while (!port->ready[c].empty()) {
      Flow& flow = flows_[port->ready[c].front()];
      port->ready[c].Pop();
      if (!MaySend(&flow)) {
        flow.waiting = false;
        continue;
      }
      const std::uint32_t number = flow.again.empty() ? flow.next : flow.again.front();
      const std::int32_t bytes = PacketBytes(&flow, number);
      // A flow that has just begun waits for its first packet, others go meanwhile. Once a packet
      // is read in its turn, it is the next.
      const SimTime earliest = std::max(flow.begun + FetchTime(flow, bytes), flow.due);
      if (!flow.fetched && earliest > now) {
        Delay(port, flow, earliest);
        continue;
      }
      const SimTime ready = flow.fetched ? now : Fetch(&flow, now, bytes);
      flow.fetched = true;
      if (ready > now) {
        port->held = flow.flow;
        port->held_until = ready;
        return false;
      }
      flow.waiting = false;
      Send(port, &flow, now);
      MakeReady(&flow, now);
      return true;
    }
  }
  return false;
}

// From its GPU to its NIC.
SimTime Hosts::FetchTime(const Flow& flow, std::int32_t bytes) {
  return bytes == flow.packet_bytes ? flow.fetch_time : FetchTimeOf(flow, bytes);
}

SimTime Hosts::FetchTimeOf(const Flow& flow, std::int32_t bytes) {
  SimTime time = 0;
  for (const std::uint32_t l : paths_->before(flow.flow)) {
    Port& port = fabric_->port(l);
    time += port.latency + fabric_->ServiceTime(port, bytes);
  }
  return time;
}

// When the packet is at the NIC, read from its GPU as early as the buffer for one packet allows.
SimTime Hosts::Fetch(Flow* flow, SimTime now, std::int32_t bytes) {
  return Cross(paths_->before(flow->flow), std::max(now - FetchTime(*flow, bytes), flow->begun),
               bytes);
}

SimTime Hosts::Cross(std::span<const std::uint32_t> links, SimTime at, std::int32_t bytes) {
  for (const std::uint32_t l : links) {
    Port& port = fabric_->port(l);
    const SimTime begin = std::max(at, free_[l]);
    fabric_->CountUse(l, begin, 0, 1, bytes);
    free_[l] = begin + fabric_->ServiceTime(port, bytes);
    at = free_[l] + port.latency;
  }
  return at;
}

// ---- one flow ----

bool Hosts::HasWork(Flow* flow) {
  while (!flow->again.empty() &&
         (flow->again.front() < flow->una || flow->acked.Has(flow->again.front()))) {
    flow->again.Pop();
  }
  return !flow->again.empty() || flow->next < flow->end;
}

bool Hosts::MaySend(Flow* flow) {
  if (!HasWork(flow)) return false;
  if (settings_.control->credit) return flow->credit > 0;
  if (flow->in_flight == 0) return true;
  return static_cast<double>(flow->in_flight + flow->packet_bytes) <= flow->pace.window;
}

Hosts::HostPort& Hosts::PortOf(Flow* flow) {
  Host& host = hosts_[host_of_[flow->node]];
  if (host.ports.size() == 1) return host.ports.front();
  const std::uint32_t link = paths_->link(paths_->way(flow->flow, flow->entropy).first);
  return *std::ranges::find_if(host.ports, [&](const HostPort& p) { return p.link == link; });
}

void Hosts::MakeReady(Flow* flow, SimTime now) {
  if (flow->waiting || !MaySend(flow)) return;
  flow->waiting = true;
  flow->fetched = false;
  if (settings_.balance != Balance::kEcmp) {
    flow->entropy = NextEntropy(flow, now);
    paths_->FetchAhead(flow->flow, flow->entropy);
  }
  HostPort& port = PortOf(flow);
  if (flow->due > now) {
    Delay(&port, *flow, flow->due);
  } else {
    port.ready[flow->cls].Push(flow->flow);
  }
}

void Hosts::Send(HostPort* port, Flow* flow, SimTime now) {
  const bool repeated = !flow->again.empty();
  const std::uint32_t number = repeated ? flow->again.front() : flow->next;
  if (repeated) {
    flow->again.Pop();
    ++flow->repeated;
    ++fabric_->totals().retransmissions;
  } else {
    ++flow->next;
  }
  Packet p;
  p.bytes = PacketBytes(flow, number);
  control_->OnSend(*flow, now, p.bytes, &flow->pace);
  SetRateWindow(flow);
  const Message& message = flow->messages[flow->at_message];
  const Paths::Way& way = paths_->way(flow->flow, flow->entropy);
  p.sent = now;
  p.at = now;
  p.flow = flow->flow;
  p.number = number;
  paths_->Send(way, &p);
  p.extra = flow->unasked;
  p.entropy = static_cast<std::uint16_t>(flow->entropy);
  p.cls = flow->cls;
  if (number + 1 == message.first + message.packets) p.flags = kLastOfMessage;
  if (settings_.control->telemetry) p.note = fabric_->NewNote();
  flow->in_flight += p.bytes;
  flow->last_sent = now;
  if (settings_.control->credit) --flow->credit;
  if (settings_.ack_every > 1 && !MaySend(flow)) p.flags |= kAckNow;
  if (flow->pace.rate_Bps > 0) {
    const double wait = static_cast<double>(p.bytes) / flow->pace.rate_Bps * 1e12;
    flow->due = std::max(flow->due, now) + RoundToPs(wait);
  }
  ++fabric_->totals().data_packets;
  if (!flow->armed) Arm(flow, now);
  if (lanes_.alone(flow->lane)) {
    lanes_.Send(flow->lane, p, (p.flags & kLastOfMessage) != 0);
  } else {
    fabric_->Serve(port->link, fabric_->AddPacket(p), now);
  }
}

void Hosts::SendBack(const Packet& cause, Kind kind, std::uint32_t number, std::uint32_t extra,
                     SimTime now) {
  const Paths::Way& way = paths_->back(cause.flow);
  Packet p;
  p.kind = kind;
  p.at = now;
  p.sent = cause.sent;
  p.flow = cause.flow;
  p.number = number;
  p.extra = extra;
  paths_->Send(way, &p);
  p.entropy = cause.entropy;
  p.note = cause.note;
  p.bytes = kControlBytes;
  p.cls = settings_.control_first ? 0 : flows_[cause.flow].cls;
  if ((cause.flags & kMarked) != 0) p.flags = kMarkEcho;
  fabric_->Enqueue(fabric_->AddPacket(p), now, way.link);
}

void Hosts::GivePulls(Host* host, SimTime now) {
  while (!host->creditors.empty() && host->next_pull <= now) {
    Flow& flow = flows_[host->creditors.front()];
    host->creditors.Pop();
    if (flow.owed == 0) continue;
    --flow.owed;
    Packet cause;
    cause.flow = flow.flow;
    SendBack(cause, Kind::kPull, flow.expected, ++flow.pulls, now);
    if (flow.owed > 0) host->creditors.Push(flow.flow);
    // 0.99 of the rate of the link that leads here.
    const SimTime packet = TransferTime(settings_.packet_bytes(), flow.line_Bps);
    host->next_pull = now + packet + packet / 99;
  }
}

}  // namespace orrery::network::packet
