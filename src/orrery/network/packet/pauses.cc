// PFC: what an ingress has of the buffer, when its link pauses, and who waits for whom.
#include <algorithm>
#include <utility>

#include "orrery/network/packet/fabric.h"

namespace orrery::network::packet {

// With PFC: counts the packet for its ingress, and pauses that at the threshold. False if even the
// headroom is full, which it never is.
bool Fabric::AdmitLossless(Worker* w, Node* node, const Packet& packet, std::uint32_t in) {
  Ingress& from = ingress_[in];
  const auto c = static_cast<std::size_t>(packet.cls) - 1;
  bool pause = false;
  if (settings_.pfc_xoff > 0) {
    from.bytes[c] += packet.bytes;
    pause = from.bytes[c] > settings_.pfc_xoff;
  } else {
    const auto threshold = [&] { return Threshold(node->shared - node->shared_used); };
    const std::int64_t was = from.excess(c);
    from.bytes[c] += packet.bytes;
    const std::int64_t more = from.excess(c) - was;
    if (from.excess(c) > threshold() && more > 0) {
      from.headroom[c] += packet.bytes;
      if (from.headroom[c] > from.headroom_limit) {
        from.headroom[c] -= packet.bytes;
        from.bytes[c] -= packet.bytes;
        return false;
      }
      pause = true;
    } else {
      node->shared_used += more;
      pause = from.excess(c) > 0 && from.excess(c) >= threshold();
    }
  }
  if (pause && (from.pausing & Bit(packet.cls)) == 0) SendPause(w, in, packet.cls, true, packet.at);
  return true;
}

// The packet has left the node's buffer: its ingress has less, and may go on.
void Fabric::ReleaseLossless(Worker* w, Node* holder, const Packet& packet, SimTime now) {
  Node& node = *holder;
  const std::uint32_t in = paths_->link(packet.path + packet.hop - 1);
  Ingress& from = ingress_[in];
  const auto c = static_cast<std::size_t>(packet.cls) - 1;
  bool resume = false;
  if (settings_.pfc_xoff > 0) {
    from.bytes[c] -= packet.bytes;
    resume = from.bytes[c] < settings_.pfc_xon;
  } else {
    const std::int64_t was = from.excess(c);
    from.headroom[c] -= std::min<std::int64_t>(from.headroom[c], packet.bytes);
    from.bytes[c] -= packet.bytes;
    node.shared_used += from.excess(c) - was;
    const std::int64_t threshold = Threshold(node.shared - node.shared_used);
    resume = from.headroom[c] == 0 &&
             (from.excess(c) == 0 ||
              from.excess(c) + 2 * std::int64_t{settings_.packet_bytes()} <= threshold);
  }
  if (resume && (from.pausing & Bit(packet.cls)) != 0) SendPause(w, in, packet.cls, false, now);
}

// ---- pauses ----

void Fabric::SendPause(Worker* w, std::uint32_t in, std::uint8_t cls, bool on, SimTime now) {
  const Port& from = ports_[in];
  ingress_[in].pausing = static_cast<std::uint8_t>(ingress_[in].pausing ^ Bit(cls));
  nodes_[from.to].pausing += on ? 1 : -1;
  const Pause pause{now + from.latency, in, cls, on};
  if (open_) return LettersTo(w, from.from, pause.time).pauses.push_back(pause);
  nodes_[from.from].pauses.push_back(pause);
  Wake(from.from, pause.time);
}

void Fabric::TakePause(const Pause& pause) { TakePauseOn(&workers_.front(), pause); }

void Fabric::TakePauseOn(Worker* w, const Pause& pause) {
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
    Schedule(*w, &node, pause.port, &port, std::max(port.free, pause.time));
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
      const Ring<std::uint32_t>& queue = ports_[out].queue[static_cast<std::size_t>(c)];
      if ((ports_[out].paused & Bit(c)) == 0) continue;
      for (std::size_t i = 0; i < queue.size(); ++i) {
        const Packet& packet = pool_[queue[i]];
        if (packet.hop == 0) continue;
        const std::uint32_t in = paths_->link(packet.path + packet.hop - 1);
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

}  // namespace orrery::network::packet
