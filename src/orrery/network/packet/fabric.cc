#include "orrery/network/packet/fabric.h"

#include <algorithm>
#include <tuple>

#include "orrery/base/check.h"
#include "orrery/base/rng.h"
#include "orrery/base/text.h"
#include "orrery/network/packet/pint_code.h"

namespace orrery::network::packet {
namespace {

constexpr std::size_t kAhead = 4;   // arrivals whose ports are fetched ahead
constexpr int kThresholdShift = 3;  // PFC's alpha 1/8 (HPCC's ns-3, for ports at the NIC's rate)
constexpr std::int64_t kReserve = 4096;  // bytes of an ingress and class, likewise
constexpr std::uint8_t Bit(int cls) { return static_cast<std::uint8_t>(1u << cls); }

std::int64_t QueuedData(const Port& port) {
  std::int64_t data = 0;
  for (int c = 1; c < kClasses; ++c) data += port.queued[static_cast<std::size_t>(c)];
  return data;
}

}  // namespace

Status Fabric::Setup(const cluster::Cluster& cluster, const Settings& settings, Paths* paths) {
  *this = Fabric();
  settings_ = settings;
  paths_ = paths;
  const std::span<const cluster::Link> links = cluster.links();
  ports_.resize(links.size());
  use_.resize(links.size());
  counts_.ports.resize(links.size());
  ecn_min_.resize(links.size());
  ecn_max_.resize(links.size());
  nodes_.resize(cluster.vertices());
  if (settings.control->codes) utilisation_.resize(links.size());
  // What lies below the fabric's switches is a host's, or never sees a packet.
  const std::size_t first_switch = cluster.vertices() - cluster.switches();
  for (std::size_t v = first_switch; v < nodes_.size(); ++v) nodes_[v].host = false;
  const auto fits = [](double bytes) { return static_cast<std::int64_t>(bytes + 0.5); };
  for (std::size_t i = 0; i < links.size(); ++i) {
    const cluster::Link& link = links[i];
    Port& p = ports_[i];
    p.bandwidth_Bps = link.bandwidth_Bps;
    p.latency = link.latency;
    p.from = link.from, p.to = link.to;
    const double speed =
        static_cast<double>(link.bandwidth_Bps) / static_cast<double>(settings.nic_Bps);
    ecn_min_[i] = fits(static_cast<double>(settings.ecn_min) * speed);
    ecn_max_[i] = fits(static_cast<double>(settings.ecn_max) * speed);
    if (!cluster.direct() && cluster::IsLocal(link.kind)) continue;
    if (link.latency <= 0) {
      return InvalidInput("network packet needs a latency above 0 on every link; '{}' has none",
                          cluster.link_name(LinkId(i)));
    }
    const double flying = 2 * ToSeconds(link.latency) * static_cast<double>(link.bandwidth_Bps);
    p.headroom_limit = fits(flying) + 3 * std::int64_t{settings.packet_bytes()};
    Node& to = nodes_[link.to];
    to.batch = std::min(to.batch, link.latency);
    to.buffer += settings.buffer_per_port;
    to.shared += settings.buffer_per_port - p.headroom_limit - kReserve;
    if (settings.pfc) nodes_[link.from].batch = std::min(nodes_[link.from].batch, link.latency);
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
        cluster.vertex_name(links[i].to), HumanBytes(ports_[i].headroom_limit + kReserve));
  }
  return {};
}

// ---- batches ----

