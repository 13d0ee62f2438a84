// LogGOPS with joint endpoints: no topology, every pair of ranks alike. With s bytes of a message
// and e = max(s - 1, 0):
//   send     needs its cpu and nic; from its start t it holds the cpu for o + e·O and the nic for
//            g + e·G; the message's first byte arrives at t + o + L;
//   message  on arrival needs the cpu and nic of the sender's numbers at the receiver, whether a
//            receive was posted or not; from t it holds the cpu for o + max(e·O, e·G) and the nic
//            for g + e·G;
//   receive  takes no time by itself: it is posted once it is ready and what its cpu did when it
//            became ready is over.
// A send of at most S bytes is done at t + o; a longer one once message and receive have met. A
// receive is done when its message has been taken in.
//
// `receiver_bandwidth = false` charges no bandwidth at the receiver (as ATLAHS' copy of LogGOPSim
// does): a message arrives whole at t + o + e·O + L + e·G, holds the nic for g, then the matched
// receive's cpu for o + e·O; a long send is done when its receive is.
//
// What needs both a processor and an interface tries again when the later of the two is free, and
// keeps its place. Of two messages with the same two, the one that was made first then has them
// first: the others wait in a line, so that n messages at one interface cost O(n log n).
//
// Source: Hoefler, Schneider, Lumsdaine, "LogGOPSim", HPDC'10 (LSAP workshop); charging rules as
// spcl/LogGOPSim applies them. Finish times equal its own where it does not deadlock.
#include <algorithm>

#include "orrery/engine/general/loggops.h"
#include "orrery/engine/general/machine.h"

