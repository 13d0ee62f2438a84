// A switch's turn: everything that comes before the batch ends, port by port or all in order.
//
// Ports of a switch meet in its buffer, its pauses and adaptive choices alone. Where none of these
// can matter before the batch ends, each port works through its own arrivals, one port after the
// other, and the outcome is that of all in order.
#include <algorithm>
#include <tuple>
#include <utility>

#include "orrery/network/packet/fabric.h"

namespace orrery::network::packet {
namespace {

constexpr std::size_t kServedAhead = 4;  // of a queue
constexpr std::size_t kAhead = 4;        // arrivals whose ports are fetched ahead

}  // namespace

// Moves what comes to the node before `until` from its inbox to w->arrivals, in no order.
void Fabric::Collect(Worker* w, std::uint32_t number, SimTime until) {
  OpenLetters(number);
  Node* node = &nodes_[number];
  w->arrivals.clear();
  std::size_t left = 0;
  for (const Passing& passing : node->inbox) {
    if (passing.at < until) {
      pool_.FetchAhead(passing.packet);
      w->arrivals.push_back(passing);
    } else {
      node->inbox[left++] = passing;
    }
  }
  node->inbox.resize(left);
  w->pauses_come = false;
  for (std::uint32_t i = 0; i < node->pauses.size(); ++i) {
    if (node->pauses[i].time >= until) continue;
    w->arrivals.push_back({node->pauses[i].time, kNone, i, 0});
    w->pauses_come = true;
  }
}

// In the order of time; at an instant by link, pauses last.
void Fabric::SortArrivals(Worker* w, const Node& node) {
  const auto before = [&](const Passing& a, const Passing& b) {
    if (a.at != b.at) return a.at < b.at;
    if (a.link != b.link || a.link != kNone) return a.link < b.link;
    const Pause &p = node.pauses[a.packet], &q = node.pauses[b.packet];
    return std::tie(p.port, p.cls, a.packet) < std::tie(q.port, q.cls, b.packet);
  };
  if (!std::is_sorted(w->arrivals.begin(), w->arrivals.end(), before)) {
    std::sort(w->arrivals.begin(), w->arrivals.end(), before);
  }
}

// Forgets the pauses that Collect found.
void Fabric::DropPauses(const Worker& w, Node* node) const {
  if (!w.pauses_come) return;
  for (const Passing& a : w.arrivals) {
    if (a.link == kNone) node->pauses[a.packet].time = kNever;
  }
  std::erase_if(node->pauses, [](const Pause& p) { return p.time == kNever; });
}

// The port that an arrival leaves by lies anywhere in memory.
void Fabric::FetchPort(std::uint32_t out) const {
  const char* port = reinterpret_cast<const char*>(&ports_[out]);
  for (std::size_t at = 0; at < sizeof(Port); at += 64) __builtin_prefetch(port + at);
}

// What a port serves first, once the port is at hand: where its queues go on and whom it sends to,
// and then the packets and the other end's inbox.
void Fabric::FetchQueues(const Worker& w, std::uint32_t out) const {
  const Port& port = ports_[out];
  for (unsigned waiting = port.waiting; waiting != 0; waiting &= waiting - 1) {
    __builtin_prefetch(&port.queue[static_cast<std::size_t>(std::countr_zero(waiting))].front());
  }
  port.queue.back().FetchEnd();
  __builtin_prefetch(open_ ? static_cast<const void*>(&w.outgoing[port.to]) : &nodes_[port.to]);
}

void Fabric::FetchQueued(const Worker& w, std::uint32_t out) const {
  const Port& port = ports_[out];
  for (unsigned waiting = port.waiting; waiting != 0; waiting &= waiting - 1) {
    const Ring<std::uint32_t>& queue =
        port.queue[static_cast<std::size_t>(std::countr_zero(waiting))];
    for (std::size_t i = 0; i < std::min(queue.size(), kServedAhead); ++i) {
      pool_.FetchAhead(queue[i]);
    }
  }
  const std::vector<Passing>& inbox = open_ ? w.outgoing[port.to].packets : nodes_[port.to].inbox;
  const char* end = reinterpret_cast<const char*>(inbox.data() + inbox.size());
  __builtin_prefetch(end);
  __builtin_prefetch(end + 64);
}

SimTime Fabric::RunSwitch(Worker* w, std::uint32_t number, SimTime now) {
  Node& node = nodes_[number];
  ++w->totals.batches;
  const SimTime until = std::min(now + node.batch, end_);
  Collect(w, number, until);
  const std::int64_t bytes = Sort(w, &node, until);
  if (PortsAreApart(*w, node, bytes)) {
    RunPorts(w, &node, until, bytes);
  } else {
    SortArrivals(w, node);
    RunInOrder(w, &node, until);
  }
  DropPauses(*w, &node);
  return NextWork(node);
}

void Fabric::RunInOrder(Worker* w, Node* node, SimTime until) {
  const auto number = static_cast<std::uint32_t>(node - nodes_.data());
  for (std::size_t i = 0; i < w->arrivals.size(); ++i) {
    if (i + kAhead < w->arrivals.size() && w->arrivals[i + kAhead].link != kNone) {
      FetchPort(leaving_[node->first + w->arrivals[i + kAhead].slot]);
    }
    const Passing& a = w->arrivals[i];
    RunDue(w, node, a.at);
    if (a.link == kNone) {
      TakePauseOn(w, node->pauses[a.packet]);
    } else {
      ForwardOn(w, number, a.packet, a.link);
    }
  }
  RunDue(w, node, until - 1);
}

// Counts arrivals by port, finds the ports that have something to do, and has them fetched. Returns
// the bytes that come.
std::int64_t Fabric::Sort(Worker* w, Node* node, SimTime until) {
  const std::size_t ports = node->ports;
  w->first.assign(ports + 1, 0);
  std::int64_t bytes = 0;
  for (const Passing& a : w->arrivals) {
    if (a.link == kNone) continue;
    ++w->first[a.slot + 1];
    bytes += pool_[a.packet].bytes;
  }
  w->active.clear();
  for (const Due& due : node->due) {
    const std::uint32_t slot = paths_->slot(due.port);
    if (due.time < until && w->first[slot + 1] == 0) w->active.push_back(slot);
  }
  for (std::uint32_t s = 0; s < ports; ++s) {
    if (w->first[s + 1] > 0) w->active.push_back(s);
    w->first[s + 1] += w->first[s];
  }
  for (const std::uint32_t slot : w->active) FetchPort(leaving_[node->first + slot]);
  return bytes;
}

// True if, whatever the order of so many bytes that come, nothing is dropped or trimmed for want of
// buffer, no link is paused or resumed, and no packet looks at several ports.
bool Fabric::PortsAreApart(const Worker& w, const Node& node, std::int64_t bytes) {
  if (settings_.balance == Balance::kAdaptive || w.pauses_come || node.pausing > 0) return false;
  const std::int64_t left = node.buffer - node.used - bytes;  // at least
  // A queue may hold `left` bytes where none are named for it; it holds no more than the node.
  if (bytes + (settings_.queue > 0 ? 0 : node.used) > left) return false;
  if (!settings_.pfc) return true;
  for (const Passing& a : w.arrivals) came_[a.link] = 0;
  for (const Passing& a : w.arrivals) {
    came_[a.link] += pool_[a.packet].bytes;
    // Control messages are not among what the node holds.
    const Port& port = ports_[leaving_[node.first + a.slot]];
    if (settings_.queue == 0 && port.queued[0] + bytes > 2 * left) return false;
  }
  const std::int64_t threshold = settings_.pfc_xoff > 0
                                     ? settings_.pfc_xoff
                                     : kReserve + Threshold(node.shared - node.shared_used - bytes);
  for (const Passing& a : w.arrivals) {
    const Ingress& from = ingress_[a.link];
    for (std::size_t c = 0; c + 1 < kClasses; ++c) {
      if (from.headroom[c] > 0 || from.bytes[c] + came_[a.link] >= threshold) return false;
    }
  }
  return true;
}

// Every port by itself, its arrivals in order in w->sorted.
void Fabric::RunPorts(Worker* w, Node* node, SimTime until, std::int64_t bytes) {
  w->sorted.resize(w->arrivals.size());
  w->next.assign(w->first.begin(), w->first.end() - 1);
  for (const Passing& a : w->arrivals) {
    // Each link's come in order: what is later than the newcomer moves up.
    std::uint32_t at = w->next[a.slot]++;
    for (; at > w->first[a.slot]; --at) {
      const Passing& b = w->sorted[at - 1];
      if (b.at < a.at || (b.at == a.at && b.link < a.link)) break;
      w->sorted[at] = b;
    }
    w->sorted[at] = a;
  }
  for (const std::uint32_t slot : w->active) FetchQueues(*w, leaving_[node->first + slot]);
  for (const std::uint32_t slot : w->active) FetchQueued(*w, leaving_[node->first + slot]);
  w->by_port = true;
  w->steps_on = node->used + bytes > w->totals.largest_buffer;
  const std::int64_t used = node->used;
  std::int64_t most = used;  // that the node held, at most
  std::erase_if(node->due, [&](const Due& due) {
    const std::uint32_t slot = paths_->slot(due.port);
    return due.time < until || w->first[slot] < w->next[slot];
  });
  for (const std::uint32_t slot : w->active) {
    w->held = w->most_held = 0;
    RunPort(w, node, leaving_[node->first + slot],
            {w->sorted.data() + w->first[slot], w->next[slot] - w->first[slot]}, until);
    most += w->most_held;
  }
  w->by_port = false;
  std::make_heap(node->due.begin(), node->due.end());
  if (most > w->totals.largest_buffer) NoteLargest(w, used);
  w->steps.clear();
}

// What the buffer held at most since it held `used`, from w->steps.
void Fabric::NoteLargest(Worker* w, std::int64_t used) {
  std::stable_sort(w->steps.begin(), w->steps.end(), [](const BufferStep& a, const BufferStep& b) {
    return a.time != b.time ? a.time < b.time : a.order < b.order;
  });
  for (const BufferStep& step : w->steps) {
    used += step.bytes;
    w->totals.largest_buffer = std::max(w->totals.largest_buffer, used);
  }
}

SimTime Fabric::NextWork(const Node& node) const {
  SimTime next = node.due.empty() ? kNever : node.due.front().time;
  for (const Passing& passing : node.inbox) next = std::min(next, passing.at);
  for (const Pause& pause : node.pauses) next = std::min(next, pause.time);
  return next;
}

SimTime Fabric::NextArrival(std::uint32_t node) const { return NextWork(nodes_[node]); }

void Fabric::TakeArrivals(std::uint32_t number, SimTime until, std::vector<Passing>* packets,
                          std::vector<Pause>* pauses) {
  Worker* w = &workers_.front();
  Node& node = nodes_[number];
  Collect(w, number, until);
  SortArrivals(w, node);
  if (!w->pauses_come) return packets->swap(w->arrivals);
  for (const Passing& a : w->arrivals) {
    if (a.link == kNone) {
      pauses->push_back(node.pauses[a.packet]);
    } else {
      packets->push_back(a);
    }
  }
  DropPauses(*w, &node);
}

}  // namespace orrery::network::packet