// Fills arrivals_ with what comes to the node before `until`, in order.
void Fabric::Collect(Node* node, SimTime until) {
  arrivals_.clear();
  for (std::size_t k = 0; k < node->carrying.size(); ++k) {
    if (k + kAhead < node->carrying.size()) {
      __builtin_prefetch(&ports_[node->carrying[k + kAhead]].wire);
    }
    const std::uint32_t link = node->carrying[k];
    const Ring<Packet>& wire = ports_[link].wire;
    for (std::uint32_t i = 0; i < wire.size() && wire[i].at < until; ++i) {
      if (!node->host) paths_->FetchAhead(wire[i].path + wire[i].hop + 1);
      arrivals_.push_back({wire[i].at, link, i});
    }
  }
  for (std::uint32_t i = 0; i < node->pauses.size(); ++i) {
    if (node->pauses[i].time < until) arrivals_.push_back({node->pauses[i].time, kNone, i});
  }
  const auto before = [&](const Arrival& a, const Arrival& b) {
    if (a.time != b.time) return a.time < b.time;
    if (a.link != b.link) return a.link < b.link;
    if (a.link != kNone) return a.index < b.index;
    const Pause &p = node->pauses[a.index], &q = node->pauses[b.index];
    return std::tie(p.port, p.cls, a.index) < std::tie(q.port, q.cls, b.index);
  };
  if (!std::is_sorted(arrivals_.begin(), arrivals_.end(), before)) {
    std::sort(arrivals_.begin(), arrivals_.end(), before);
  }
}

// Forgets what Collect found, once it has been worked through.
void Fabric::DropTaken(Node* node) {
  bool paused = false;
  for (const Arrival& a : arrivals_) {
    if (a.link == kNone) {
      node->pauses[a.index].time = kNever;
      paused = true;
    } else {
      ports_[a.link].wire.Pop();
    }
  }
  if (paused) std::erase_if(node->pauses, [](const Pause& p) { return p.time == kNever; });
  std::erase_if(node->carrying, [&](std::uint32_t link) {
    if (!ports_[link].wire.empty()) return false;
    ports_[link].listed = false;
    return true;
  });
}

// The port that an arrival leaves by lies anywhere in memory.
void Fabric::FetchAhead(const Arrival& arrival) const {
  if (arrival.link == kNone) return;
  const Packet& packet = ports_[arrival.link].wire[arrival.index];
  const std::uint32_t out = paths_->link(packet.path + packet.hop + 1);
  const char* port = reinterpret_cast<const char*>(&ports_[out]);
  for (std::size_t at = 0; at < sizeof(Port); at += 64) __builtin_prefetch(port + at);
  __builtin_prefetch(&use_[out]);
}

void Fabric::RunSwitch(std::uint32_t number, SimTime now) {
  Node& node = nodes_[number];
  ++counts_.batches;
  const SimTime until = now + node.batch;
  Collect(&node, until);
  for (std::size_t i = 0; i < arrivals_.size(); ++i) {
    if (i + kAhead < arrivals_.size()) FetchAhead(arrivals_[i + kAhead]);
    const Arrival& a = arrivals_[i];
    RunDue(&node, a.time);
    if (a.link == kNone) {
      TakePause(node.pauses[a.index]);
    } else {
      Forward(number, ports_[a.link].wire[a.index], a.link);
    }
  }
  RunDue(&node, until - 1);
  DropTaken(&node);
  Wake(number, NextWork(node));
}

SimTime Fabric::NextWork(const Node& node) const {
  SimTime next = node.due.empty() ? kNever : node.due.front().time;
  for (const std::uint32_t link : node.carrying) {
    next = std::min(next, ports_[link].wire.front().at);
  }
  for (const Pause& pause : node.pauses) next = std::min(next, pause.time);
  return next;
}

SimTime Fabric::NextArrival(std::uint32_t node) const { return NextWork(nodes_[node]); }

void Fabric::TakeArrivals(std::uint32_t number, SimTime now, std::vector<Packet>* out) {
  Node& node = nodes_[number];
  Collect(&node, now + 1);
  for (const Arrival& a : arrivals_) {
    if (a.link == kNone) {
      TakePause(node.pauses[a.index]);
    } else {
      out->push_back(ports_[a.link].wire[a.index]);
    }
  }
  DropTaken(&node);
}

// All services of the node that begin by `until`.
void Fabric::RunDue(Node* node, SimTime until) {
  while (!node->due.empty() && node->due.front().time <= until) {
    const Due due = node->due.front();
    std::pop_heap(node->due.begin(), node->due.end());
    node->due.pop_back();
    ports_[due.port].in_heap = false;
    if (ServeQueued(due.port, due.time, kClasses) && NextClass(ports_[due.port]) < kClasses) {
      Schedule(node, due.port, ports_[due.port].free);
    }
  }
}

