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

// Moves what comes to the node before `until` from its inbox to arrivals_, in no order.
void Fabric::Collect(Node* node, SimTime until) {
  arrivals_.clear();
  std::size_t left = 0;
  for (const Passing& passing : node->inbox) {
    if (passing.at < until) {
      pool_.FetchAhead(passing.packet);
      arrivals_.push_back(passing);
    } else {
      node->inbox[left++] = passing;
    }
  }
  node->inbox.resize(left);
  pauses_come_ = false;
  for (std::uint32_t i = 0; i < node->pauses.size(); ++i) {
    if (node->pauses[i].time >= until) continue;
    arrivals_.push_back({node->pauses[i].time, kNone, i, 0});
    pauses_come_ = true;
  }
}

// In the order of time; at an instant by link, pauses last.
void Fabric::SortArrivals(const Node& node) {
  const auto before = [&](const Passing& a, const Passing& b) {
    if (a.at != b.at) return a.at < b.at;
    if (a.link != b.link || a.link != kNone) return a.link < b.link;
    const Pause &p = node.pauses[a.packet], &q = node.pauses[b.packet];
    return std::tie(p.port, p.cls, a.packet) < std::tie(q.port, q.cls, b.packet);
  };
  if (!std::is_sorted(arrivals_.begin(), arrivals_.end(), before)) {
    std::sort(arrivals_.begin(), arrivals_.end(), before);
  }
}

// Forgets the pauses that Collect found.
void Fabric::DropPauses(Node* node) const {
  if (!pauses_come_) return;
  for (const Passing& a : arrivals_) {
    if (a.link == kNone) node->pauses[a.packet].time = kNever;
  }
  std::erase_if(node->pauses, [](const Pause& p) { return p.time == kNever; });
}

// The port that an arrival leaves by lies anywhere in memory.
void Fabric::FetchPort(std::uint32_t out) const {
  const char* port = reinterpret_cast<const char*>(&ports_[out]);
  const std::size_t size = settings_.pfc ? sizeof(Port) : offsetof(Port, bandwidth_Bps);
  for (std::size_t at = 0; at < size; at += 64) __builtin_prefetch(port + at);
}

// What a port serves first, once the port is at hand: where its queues go on and whom it sends to,
// and then the packets and the other end's inbox.
void Fabric::FetchQueues(std::uint32_t out) const {
  const Port& port = ports_[out];
  for (unsigned waiting = port.waiting; waiting != 0; waiting &= waiting - 1) {
    __builtin_prefetch(&port.queue[static_cast<std::size_t>(std::countr_zero(waiting))].front());
  }
  port.queue.back().FetchEnd();
  __builtin_prefetch(&nodes_[port.to]);
}

void Fabric::FetchQueued(std::uint32_t out) const {
  const Port& port = ports_[out];
  for (unsigned waiting = port.waiting; waiting != 0; waiting &= waiting - 1) {
    const Ring<std::uint32_t>& queue =
        port.queue[static_cast<std::size_t>(std::countr_zero(waiting))];
    for (std::size_t i = 0; i < std::min(queue.size(), kServedAhead); ++i) {
      pool_.FetchAhead(queue[i]);
    }
  }
  const std::vector<Passing>& inbox = nodes_[port.to].inbox;
  const char* end = reinterpret_cast<const char*>(inbox.data() + inbox.size());
  __builtin_prefetch(end);
  __builtin_prefetch(end + 64);
}

void Fabric::RunSwitch(std::uint32_t number, SimTime now) {
  Node& node = nodes_[number];
  ++counts_.batches;
  const SimTime until = now + node.batch;
  Collect(&node, until);
  const std::int64_t bytes = Sort(&node, until);
  if (PortsAreApart(node, bytes)) {
    RunPorts(&node, until, bytes);
  } else {
    SortArrivals(node);
    RunInOrder(&node, number, until);
  }
  DropPauses(&node);
  Wake(number, NextWork(node));
}

void Fabric::RunInOrder(Node* node, std::uint32_t number, SimTime until) {
  for (std::size_t i = 0; i < arrivals_.size(); ++i) {
    if (i + kAhead < arrivals_.size() && arrivals_[i + kAhead].link != kNone) {
      FetchPort(leaving_[node->first + arrivals_[i + kAhead].slot]);
    }
    const Passing& a = arrivals_[i];
    RunDue(node, a.at);
    if (a.link == kNone) {
      TakePause(node->pauses[a.packet]);
    } else {
      Forward(number, a.packet, a.link);
    }
  }
  RunDue(node, until - 1);
}