namespace orrery::engine::general {

// Whether `event`, which cannot have its processor and interface yet, waits behind one that was
// made before it; else it tries by itself.
bool Machine::LineUp(const Event& event, const Node& n, Cpu* c) {
  const bool arrives = event.step() == Step::kMessage;
  auto line = std::ranges::find_if(
      c->lines, [&](const Line& l) { return l.nic == n.nic && l.arrives == arrives; });
  if (line == c->lines.end()) {
    line = c->lines.insert(line, Line{.nic = n.nic, .arrives = arrives, .waiting = {}});
  }
  if (event.order() <= line->first) {
    line->first = event.order();
    return false;
  }
  line->waiting.push_back(event);
  std::ranges::push_heap(line->waiting, std::ranges::greater(), &Event::key);
  return true;
}

// `event` has its processor and interface, both until `free`: the next of its line tries then.
void Machine::LeaveLine(const Event& event, const Node& n, Cpu* c, SimTime free) {
  const bool arrives = event.step() == Step::kMessage;
  for (Line& line : c->lines) {
    if (line.nic != n.nic || line.arrives != arrives || line.first != event.order()) continue;
    line.first = ~std::uint64_t{0};
    if (line.waiting.empty()) return;
    std::ranges::pop_heap(line.waiting, std::ranges::greater(), &Event::key);
    const Event next = line.waiting.back();
    line.waiting.pop_back();
    line.first = next.order();
    return Push(next, free);
  }
}

void Machine::JointSend(const Event& event, const Node& n) {
  const std::uint32_t to = PeerOf(event.rank, n);
  if (to == Peers::kNobody) return FailNoPeer(event.rank, event.node);
  if (Near(event.rank, to)) return NearSend(event, n, to);
  Cpu& c = cpu(event.rank, n.cpu);
  Nic& own = nic(event.rank, n.nic);
  if (std::max(c.free, own.send_free) > event.time && LineUp(event, n, &c)) {
    return LeaveQueue(event, &c, c.free);
  }
  if (!TakeCpu(event, &c)) return;
  if (own.send_free > event.time) {
    LeaveQueue(event, &c, c.free);
    return Push(event, own.send_free);
  }
  const network::LogGops& p = in_.loggops;
  const std::int64_t size = AmountOf(event.rank, n);
  const SimTime gap = BytesTime(size, p.G_as), copy = BytesTime(size, p.O_as);
  const SimTime held = p.o + copy;
  ranks_[event.rank].held.send += held;
  ++messages_;
  bytes_ += size;
  own.send_free = event.time + p.g + gap;
  Started(event.rank, event.node, event.time);
  Emit(event.rank, n, event.time, event.time + held, 0, size, "loggops");
  const SimTime whole = p.receiver_bandwidth ? 0 : copy + gap;
  Push(Make(Step::kMessage, event.rank, event.node, to), event.time + p.o + p.L + whole);
  LeaveQueue(event, &c, event.time + held);
  LeaveLine(event, n, &c, std::max(c.free, own.send_free));
  // A rank is done once its processors are, as in LogGOPSim; O holds one beyond the send's end.
  Rank& own_rank = ranks_[event.rank];
  const auto k = static_cast<std::size_t>(own_rank.program->flat->instance(n).iteration);
  own_rank.ends[k] = std::max(own_rank.ends[k], event.time + held);
  if (size <= p.S) Finish(event.rank, event.node, event.time, event.time + p.o);
}

void Machine::JointReceive(const Event& event, const Node& n) {
  Started(event.rank, event.node, event.time);
  const std::uint32_t from = PeerOf(event.rank, n);
  if (from == Peers::kNobody) return FailNoPeer(event.rank, event.node);
  Matching::Item message;
  const Matching::Item own{.ready = event.time,
                           .node = event.node,
                           .source = from,
                           .tag = static_cast<std::uint32_t>(comm_of(n).tag)};
  if (!matching_.Receive(event.rank, own, &message)) return;
  ++unexpected_;
  JointMeet(event.rank, event.node, message.source, message.node, event.time, message.ready);
}

// The message of `send` and `receive` have met at `now`; it is taken in at `ready`.
void Machine::JointMeet(std::uint32_t rank, std::uint32_t receive, std::uint32_t source,
                        std::uint32_t send, SimTime now, SimTime ready) {
  const std::int64_t size = AmountOf(source, node_of(source, send));
  CheckLength(rank, receive, size);
  const bool near = Near(rank, source), copied = near && size <= in_.loggops.hosts.S;
  if (copied) return Finish(rank, receive, now, std::max(now, ready));
  if (near || !in_.loggops.receiver_bandwidth) {
    return Push(Make(Step::kTakeIn, rank, receive, send, source), std::max(now, ready));
  }
  if (size > in_.loggops.S) Finish(source, send, now, now);
  Finish(rank, receive, now, std::max(now, ready));
}

void Machine::JointArrive(const Event& event) {
  const Node& n = node_of(event.rank, event.node);
  const std::uint32_t to = event.a;
  if (Near(event.rank, to)) return NearArrive(event, n);
  const network::LogGops& p = in_.loggops;
  Nic& own = nic(to, n.nic);
  Cpu& c = cpu(to, n.cpu);
  SimTime ready = event.time + p.g;
  if (p.receiver_bandwidth) {
    if (std::max(c.free, own.receive_free) > event.time && LineUp(event, n, &c)) {
      return LeaveQueue(event, &c, c.free);
    }
    if (!TakeCpu(event, &c)) return;
    if (own.receive_free > event.time) {
      LeaveQueue(event, &c, c.free);
      return Push(event, own.receive_free);
    }
    const std::int64_t size = AmountOf(event.rank, n);
    const SimTime gap = BytesTime(size, p.G_as);
    const SimTime held = p.o + std::max(BytesTime(size, p.O_as), gap);
    ranks_[to].held.receive += held;
    own.receive_free = event.time + p.g + gap;
    ready = event.time + held;
    LeaveQueue(event, &c, ready);
    LeaveLine(event, n, &c, std::max(ready, own.receive_free));
  } else {
    if (own.receive_free > event.time) {
      if (!LineUp(event, n, &c)) Push(event, own.receive_free);
      return;
    }
    own.receive_free = ready;
    LeaveLine(event, n, &c, ready);
  }
  JointCame(event, n, ready);
}

// The message stands before its receiver, taken in at `ready`: it meets its receive, or waits.
void Machine::JointCame(const Event& event, const Node& n, SimTime ready) {
  Matching::Item receive;
  const Matching::Item message{.ready = ready,
                               .node = event.node,
                               .source = event.rank,
                               .tag = static_cast<std::uint32_t>(comm_of(n).tag)};
  if (!matching_.Message(event.a, message, &receive)) return;
  JointMeet(event.a, receive.node, event.rank, event.node, event.time, ready);
}

void Machine::JointTakeIn(const Event& event) {
  if (Near(event.rank, event.b)) return NearTakeIn(event);
  const Node& n = node_of(event.rank, event.node);
  Cpu& c = cpu(event.rank, n.cpu);
  if (!TakeCpu(event, &c)) return;
  const std::int64_t size = AmountOf(event.b, node_of(event.b, event.a));
  const SimTime held = in_.loggops.o + BytesTime(size, in_.loggops.O_as);
  ranks_[event.rank].held.receive += held;
  LeaveQueue(event, &c, event.time + held);
  if (size > in_.loggops.S) Finish(event.b, event.a, event.time, event.time + held);
  Finish(event.rank, event.node, event.time, event.time + held);
}

}  // namespace orrery::engine::general