void Fabric::Schedule(Node* node, std::uint32_t port, SimTime time) {
  if (ports_[port].in_heap) return;
  ports_[port].in_heap = true;
  node->due.push_back({time, port});
  std::push_heap(node->due.begin(), node->due.end());
}

// ---- lanes that were alone ----

bool Fabric::Idle(std::uint32_t link) const {
  const Port& p = ports_[link];
  return p.wire.empty() && p.paused == 0 && p.pausing == 0 &&
         std::ranges::all_of(p.queue, [](const Ring<Packet>& q) { return q.empty(); }) &&
         std::ranges::none_of(nodes_[p.from].pauses,
                              [&](const Pause& pause) { return pause.port == link; });
}

void Fabric::Count(std::uint32_t link, SimTime first, SimTime step, std::uint32_t count,
                   std::int32_t bytes) {
  counts_.hops += count;
  ports_[link].served += count;
  ports_[link].sent += std::int64_t{bytes} * count;
  CountUse(link, first, step, count, bytes);
}

void Fabric::CountUse(std::uint32_t link, SimTime first, SimTime step, std::uint32_t count,
                      std::int32_t bytes) {
  const SimTime service = ServiceTime(&ports_[link], bytes);
  use_[link].bytes += std::int64_t{bytes} * count;
  use_[link].busy += service * count;
  if (!log_.on()) return;
  log_.AddBytes(link, first, first + step * (count - 1) + service, std::int64_t{bytes} * count);
}

void Fabric::PutOnWire(const Packet& packet) {
  const std::uint32_t link = paths_->link(packet.path + packet.hop);
  Port& port = ports_[link];
  port.wire.Push(packet);
  if (!port.listed) {
    port.listed = true;
    nodes_[port.to].carrying.push_back(link);
  }
  Wake(port.to, packet.at);
}

void Fabric::PutInQueue(const Packet& packet, SimTime due) {
  const std::uint32_t in = paths_->link(packet.path + packet.hop);
  Packet p = packet;
  ++p.hop;
  const std::uint32_t out = paths_->link(p.path + p.hop);
  Node& node = nodes_[ports_[out].from];
  p.at = due;
  if (!AdmitLossless(&node, p, in)) return Drop(out, p);
  node.used += p.bytes;
  counts_.largest_buffer = std::max(counts_.largest_buffer, node.used);
  Enqueue(p, due, out);
  Schedule(&node, out, due);
  Wake(ports_[out].from, due);
}

// ---- a packet at a switch ----

void Fabric::Forward(std::uint32_t number, const Packet& packet, std::uint32_t link) {
  Packet p = packet;
  ++p.hop;
  const std::uint32_t out = settings_.balance == Balance::kAdaptive && p.kind == Kind::kData
                                ? Choose(number, &p)
                                : paths_->link(p.path + p.hop);
  Accept(&nodes_[number], p, out, link);
}

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
    packet->path = way.first, packet->hops = way.hops;
  }
  return best;
}

// A packet for the node's link `out`, which came by `in`.
void Fabric::Accept(Node* node, Packet packet, std::uint32_t out, std::uint32_t in) {
  Port& port = ports_[out];
  const SimTime now = packet.at;
  const bool lossless = settings_.pfc && packet.cls > 0;
  const bool idle = port.free <= now && !port.in_heap && (port.paused & Bit(packet.cls)) == 0 &&
                    NextClass(port) == kClasses;
  if (idle && port.queued[packet.cls] == 0) return Serve(out, packet, now);
  if (lossless ? !AdmitLossless(node, packet, in) : !MakeRoom(node, out, &packet)) {
    return Drop(out, packet);
  }
  if (Counts(packet)) node->used += packet.bytes;
  counts_.largest_buffer = std::max(counts_.largest_buffer, node->used);
  Enqueue(packet, now, out);
  if (!node->host && (port.paused & Bit(packet.cls)) == 0)
    Schedule(node, out, std::max(port.free, now));
}