// Counts arrivals by port, finds the ports that have something to do, and has them fetched. Returns
// the bytes that come.
std::int64_t Fabric::Sort(Node* node, SimTime until) {
  const std::size_t ports = node->ports;
  first_.assign(ports + 1, 0);
  std::int64_t bytes = 0;
  for (const Passing& a : arrivals_) {
    if (a.link == kNone) continue;
    ++first_[a.slot + 1];
    bytes += pool_[a.packet].bytes;
  }
  active_.clear();
  for (const Due& due : node->due) {
    const std::uint32_t slot = paths_->slot(due.port);
    if (due.time < until && first_[slot + 1] == 0) active_.push_back(slot);
  }
  for (std::uint32_t s = 0; s < ports; ++s) {
    if (first_[s + 1] > 0) active_.push_back(s);
    first_[s + 1] += first_[s];
  }
  for (const std::uint32_t slot : active_) FetchPort(leaving_[node->first + slot]);
  return bytes;
}

// True if, whatever the order of so many bytes that come, nothing is dropped or trimmed for want of
// buffer, no link is paused or resumed, and no packet looks at several ports.
bool Fabric::PortsAreApart(const Node& node, std::int64_t bytes) {
  if (settings_.balance == Balance::kAdaptive || pauses_come_ || node.pausing > 0) return false;
  const std::int64_t left = node.buffer - node.used - bytes;  // at least
  // A queue may hold `left` bytes where none are named for it; it holds no more than the node.
  if (bytes + (settings_.queue > 0 ? 0 : node.used) > left) return false;
  if (!settings_.pfc) return true;
  for (const Passing& a : arrivals_) came_[a.link] = 0;
  for (const Passing& a : arrivals_) {
    came_[a.link] += pool_[a.packet].bytes;
    // Control messages are not among what the node holds.
    const Port& port = ports_[leaving_[node.first + a.slot]];
    if (settings_.queue == 0 && port.queued[0] + bytes > 2 * left) return false;
  }
  const std::int64_t threshold = settings_.pfc_xoff > 0
                                     ? settings_.pfc_xoff
                                     : kReserve + Threshold(node.shared - node.shared_used - bytes);
  for (const Passing& a : arrivals_) {
    const Port& from = ports_[a.link];
    for (std::size_t c = 1; c < kClasses; ++c) {
      if (from.headroom[c] > 0 || from.ingress[c] + came_[a.link] >= threshold) return false;
    }
  }
  return true;
}

// Every port by itself, its arrivals in order in sorted_.
void Fabric::RunPorts(Node* node, SimTime until, std::int64_t bytes) {
  sorted_.resize(arrivals_.size());
  next_.assign(first_.begin(), first_.end() - 1);
  for (const Passing& a : arrivals_) {
    // Each link's come in order: what is later than the newcomer moves up.
    std::uint32_t at = next_[a.slot]++;
    for (; at > first_[a.slot]; --at) {
      const Passing& b = sorted_[at - 1];
      if (b.at < a.at || (b.at == a.at && b.link < a.link)) break;
      sorted_[at] = b;
    }
    sorted_[at] = a;
  }
  for (const std::uint32_t slot : active_) FetchQueues(leaving_[node->first + slot]);
  for (const std::uint32_t slot : active_) FetchQueued(leaving_[node->first + slot]);
  by_port_ = true;
  steps_on_ = node->used + bytes > counts_.largest_buffer;
  const std::int64_t used = node->used;
  std::int64_t most = used;  // that the node held, at most
  std::erase_if(node->due, [&](const Due& due) {
    const std::uint32_t slot = paths_->slot(due.port);
    return due.time < until || first_[slot] < next_[slot];
  });
  for (const std::uint32_t slot : active_) {
    held_ = most_held_ = 0;
    RunPort(node, leaving_[node->first + slot],
            {sorted_.data() + first_[slot], next_[slot] - first_[slot]}, until);
    most += most_held_;
  }
  by_port_ = false;
  std::make_heap(node->due.begin(), node->due.end());
  if (most > counts_.largest_buffer) NoteLargest(used);
  steps_.clear();
}

// What the buffer held at most since it held `used`, from steps_.
void Fabric::NoteLargest(std::int64_t used) {
  std::stable_sort(steps_.begin(), steps_.end(), [](const BufferStep& a, const BufferStep& b) {
    return a.time != b.time ? a.time < b.time : a.order < b.order;
  });
  for (const BufferStep& step : steps_) {
    used += step.bytes;
    counts_.largest_buffer = std::max(counts_.largest_buffer, used);
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
  Node& node = nodes_[number];
  Collect(&node, until);
  SortArrivals(node);
  if (!pauses_come_) return packets->swap(arrivals_);
  for (const Passing& a : arrivals_) {
    if (a.link == kNone) {
      pauses->push_back(node.pauses[a.packet]);
    } else {
      packets->push_back(a);
    }
  }
  DropPauses(&node);
}

}  // namespace orrery::network::packet
