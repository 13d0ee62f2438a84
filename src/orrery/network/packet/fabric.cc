#include "orrery/network/packet/fabric.h"

#include <algorithm>
#include <utility>

#include "orrery/base/check.h"
#include "orrery/base/rng.h"
#include "orrery/base/text.h"
#include "orrery/network/packet/pint_code.h"

namespace orrery::network::packet {

Status Fabric::Setup(const cluster::Cluster& cluster, const Settings& settings, Paths* paths) {
  *this = Fabric();
  settings_ = settings;
  packet_bytes_ = settings.packet_bytes();
  paths_ = paths;
  const std::span<const cluster::Link> links = cluster.links();
  ports_.resize(links.size());
  observed_ = settings.control->telemetry || settings.control->codes;
  counts_.ports.resize(links.size());
  ecn_min_.resize(links.size());
  ecn_max_.resize(links.size());
  nodes_.resize(cluster.vertices());
  if (settings.control->codes) utilisation_.resize(links.size());
  // What lies below the fabric's switches is a host's, or never sees a packet.
  const std::size_t first_switch = cluster.vertices() - cluster.switches();
  for (std::size_t v = first_switch; v < nodes_.size(); ++v) nodes_[v].host = false;
  if (settings.pfc) {
    came_.resize(links.size());
    ingress_.resize(links.size());
  }
  const auto rounded = [](double bytes) { return static_cast<std::int64_t>(bytes + 0.5); };
  for (std::size_t i = 0; i < links.size(); ++i) {
    const cluster::Link& link = links[i];
    Port& p = ports_[i];
    p.bandwidth_Bps = link.bandwidth_Bps;
    p.latency = link.latency;
    p.full_time = TransferTime(packet_bytes_, p.bandwidth_Bps);
    p.control_time = TransferTime(kControlBytes, p.bandwidth_Bps);
    p.from = link.from, p.to = link.to;
    ++nodes_[link.from].ports;
    const double speed =
        static_cast<double>(link.bandwidth_Bps) / static_cast<double>(settings.nic_Bps);
    ecn_min_[i] = rounded(static_cast<double>(settings.ecn_min) * speed);
    ecn_max_[i] = rounded(static_cast<double>(settings.ecn_max) * speed);
    if (!cluster.direct() && cluster::IsLocal(link.kind)) continue;
    if (link.latency <= 0) {
      return InvalidInput("network packet needs a latency above 0 on every link; '{}' has none",
                          cluster.link_name(LinkId(i)));
    }
    const double flying = 2 * ToSeconds(link.latency) * static_cast<double>(link.bandwidth_Bps);
    const std::int64_t headroom = rounded(flying) + 3 * std::int64_t{packet_bytes_};
    if (settings.pfc) ingress_[i].headroom_limit = headroom;
    Node& to = nodes_[link.to];
    to.batch = std::min(to.batch, link.latency);
    to.buffer += settings.buffer_per_port;
    to.shared += settings.buffer_per_port - headroom - kReserve;
    if (settings.pfc) nodes_[link.from].batch = std::min(nodes_[link.from].batch, link.latency);
  }
  std::uint32_t leaving = 0;
  for (Node& node : nodes_) node.first = std::exchange(leaving, leaving + node.ports);
  leaving_.resize(links.size());
  for (std::uint32_t l = 0; l < links.size(); ++l) {
    leaving_[nodes_[links[l].from].first + paths->slot(l)] = l;
  }
  for (Node& node : nodes_) {
    if (settings.buffer == 0 || node.host) continue;
    node.shared += settings.buffer - node.buffer;
    node.buffer = settings.buffer;
  }
  if (!settings.pfc || settings.pfc_xoff > 0) return {};
  for (std::size_t i = 0; i < links.size(); ++i) {
    const Node& to = nodes_[links[i].to];
    if (to.host || to.shared > 0) continue;
    const bool whole = settings.buffer > 0;
    return InvalidInput(
        "packet.{}: {} is less than PFC needs at '{}': its reserve and headroom ({} a port) and "
        "something to share",
        whole ? "buffer" : "buffer_per_port",
        HumanBytes(whole ? settings.buffer : settings.buffer_per_port),
        cluster.vertex_name(links[i].to), HumanBytes(ingress_[i].headroom_limit + kReserve));
  }
  return {};
}

// ---- lanes that were alone ----

bool Fabric::Idle(std::uint32_t link) const {
  const Port& p = ports_[link];
  return p.paused == 0 && ingress_[link].pausing == 0 && p.waiting == 0 &&
         std::ranges::find(nodes_[p.to].inbox, link, &Passing::link) == nodes_[p.to].inbox.end() &&
         std::ranges::none_of(nodes_[p.from].pauses,
                              [&](const Pause& pause) { return pause.port == link; });
}

void Fabric::Count(std::uint32_t link, SimTime first, SimTime step, std::uint32_t count,
                   std::int32_t bytes) {
  totals().hops += count;
  ports_[link].served += count;
  CountUse(link, first, step, count, bytes);
}

void Fabric::CountUse(std::uint32_t link, SimTime first, SimTime step, std::uint32_t count,
                      std::int32_t bytes) {
  Port& port = ports_[link];
  const SimTime service = ServiceTime(port, bytes);
  port.use.bytes += std::int64_t{bytes} * count;
  port.use.busy += service * count;
  if (!log_.on()) return;
  log_.AddBytes(link, first, first + step * (count - 1) + service, std::int64_t{bytes} * count);
}

void Fabric::PutOnWire(const Packet& packet) {
  const std::uint32_t link = paths_->link(packet.path + packet.hop);
  PushOnWire(&workers_.front(), link, ports_[link], pool_.Add(packet), packet);
}

void Fabric::PutInQueue(const Packet& packet, SimTime due) {
  const std::uint32_t in = paths_->link(packet.path + packet.hop);
  const std::uint32_t number = pool_.Add(packet);
  Packet& p = pool_[number];
  ++p.hop;
  const std::uint32_t out = paths_->link(p.path + p.hop);
  Node& node = nodes_[ports_[out].from];
  p.at = due;
  Worker* w = &workers_.front();
  if (!AdmitLossless(w, &node, p, in)) return Drop(w, out, number);
  Hold(w, &node, p.bytes, due, in);
  EnqueueOn(out, &ports_[out], number, &p, due);
  Schedule(*w, &node, out, &ports_[out], due);
  Wake(ports_[out].from, due);
}

// ---- a packet at a switch ----

// Of the flow's ways that come through here at this hop, the one with the shortest queue; the first
// of equals, counted from the packet's own.
std::uint32_t Fabric::Choose(std::uint32_t node, Packet* packet) const {
  std::uint32_t best = paths_->link(packet->path + packet->hop);
  const auto length = [&](std::uint32_t link) {
    const Port& p = ports_[link];
    const SimTime busy = std::max<SimTime>(p.free - packet->at, 0);
    return TransferTime(p.queued[packet->cls], p.bandwidth_Bps) + busy +
           ((p.paused & Bit(packet->cls)) != 0 ? kSecond : 0);
  };
  SimTime least = length(best);
  const int ways = paths_->ways(packet->flow);
  for (int k = 1; k < ways && least > 0; ++k) {
    const auto entropy = static_cast<std::uint32_t>((packet->number + k) % ways);
    const Paths::Way& way = paths_->way(packet->flow, entropy);
    if (packet->hop >= way.hops) continue;
    const std::uint32_t link = paths_->link(way.first + packet->hop);
    if (link == best || ports_[link].from != node) continue;
    const SimTime other = length(link);
    if (other >= least) continue;
    least = other, best = link;
    paths_->Send(way, packet);
  }
  return best;
}

void Fabric::Drop(Worker* w, std::uint32_t out, std::uint32_t packet) {
  ++counts_.ports[out].drops;
  const std::uint32_t note = pool_[packet].note;
  const bool noted = note != kNone && settings_.control->telemetry;
  if (w != &workers_.front()) {
    w->lost.push_back(packet);
    if (noted) w->unread.push_back(note);
    return;
  }
  if (noted) telemetry_.Free(note);
  pool_.Free(packet);
}

// Without PFC: what does not fit is trimmed (then true: the header fits) or lost.
bool Fabric::MakeRoom(Worker* w, Node* node, std::uint32_t out, std::uint32_t in,
                      std::uint32_t* packet) {
  Port& port = ports_[out];
  const Packet& p = pool_[*packet];
  const SimTime now = p.at;
  const std::int64_t left = node->buffer - node->used;
  const std::int64_t limit = settings_.queue > 0 ? settings_.queue : left;
  if (p.cls == 0) {
    // Headers and acknowledgements: as many bytes as data may queue, twice.
    return port.queued[0] + p.bytes <= 2 * limit && p.bytes <= left;
  }
  if (QueuedData(port) + p.bytes <= limit && p.bytes <= left) return true;
  if (!settings_.trimming || p.kind != Kind::kData) return false;
  ++counts_.ports[out].trims;
  Ring<std::uint32_t>& queue = port.queue[p.cls];
  const bool newest = settings_.control->trims_newest && !queue.empty() &&
                      pool_[queue.back()].bytes >= p.bytes &&
                      (HashCombine(out, p.number ^ p.flow) & 1) != 0;
  if (newest) {
    // The queue's newest gives way, the packet takes its place.
    const std::int64_t more = p.bytes - pool_[queue.back()].bytes;
    Hold(w, node, more, now, in);
    port.queued[p.cls] += more;
    std::swap(queue.back(), *packet);
  }
  Packet& header = pool_[*packet];
  header.kind = Kind::kHeader;
  header.cls = 0;
  header.at = now;
  header.bytes = kControlBytes;
  return port.queued[0] + header.bytes <= 2 * limit && header.bytes <= node->buffer - node->used;
}

// ---- service: what every packet goes through at every port ----

inline void Fabric::PushOnWire(Worker* w, std::uint32_t number, const Port& port,
                               std::uint32_t packet, const Packet& p) {
  const std::size_t next = p.hop + std::size_t{1};
  std::uint16_t slot = 0;
  if (next < kSlots) {
    slot = p.slots[next];
  } else if (next < p.hops) {
    slot = paths_->slot(paths_->link(p.path + static_cast<std::uint32_t>(next)));
  }
  if (open_) {
    LettersTo(w, port.to, p.at).packets.push_back({p.at, number, packet, slot});
    return;
  }
  nodes_[port.to].inbox.push_back({p.at, number, packet, slot});
  Wake(port.to, p.at);
}

// The node's buffer has so many bytes more since a packet came by `link`, or, kNone, was served.
inline void Fabric::Hold(Worker* w, Node* node, std::int64_t bytes, SimTime now,
                         std::uint32_t link) {
  node->used += bytes;
  if (!w->by_port) {
    w->totals.largest_buffer = std::max(w->totals.largest_buffer, node->used);
  } else if (w->steps_on) {
    w->held += bytes;
    w->most_held = std::max(w->most_held, w->held);
    w->steps.push_back({now, link == kNone ? 0 : link + 1, bytes});
  }
}

inline void Fabric::Schedule(const Worker& w, Node* node, std::uint32_t number, Port* port,
                             SimTime time) {
  if (port->due != kNever) return;
  port->due = time;
  if (w.by_port) return;
  node->due.push_back({time, number});
  std::push_heap(node->due.begin(), node->due.end());
}

inline void Fabric::EnqueueOn(std::uint32_t number, Port* port, std::uint32_t packet, Packet* p,
                              SimTime now) {
  p->at = now;
  port->queue[p->cls].Push(packet);
  port->queued[p->cls] += p->bytes;
  port->waiting |= Bit(p->cls);
  if (p->cls == 0) return;
  const std::int64_t data = QueuedData(*port);
  if (data > port->longest_queue) {
    port->longest_queue = data;
    counts_.ports[number].longest_queue = data;
    counts_.ports[number].longest_at = now;
  }
  if (queues_.on()) queues_.Note(number, now, data - p->bytes, data);
}

inline bool Fabric::Marks(std::uint32_t number, const Port& port, std::int64_t queue) const {
  if (queue <= ecn_min_[number]) return false;
  if (queue >= ecn_max_[number]) return true;
  const double share = static_cast<double>(queue - ecn_min_[number]) /
                       static_cast<double>(ecn_max_[number] - ecn_min_[number]);
  return ToUnit(HashCombine(number, port.served)) < share * settings_.ecn_most;
}

inline void Fabric::ServeOn(Worker* w, std::uint32_t number, Port* port, std::uint32_t packet,
                            Packet* p, SimTime now) {
  const SimTime service = ServiceTime(*port, p->bytes);
  if (p->kind == Kind::kData) {
    const std::int64_t queue = port->queued[p->cls];
    if (settings_.ecn && !nodes_[port->from].host && Marks(number, *port, queue)) {
      if ((p->flags & kMarked) == 0) ++counts_.ports[number].marks;
      p->flags |= kMarked;
    }
    if (observed_) Observe(number, port, queue, now, p);
  } else {
    ++w->totals.control_hops;
  }
  ++w->totals.hops;
  ++port->served;
  port->use.bytes += p->bytes;
  port->use.busy += service;
  if (log_.on()) log_.AddBytes(number, now, now + service, p->bytes);
  port->free = now + service;
  const SimTime ready = settings_.cut_through ? CutThrough(port, *p, now) : port->free;
  p->at = ready + port->latency;
  PushOnWire(w, number, *port, packet, *p);
}

inline bool Fabric::ServeQueuedOn(Worker* w, std::uint32_t number, Port* port, SimTime now,
                                  int below) {
  const int c = NextClass(*port);
  if (c >= below) return false;
  Ring<std::uint32_t>& queue = port->queue[static_cast<std::size_t>(c)];
  const std::uint32_t packet = queue.front();
  Packet& p = pool_[packet];
  if (c > 0 && queues_.on()) {
    const std::int64_t data = QueuedData(*port);
    queues_.Note(number, now, data, data - p.bytes);
  }
  queue.Pop();
  if (queue.empty()) port->waiting &= static_cast<std::uint8_t>(~Bit(c));
  port->queued[static_cast<std::size_t>(c)] -= p.bytes;
  if (p.hop > 0) {
    // It leaves the node's buffer.
    Node& node = nodes_[port->from];
    if (Counts(p)) Hold(w, &node, -p.bytes, now, kNone);
    if (settings_.pfc && c > 0) ReleaseLossless(w, &node, p, now);
  }
  ServeOn(w, number, port, packet, &p, now);
  return true;
}

inline void Fabric::ServeDue(Worker* w, std::uint32_t number, Port* port) {
  const SimTime now = std::exchange(port->due, kNever);
  if (!ServeQueuedOn(w, number, port, now, kClasses) || NextClass(*port) == kClasses) return;
  Schedule(*w, &nodes_[port->from], number, port, port->free);
}

// A packet for the node's link `out`, which came by `in`.
inline void Fabric::Accept(Worker* w, Node* node, std::uint32_t packet, std::uint32_t out,
                           Port* port, std::uint32_t in) {
  Packet* p = &pool_[packet];
  const SimTime now = p->at;
  const bool open = (port->paused & Bit(p->cls)) == 0;
  if (port->free <= now && port->due == kNever && open && NextClass(*port) == kClasses) {
    return ServeOn(w, out, port, packet, p, now);
  }
  const bool lossless = settings_.pfc && p->cls > 0;
  if (lossless ? !AdmitLossless(w, node, *p, in) : !MakeRoom(w, node, out, in, &packet)) {
    return Drop(w, out, packet);
  }
  p = &pool_[packet];  // or its header, or another's that gave way
  if (Counts(*p)) Hold(w, node, p->bytes, now, in);
  EnqueueOn(out, port, packet, p, now);
  if (!node->host && open) Schedule(*w, node, out, port, std::max(port->free, now));
}

void Fabric::RunPort(Worker* w, Node* node, std::uint32_t out, std::span<const Passing> arrivals,
                     SimTime until) {
  Port* port = &ports_[out];
  for (const Passing& a : arrivals) {
    while (port->due <= a.at) ServeDue(w, out, port);
    ++pool_[a.packet].hop;
    Accept(w, node, a.packet, out, port, a.link);
  }
  while (port->due < until) ServeDue(w, out, port);
  if (port->due != kNever) node->due.push_back({port->due, out});
}

// All services of the node that begin by `until`.
void Fabric::RunDue(Worker* w, Node* node, SimTime until) {
  while (!node->due.empty() && node->due.front().time <= until) {
    const Due due = node->due.front();
    std::pop_heap(node->due.begin(), node->due.end());
    node->due.pop_back();
    ServeDue(w, due.port, &ports_[due.port]);
  }
}

void Fabric::ForwardOn(Worker* w, std::uint32_t node, std::uint32_t packet, std::uint32_t link) {
  Packet& p = pool_[packet];
  ++p.hop;
  const std::uint32_t out = settings_.balance == Balance::kAdaptive && p.kind == Kind::kData
                                ? Choose(node, &p)
                                : paths_->link(p.path + p.hop);
  Accept(w, &nodes_[node], packet, out, &ports_[out], link);
}

void Fabric::Forward(std::uint32_t node, std::uint32_t packet, std::uint32_t link) {
  ForwardOn(&workers_.front(), node, packet, link);
}

void Fabric::Serve(std::uint32_t number, std::uint32_t packet, SimTime now) {
  ServeOn(&workers_.front(), number, &ports_[number], packet, &pool_[packet], now);
}

bool Fabric::ServeQueued(std::uint32_t number, SimTime now, int below) {
  return ServeQueuedOn(&workers_.front(), number, &ports_[number], now, below);
}

void Fabric::Enqueue(std::uint32_t packet, SimTime now, std::uint32_t out) {
  EnqueueOn(out, &ports_[out], packet, &pool_[packet], now);
}

// PINT: u = (T - tau)/T u + q tau/(B T^2) + bytes/(B T), tau the time since the last service.
void Fabric::NoteUtilisation(std::uint32_t number, std::int64_t queue, SimTime now,
                             Packet* packet) {
  Port& port = ports_[number];
  Utilisation& u = utilisation_[number];
  const double round = ToSeconds(settings_.base_rtt);
  const double tau = std::min(ToSeconds(now - u.last), round);
  const double pipe = static_cast<double>(port.bandwidth_Bps) * round;
  u.value = (round - tau) / round * u.value + static_cast<double>(queue) / pipe * tau / round +
            static_cast<double>(u.bytes) / pipe;
  u.last = now;
  u.bytes = packet->bytes;
  const std::uint32_t code = ToPintCode(u.value, ToUnit(HashCombine(number, port.served)));
  packet->note = packet->note == kNone ? code : std::max(packet->note, code);
}

// What data packets carry away of the port.
void Fabric::Observe(std::uint32_t number, Port* port, std::int64_t queue, SimTime now, Packet* p) {
  if (settings_.control->telemetry && p->note != kNone) {
    Record& record = telemetry_[p->note];
    if (record.hops < Record::kHops) {
      record.hop[static_cast<std::size_t>(record.hops++)] = {now, port->use.bytes, queue,
                                                             port->bandwidth_Bps};
    }
  }
  if (settings_.control->codes) NoteUtilisation(number, queue, now, p);
}

// When a packet whose service began `now` can go on: at a switch once its head is there. Its last
// byte goes on a head's time after it came at the earliest.
SimTime Fabric::CutThrough(Port* port, const Packet& p, SimTime now) const {
  const SimTime head = ServiceTime(*port, std::min(p.bytes, kControlBytes));
  if (p.hop > 0 && !nodes_[port->from].host) {
    const Port& before = ports_[paths_->link(p.path + p.hop - 1)];
    const SimTime lag =
        ServiceTime(before, p.bytes) - ServiceTime(before, std::min(p.bytes, kControlBytes));
    port->free = std::max(port->free, p.at + lag + head);
  }
  return nodes_[port->to].host ? port->free : now + head;
}

}  // namespace orrery::network::packet