void Fabric::Drop(std::uint32_t out, const Packet& packet) {
  ++counts_.ports[out].drops;
  if (packet.note != kNone && settings_.control->telemetry) telemetry_.Free(packet.note);
}

// Without PFC: what does not fit is trimmed (then true: the header fits) or lost.
bool Fabric::MakeRoom(Node* node, std::uint32_t out, Packet* packet) {
  Port& port = ports_[out];
  const std::int64_t left = node->buffer - node->used;
  const std::int64_t limit = settings_.queue > 0 ? settings_.queue : left;
  if (packet->cls == 0) {
    // Headers and acknowledgements: as many bytes as data may queue, twice.
    return port.queued[0] + packet->bytes <= 2 * limit && packet->bytes <= left;
  }
  if (QueuedData(port) + packet->bytes <= limit && packet->bytes <= left) return true;
  if (!settings_.trimming || packet->kind != Kind::kData) return false;
  ++counts_.ports[out].trims;
  Ring<Packet>& queue = port.queue[packet->cls];
  const bool newest = settings_.control->trims_newest && !queue.empty() &&
                      queue.back().bytes >= packet->bytes &&
                      (HashCombine(out, packet->number ^ packet->flow) & 1) != 0;
  Packet trimmed = newest ? queue.back() : *packet;
  trimmed.kind = Kind::kHeader;
  trimmed.cls = 0;
  if (newest) {
    // The queue's newest gives way, the packet takes its place.
    node->used += packet->bytes - trimmed.bytes;
    port.queued[packet->cls] += packet->bytes - trimmed.bytes;
    const SimTime at = packet->at;
    queue.back() = *packet;
    trimmed.at = at;
  }
  trimmed.bytes = kControlBytes;
  *packet = trimmed;
  return port.queued[0] + packet->bytes <= 2 * limit && packet->bytes <= node->buffer - node->used;
}

// With PFC: counts the packet for its ingress, and pauses that at the threshold. False if even the
// headroom is full, which it never is.
bool Fabric::AdmitLossless(Node* node, const Packet& packet, std::uint32_t in) {
  Port& from = ports_[in];
  const auto c = static_cast<std::size_t>(packet.cls);
  bool pause = false;
  if (settings_.pfc_xoff > 0) {
    from.ingress[c] += packet.bytes;
    pause = from.ingress[c] > settings_.pfc_xoff;
  } else {
    const auto over = [&] {
      return std::max<std::int64_t>(from.ingress[c] - from.headroom[c] - kReserve, 0);
    };
    const auto threshold = [&] {
      return std::max<std::int64_t>(node->shared - node->shared_used, 0) >> kThresholdShift;
    };
    const std::int64_t was = over();
    from.ingress[c] += packet.bytes;
    const std::int64_t more = over() - was;
    if (over() > threshold() && more > 0) {
      from.headroom[c] += packet.bytes;
      if (from.headroom[c] > from.headroom_limit) {
        from.headroom[c] -= packet.bytes;
        from.ingress[c] -= packet.bytes;
        return false;
      }
      pause = true;
    } else {
      node->shared_used += more;
      pause = over() > 0 && over() >= threshold();
    }
  }
  if (pause && (from.pausing & Bit(packet.cls)) == 0) SendPause(in, packet.cls, true, packet.at);
  return true;
}

// The packet's service begins: it leaves the node's buffer.
void Fabric::Release(std::uint32_t number, const Packet& packet, SimTime now) {
  if (packet.hop == 0) return;
  Node& node = nodes_[number];
  if (Counts(packet)) node.used -= packet.bytes;
  if (!settings_.pfc || packet.cls == 0) return;
  const std::uint32_t in = paths_->link(packet.path + packet.hop - 1);
  Port& from = ports_[in];
  const auto c = static_cast<std::size_t>(packet.cls);
  const auto over = [&] {
    return std::max<std::int64_t>(from.ingress[c] - from.headroom[c] - kReserve, 0);
  };
  bool resume = false;
  if (settings_.pfc_xoff > 0) {
    from.ingress[c] -= packet.bytes;
    resume = from.ingress[c] < settings_.pfc_xon;
  } else {
    const std::int64_t was = over();
    from.headroom[c] -= std::min<std::int64_t>(from.headroom[c], packet.bytes);
    from.ingress[c] -= packet.bytes;
    node.shared_used += over() - was;
    const std::int64_t threshold =
        std::max<std::int64_t>(node.shared - node.shared_used, 0) >> kThresholdShift;
    resume = from.headroom[c] == 0 &&
             (over() == 0 || over() + 2 * std::int64_t{settings_.packet_bytes()} <= threshold);
  }
  if (resume && (from.pausing & Bit(packet.cls)) != 0) SendPause(in, packet.cls, false, now);
}

// ---- pauses ----

void Fabric::SendPause(std::uint32_t in, std::uint8_t cls, bool on, SimTime now) {
  Port& from = ports_[in];
  from.pausing = static_cast<std::uint8_t>(from.pausing ^ Bit(cls));
  Node& sender = nodes_[from.from];
  sender.pauses.push_back({now + from.latency, in, cls, on});
  Wake(from.from, now + from.latency);
}

void Fabric::TakePause(const Pause& pause) {
  Port& port = ports_[pause.port];
  PacketPort& count = counts_.ports[pause.port];
  const std::uint8_t before = port.paused;
  port.paused =
      static_cast<std::uint8_t>(pause.on ? before | Bit(pause.cls) : before & ~Bit(pause.cls));
  if (pause.on) {
    ++count.pauses;
    if (before == 0) count.paused_since = pause.time;
    return;
  }
  if (before != 0 && port.paused == 0) {
    count.paused += pause.time - count.paused_since;
    count.paused_since = -1;
  }
  Node& node = nodes_[port.from];
  if (!node.host && NextClass(port) < kClasses) {
    Schedule(&node, pause.port, std::max(port.free, pause.time));
  }
}

void Fabric::Finish(SimTime now) {
  for (PacketPort& p : counts_.ports) {
    if (p.paused_since < 0) continue;
    p.paused += std::max<SimTime>(now - p.paused_since, 0);
    p.paused_since = -1;
  }
}

std::vector<std::uint32_t> Fabric::PauseCycle() const {
  // A paused link with something queued waits for the links behind the packets it sent: an edge
  // from each such link to those that hold bytes of it. Depth first, links by number.
  const std::size_t n = ports_.size();
  std::vector<std::vector<std::uint32_t>> waits(n);
  for (std::uint32_t out = 0; out < n; ++out) {
    if (ports_[out].paused == 0) continue;
    for (int c = 1; c < kClasses; ++c) {
      const Ring<Packet>& queue = ports_[out].queue[static_cast<std::size_t>(c)];
      if ((ports_[out].paused & Bit(c)) == 0) continue;
      for (std::size_t i = 0; i < queue.size(); ++i) {
        if (queue[i].hop == 0) continue;
        const std::uint32_t in = paths_->link(queue[i].path + queue[i].hop - 1);
        if ((ports_[in].paused & Bit(c)) == 0) continue;
        if (std::ranges::find(waits[in], out) == waits[in].end()) waits[in].push_back(out);
      }
    }
  }
  std::vector<std::uint8_t> colour(n, 0);  // 1: on the way, 2: done
  std::vector<std::uint32_t> way;
  for (std::uint32_t start = 0; start < n; ++start) {
    if (colour[start] != 0 || waits[start].empty()) continue;
    std::vector<std::pair<std::uint32_t, std::size_t>> stack = {{start, 0}};
    way = {start};
    colour[start] = 1;
    while (!stack.empty()) {
      auto& [at, next] = stack.back();
      if (next == waits[at].size()) {
        colour[at] = 2;
        way.pop_back();
        stack.pop_back();
        continue;
      }
      const std::uint32_t to = waits[at][next++];
      if (colour[to] == 1) return {std::ranges::find(way, to), way.end()};
      if (colour[to] != 0) continue;
      colour[to] = 1;
      way.push_back(to);
      stack.push_back({to, 0});
    }
  }
  return {};
}

// ---- service ----

int Fabric::NextClass(const Port& port) const {
  for (int c = 0; c < kClasses; ++c) {
    if (!port.queue[static_cast<std::size_t>(c)].empty() && (port.paused & Bit(c)) == 0) return c;
  }
  return kClasses;
}

void Fabric::Enqueue(const Packet& packet, SimTime now, std::uint32_t out) {
  Port& port = ports_[out];
  port.queue[packet.cls].Push(packet);
  port.queue[packet.cls].back().at = now;
  port.queued[packet.cls] += packet.bytes;
  if (packet.cls == 0) return;
  const std::int64_t data = QueuedData(port);
  PacketPort& count = counts_.ports[out];
  if (data > count.longest_queue) count.longest_queue = data, count.longest_at = now;
  if (queues_.on()) queues_.Note(out, now, data - packet.bytes, data);
}

bool Fabric::ServeQueued(std::uint32_t number, SimTime now, int below) {
  Port& port = ports_[number];
  const int c = NextClass(port);
  if (c >= below) return false;
  Ring<Packet>& queue = port.queue[static_cast<std::size_t>(c)];
  const Packet packet = queue.front();
  if (c > 0 && queues_.on()) {
    const std::int64_t data = QueuedData(port);
    queues_.Note(number, now, data, data - packet.bytes);
  }
  queue.Pop();
  port.queued[static_cast<std::size_t>(c)] -= packet.bytes;
  Release(port.from, packet, now);
  Serve(number, packet, now);
  return true;
}

bool Fabric::Marks(std::uint32_t number, std::int64_t queue) {
  if (queue <= ecn_min_[number]) return false;
  if (queue >= ecn_max_[number]) return true;
  const double share = static_cast<double>(queue - ecn_min_[number]) /
                       static_cast<double>(ecn_max_[number] - ecn_min_[number]);
  return ToUnit(HashCombine(number, ports_[number].served)) < share * settings_.ecn_most;
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

void Fabric::Serve(std::uint32_t number, Packet packet, SimTime now) {
  Port& port = ports_[number];
  const SimTime service = ServiceTime(&port, packet.bytes);
  const bool data = packet.kind == Kind::kData;
  if (data) {
    const std::int64_t queue = port.queued[packet.cls];
    if (settings_.ecn && !nodes_[port.from].host && Marks(number, queue)) {
      if ((packet.flags & kMarked) == 0) ++counts_.ports[number].marks;
      packet.flags |= kMarked;
    }
    if (settings_.control->telemetry && packet.note != kNone) {
      Record& record = telemetry_[packet.note];
      if (record.hops < Record::kHops) {
        record.hop[static_cast<std::size_t>(record.hops++)] = {now, port.sent, queue,
                                                               port.bandwidth_Bps};
      }
    }
    if (settings_.control->codes) NoteUtilisation(number, queue, now, &packet);
  } else {
    ++counts_.control_hops;
  }
  Count(number, now, 0, 1, packet.bytes);
  SimTime end = now + service;
  SimTime ready = end;
  if (settings_.cut_through) {
    const SimTime head = ServiceTime(&port, std::min(packet.bytes, kControlBytes));
    // The last byte left the link before at `came`; it goes on a head's time after at the earliest.
    if (packet.hop > 0) {
      Port& before = ports_[paths_->link(packet.path + packet.hop - 1)];
      const SimTime lag = ServiceTime(&before, packet.bytes) -
                          ServiceTime(&before, std::min(packet.bytes, kControlBytes));
      if (!nodes_[port.from].host) end = std::max(end, packet.at + lag + head);
    }
    ready = nodes_[port.to].host ? end : now + head;
  }
  port.free = end;
  packet.at = ready + port.latency;
  port.wire.Push(packet);
  if (!port.listed) {
    port.listed = true;
    nodes_[port.to].carrying.push_back(number);
  }
  Wake(port.to, packet.at);
}

}  // namespace orrery::network::packet
