#include "orrery/engine/general/machine.h"

#include <algorithm>

#include "orrery/base/rng.h"
#include "orrery/base/text.h"
#include "orrery/engine/straight/inline_block.h"
#include "orrery/engine/work.h"

namespace orrery::engine::general {
namespace {

// Whether communication anywhere runs beside kernels of unknown end.
bool MaySlowKernels(const graph::Graph& graph) {
  bool kernels = false, beside = false;
  for (const graph::Block& block : graph.blocks) {
    kernels = kernels || !block.kernels.empty();
    for (const graph::Comm& c : block.comms) {
      beside = beside || (!c.blocking && !graph::IsPointToPoint(c.collective) &&
                          !graph::IsCopy(c.collective));
    }
  }
  return kernels && beside;
}

}  // namespace

Machine::Machine(const MachineInputs& in)
    : in_(in),
      graph_(*in.inputs->graph),
      transport_(in.transport),
      slowed_(MaySlowKernels(graph_)),
      host_scale_(1.0 / in.inputs->cluster->spec().cpu_relative_speed),
      launch_(in.inputs->compute->launch_latency()),
      peers_(graph_),
      matching_(WildRanks(graph_)) {
  ranks_.resize(in_.programs.size());
  std::size_t states = 0, iterations = 0;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    Rank& rank = ranks_[r];
    const FlatProgram& flat = *in_.programs[r].flat;
    rank.program = &in_.programs[r];
    rank.flat = &flat;
    rank.first = states;
    states += flat.size();
    iterations += static_cast<std::size_t>(rank.program->iterations);
    if (!rank.program->background) left_ += flat.size();
    stops_ = stops_ || rank.program->background;
  }
  states_.resize(states);
  ends_.resize(iterations, 0);
  lefts_.resize(iterations, 0);
  const FlatProgram* last = nullptr;
  std::vector<std::uint32_t> left;
  iterations = 0;
  for (Rank& rank : ranks_) {
    const FlatProgram& flat = *rank.flat;
    rank.ends = ends_.data() + iterations;
    rank.left = lefts_.data() + iterations;
    iterations += static_cast<std::size_t>(rank.program->iterations);
    if (&flat != last) left.assign(static_cast<std::size_t>(rank.program->iterations), 0);
    for (std::size_t i = 0; i < flat.size(); ++i) {
      const Node& n = flat.node(i);
      states_[rank.first + i].open = n.open;
      if (&flat == last) continue;
      ++left[static_cast<std::size_t>(flat.instance(n).iteration)];
      if (n.cpu != Node::kNone) cpus_each_ = std::max(cpus_each_, std::size_t{n.cpu} + 1);
      if (n.nic != Node::kNone) nics_each_ = std::max(nics_each_, std::size_t{n.nic} + 1);
    }
    std::ranges::copy(left, rank.left);
    last = &flat;
  }
  cpus_.resize(cpus_each_ * ranks_.size());
  if (in_.joint) hosts_ranks_ = static_cast<std::uint32_t>(in_.loggops.hosts.ranks);
  const std::size_t hosts = (ranks_.size() + hosts_ranks_ - 1) / hosts_ranks_;
  if (hosts_ranks_ > 1) memory_free_.resize(hosts);
  nics_.resize(nics_each_ * hosts);
  MakeGroups();
}

Status Machine::Run() {
  PostRoots();
  while (error_.ok() && !too_long_ && !(stops_ && left_ == 0)) {
    const SimTime queued = first_rank_ < first_.size() ? 0 : queue_.NextTime();
    const SimTime flying = transport_ == nullptr ? kNever : transport_->next_time();
    if (queued == kNever && flying == kNever) break;
    if (flying <= queued) {
      ended_.clear();
      // As far as nothing starts: a network may work ahead of its next event.
      const SimTime until = queued < kNever ? queued : std::max(flying, kMaxDuration);
      const SimTime now = transport_->AdvanceUntil(until, &ended_);
      now_ = now;
      for (const Transport::Ended& e : ended_) EndMeeting(e, now);
    } else {
      const Event event = NextEvent();
      now_ = event.time;
      Handle(event);
    }
    PostFreed();
  }
  ORRERY_RETURN_IF_ERROR(error_);
  if (transport_ != nullptr) ORRERY_RETURN_IF_ERROR(transport_->status());
  if (too_long_) {
    return Infeasible("the run takes longer than {}; are sizes and rates in the right unit?",
                      HumanTime(kMaxDuration));
  }
  Matching::Left waits;
  if (left_ > 0 || (!stops_ && matching_.FirstLeft(&waits))) return Stuck();
  if (transport_ != nullptr) events_ += transport_->events();
  for (Rank& rank : ranks_) {
    if (rank.program->iterations == 0 || rank.program->background) continue;
    Breakdown all = rank.account.Close(rank.ends[rank.program->iterations - 1]);
    for (std::size_t p = 0; p < kParts; ++p) rank.parts[p] = all[p] - rank.before[p];
  }
  return {};
}

void Machine::PostRoots() {
  first_.reserve(ranks_.size());
  for (std::uint32_t r = 0; r < ranks_.size() && error_.ok(); ++r) {
    first_.push_back({r, order_, first_nodes_.size()});
    for (const std::uint32_t node : ranks_[r].flat->roots()) {
      freed_.push_back({r, node, in_.delay[r]});
    }
    starting_ = true;
    PostFreed();
    starting_ = false;
    if (first_.back().begin == first_nodes_.size()) first_.pop_back();
  }
}

// The next of the first events or of the queue. REQUIRES: there is one.
Machine::Event Machine::NextEvent() {
  if (first_rank_ < first_.size()) {
    FirstEvents& f = first_[first_rank_];
    if (queue_.NextTime() > 0 || queue_.Top().order() > f.order) {
      const Event event{.key = f.order++ << 3 | static_cast<std::uint64_t>(Step::kBegin),
                        .node = first_nodes_[f.begin++],
                        .rank = f.rank};
      const bool more = first_rank_ + 1 < first_.size();
      if (f.begin == (more ? first_[first_rank_ + 1].begin : first_nodes_.size())) ++first_rank_;
      return event;
    }
  }
  const Event event = queue_.Top();
  queue_.Pop();
  return event;
}

void Machine::Push(Event event, SimTime time) {
  event.time = time;
  if (time > kMaxDuration) {
    too_long_ = true;
    return;
  }
  queue_.Push(event);
}

// Since when an event waits. Joint endpoints serve in the order in which events were made, as
// LogGOPSim does.
SimTime Machine::Since(const Event& event) const {
  if (in_.joint) return 0;
  if (event.step() == Step::kMessage) return meetings_[event.b].members[1].posted;
  return states_[ranks_[event.rank].first + event.node].ready;
}

// True if `event` may hold `c` now; else it waits. Of those that wait only the first stands in the
// queue.
bool Machine::TakeCpu(const Event& event, Cpu* c) {
  const Turn turn{Since(event), event.order()};
  const bool first = turn <= c->next;
  if (c->free <= event.time && (first || in_.joint)) return true;
  if (first) {
    c->next = turn;
    Push(event, c->free);
  } else {
    c->waiting.push_back(event);
    std::push_heap(c->waiting.begin(), c->waiting.end(),
                   [this](const Event& x, const Event& y) { return Before(y, x); });
  }
  return false;
}

// `event` waits for `c` no longer: it has it until `free`, or waits for a nic instead.
void Machine::LeaveQueue(const Event& event, Cpu* c, SimTime free) {
  c->free = free;
  if (c->next.order != event.order()) return;
  c->next = {};
  if (c->waiting.empty()) return;
  std::pop_heap(c->waiting.begin(), c->waiting.end(),
                [this](const Event& x, const Event& y) { return Before(y, x); });
  const Event first = c->waiting.back();
  c->waiting.pop_back();
  c->next = {Since(first), first.order()};
  Push(first, std::max(event.time, free));
}

void Machine::Finish(std::uint32_t r, std::uint32_t node, SimTime start, SimTime end) {
  Rank& rank = ranks_[r];
  const FlatProgram& flat = *rank.flat;
  const Node& n = flat.node(node);
  if (!rank.program->background) --left_;
  const auto k = static_cast<std::size_t>(flat.instance(n).iteration);
  rank.ends[k] = std::max(rank.ends[k], end);
  const std::uint64_t key = Mix64((std::uint64_t{n.call} << 32) + n.op + 0x0b5) | 1;
  rank.hash += key * (kStartWeight * static_cast<std::uint64_t>(start) +
                      kEndWeight * static_cast<std::uint64_t>(end));
  if (end >= kMaxDuration) {
    too_long_ = true;
    return;  // what follows would leave the clock
  }
  if (--rank.left[k] == 0 && static_cast<int>(k) + 2 == rank.program->iterations) {
    Push(Make(Step::kWindow, r, node), rank.ends[k]);
  }
  Release(r, node, end, false);
}

void Machine::Release(std::uint32_t r, std::uint32_t node, SimTime time, bool start) {
  const FlatProgram& flat = *ranks_[r].flat;
  const bool issues = flat.node(node).kind == NodeKind::kHost;
  for (const std::uint32_t edge : flat.edges(node)) {
    if (((edge & Node::kStartEdge) != 0) != start) continue;
    const std::uint32_t to = edge & ~Node::kStartEdge;
    NodeState& s = state(r, to);
    // The host's launch reaches a kernel a little later.
    const SimTime at = issues && flat.node(to).lagged ? time + launch_ : time;
    s.ready = std::max(s.ready, at);
    if (--s.open == 0) freed_.push_back({r, to, s.ready});
  }
}

void Machine::PostFreed() {
  const auto before = [this](const Freed& a, const Freed& b) {
    if (a.rank != b.rank) return a.rank < b.rank;
    const NodeKind x = node_of(a.rank, a.node).kind, y = node_of(b.rank, b.node).kind;
    return x != y ? x < y : a.node < b.node;
  };
  // A rank's first operations mostly stand in order already.
  if (!std::is_sorted(freed_.begin(), freed_.end(), before)) {
    std::sort(freed_.begin(), freed_.end(), before);
  }
  // Nodes that end at once free others, behind.
  for (std::size_t i = 0; i < freed_.size(); ++i) {
    PostOne(Freed(freed_[i]), i + 1 == freed_.size());
  }
  freed_.clear();
}

// A rank's operations run mostly in their order; many ranks are more streams of memory than a
// processor fetches by itself.
void Machine::FetchAhead(const Freed& f, const Node& n) const {
  constexpr std::size_t kAhead = 12;
  const FlatProgram& flat = *ranks_[f.rank].flat;
  const std::size_t node = std::min(f.node + kAhead, flat.size() - 1);
  __builtin_prefetch(&flat.node(node));
  __builtin_prefetch(&states_[ranks_[f.rank].first + node]);
  if (n.op == Node::kNoOp) return;
  const graph::Block& block = graph_.blocks[n.block];
  const graph::Op& op = block.ops[n.op];
  __builtin_prefetch(&block.ops[std::min(n.op + kAhead, block.ops.size() - 1)]);
  if (op.kind != graph::OpKind::kComm) return;
  __builtin_prefetch(&block.comms[std::min(op.index + kAhead, block.comms.size() - 1)]);
}

// `last`: nothing else is to be posted.
void Machine::PostOne(const Freed& f, bool last) {
  const Node& n = node_of(f.rank, f.node);
  FetchAhead(f, n);
  const bool alone = n.cpu == Node::kNone && n.nic == Node::kNone && n.stream == graph::kNoStream;
  switch (n.kind) {
    case NodeKind::kJoin:
      return Finish(f.rank, f.node, f.ready, f.ready);
    case NodeKind::kHost: {
      SimTime time =
          n.timed ? n.amount.value : RoundToPs(static_cast<double>(n.amount.value) * host_scale_);
      if (n.op != Node::kNoOp) time += CostOf(f.rank, n).host;
      ranks_[f.rank].account.HostWorks(f.ready + time);
      if (n.op == Node::kNoOp) Started(f.rank, f.node, f.ready);
      return Finish(f.rank, f.node, f.ready, f.ready + time);
    }
    case NodeKind::kCopy:
    case NodeKind::kWork: {
      if (!alone || IsSlowed(n)) break;
      const SimTime time = DurationOf(f.rank, n);
      Started(f.rank, f.node, f.ready);
      return Worked(f.rank, f.node, f.ready, f.ready + time);
    }
    default:
      break;
  }
  SimTime time = f.ready;
  if (in_.joint && n.cpu != Node::kNone) time = std::max(time, cpu(f.rank, n.cpu).free);
  if (in_.joint && n.kind == NodeKind::kSend &&
      (hosts_ranks_ == 1 || !Near(f.rank, PeerOf(f.rank, n)))) {
    time = std::max(time, nic(f.rank, n.nic).send_free);
  }
  // A rank's first events need no place in the queue while they come one after the other.
  if (starting_ && time == 0 &&
      order_ == first_.back().order + first_nodes_.size() - first_.back().begin) {
    first_nodes_.push_back(f.node);
    ++order_;
    return;
  }
  Event event = Make(Step::kBegin, f.rank, f.node);
  // What would be the next event anyway begins at once.
  const bool next = last && time == now_ && !stops_ && first_rank_ == first_.size() &&
                    queue_.NextTime() > now_ &&
                    (transport_ == nullptr || transport_->next_time() > now_);
  if (!next) return Push(event, time);
  event.time = time;
  Handle(event);
}

void Machine::Handle(const Event& event) {
  ++events_;
  switch (event.step()) {
    case Step::kBegin:
      return Begin(event);
    case Step::kEnd:
      return EndKernel(event);
    case Step::kPost:
      return PostRaw(event.rank, event.node, node_of(event.rank, event.node), event.time);
    case Step::kMessage:
      return in_.joint ? JointArrive(event) : ArriveRaw(event);
    case Step::kTakeIn:
      return in_.joint ? JointTakeIn(event) : TakeInRaw(event);
    case Step::kWindow:
      ranks_[event.rank].before = ranks_[event.rank].account.Close(event.time);
      return;
    case Step::kMember:
      return EndMember(event.a, event.b, event.time);
  }
}

void Machine::Begin(const Event& event) {
  const Node& n = node_of(event.rank, event.node);
  switch (n.kind) {
    case NodeKind::kSend:
      if (in_.joint) return JointSend(event, n);
      return PostSend(event, n);
    case NodeKind::kReceive:
      if (in_.joint) return JointReceive(event, n);
      return PostReceive(event, n);
    case NodeKind::kCollective:
      if (!EnterStream(event, n)) return;
      return PostCollective(event.rank, event.node, n, event.time);
    default:
      return BeginWork(event, n);
  }
}

void Machine::BeginWork(const Event& event, const Node& n) {
  // An event that waits for a processor has its stream already (b).
  if (event.b == 0 && !EnterStream(event, n)) return;
  if (event.b == 0) state(event.rank, event.node).ready = event.time;
  const bool holds = n.cpu != Node::kNone || n.nic != Node::kNone;
  const SimTime time = IsSlowed(n) ? 0 : DurationOf(event.rank, n);
  if (holds && !TakeHeld(event, n, time)) return;
  Started(event.rank, event.node, event.time);
  if (IsSlowed(n)) return RunKernel(event.rank, event.node, event.time);
  if (n.stream == graph::kNoStream) {
    return Worked(event.rank, event.node, event.time, event.time + time);
  }
  // On a stream that others wait for: its end is an event, so that who waits is served then.
  ranks_[event.rank].running.push_back({event.node, 0, event.time, event.time, 0, 0});
  Push(Make(Step::kEnd, event.rank, event.node, 0), event.time + time);
}

// True if work has the processor and the interface that it holds, for `time` from now; else it
// waits until it can have both.
bool Machine::TakeHeld(Event event, const Node& n, SimTime time) {
  event.b = 1;
  const SimTime end = event.time + time;
  Cpu* const c = n.cpu == Node::kNone ? nullptr : &cpu(event.rank, n.cpu);
  Nic* const own = n.nic == Node::kNone ? nullptr : &nic(event.rank, n.nic);
  if (c != nullptr && !TakeCpu(event, c)) {
    if (own != nullptr) LeaveQueue(event, &own->whole, own->whole.free);
    return false;
  }
  if (own != nullptr) {
    own->whole.free = std::max({own->whole.free, own->send_free, own->receive_free});
    if (!TakeCpu(event, &own->whole)) {
      if (c != nullptr) LeaveQueue(event, c, c->free);
      return false;
    }
    own->send_free = own->receive_free = end;
    LeaveQueue(event, &own->whole, end);
  }
  if (c == nullptr) return true;
  ranks_[event.rank].held.calc += time;
  LeaveQueue(event, c, end);
  return true;
}

// Work that nothing slowed is over at `end`.
void Machine::Worked(std::uint32_t rank, std::uint32_t node, SimTime start, SimTime end) {
  const Node& n = node_of(rank, node);
  if (n.kind == NodeKind::kCopy) {
    Emit(rank, n, start, end, 0, AmountOf(rank, n), "copy");
  } else {
    CoverKernel(rank, n, start, end, end - start);
    Emit(rank, n, start, end, 0, 0, {});
  }
  Finish(rank, node, start, end);
}

SimTime Machine::DurationOf(std::uint32_t r, const Node& n) {
  if (n.kind == NodeKind::kCopy) {
    CommPrice price;
    Status s = in_.prices->PriceComm(comm_of(n), AmountOf(r, n), 0, 0, nullptr, &price);
    if (!s.ok()) Fail(std::move(s));
    return price.cost.total();
  }
  if (!n.timed) return CostOf(r, n).duration[ranks_[r].beside];
  const SimTime time = std::min<std::int64_t>(AmountOf(r, n), kMaxDuration);
  const double speed = in_.speed[r];
  return speed == 1 ? time : RoundToPs(static_cast<double>(time) / speed);
}

// A kernel begins whose end depends on what runs beside it.
void Machine::RunKernel(std::uint32_t r, std::uint32_t node, SimTime now) {
  Rank& rank = ranks_[r];
  rank.running.push_back({node, 0, now, now, 0, rank.beside});
  const Node& n = node_of(r, node);
  Push(Make(Step::kEnd, r, node, 0), now + CostOf(r, n).duration[rank.beside]);
}

void Machine::EndKernel(const Event& event) {
  Rank& rank = ranks_[event.rank];
  const auto it = std::find_if(rank.running.begin(), rank.running.end(),
                               [&](const Running& k) { return k.node == event.node; });
  if (it == rank.running.end() || it->version != event.a) return;
  const Running k = *it;
  rank.running.erase(it);
  const Node& n = node_of(event.rank, event.node);
  if (n.stream != graph::kNoStream) LeaveStream(event.rank, n, event.time);
  if (!IsSlowed(n)) return Worked(event.rank, event.node, k.start, event.time);
  CoverKernel(event.rank, n, k.start, event.time, CostOf(event.rank, n).duration[0]);
  Emit(event.rank, n, k.start, event.time, 0, 0, {});
  Finish(event.rank, event.node, k.start, event.time);
}

// A communication beside kernels begins or ends: kernels under way go on at another pace.
void Machine::ChangeClass(std::uint32_t r, SimTime now, interference::Class bits, int delta) {
  Rank& rank = ranks_[r];
  interference::Class mask = 0;
  for (int bit = 0; bit < 2; ++bit) {
    if (bits >> bit & 1) {
      rank.in_flight[bit] = static_cast<std::uint8_t>(rank.in_flight[bit] + delta);
    }
    if (rank.in_flight[bit] > 0) mask = static_cast<interference::Class>(mask | 1 << bit);
  }
  if (mask == rank.beside) return;
  for (Running& k : rank.running) {
    const Node& n = node_of(r, k.node);
    if (!IsSlowed(n)) continue;
    const OpCost& cost = CostOf(r, n);
    if (now > k.time) {  // several changes of one instant are one
      const SimTime done = Convert(k.elapsed, cost.duration[k.counted], cost.duration[rank.beside]);
      if (now >= k.time + cost.duration[rank.beside] - done) continue;  // it ends now
      k.elapsed = done + (now - k.time);
      k.time = now;
      k.counted = rank.beside;
    }
    const SimTime left =
        cost.duration[mask] - Convert(k.elapsed, cost.duration[k.counted], cost.duration[mask]);
    Push(Make(Step::kEnd, r, k.node, ++k.version), now + left);
  }
  rank.beside = mask;
}

// True if the node has its stream now; else it waits for it.
bool Machine::EnterStream(const Event& event, const Node& n) {
  if (n.stream == graph::kNoStream) return true;
  auto& queues = ranks_[event.rank].queues;
  auto it = std::find_if(queues.begin(), queues.end(),
                         [&](const auto& q) { return q.first == n.stream; });
  if (it == queues.end()) it = queues.insert(queues.end(), {n.stream, Queue()});
  if (std::exchange(it->second.busy, true)) {
    it->second.waiting.push_back(event);
    return false;
  }
  return true;
}

// The stream is free: who is next in its order begins.
void Machine::LeaveStream(std::uint32_t r, const Node& n, SimTime now) {
  auto& queues = ranks_[r].queues;
  const auto it = std::find_if(queues.begin(), queues.end(),
                               [&](const auto& q) { return q.first == n.stream; });
  Queue& queue = it->second;
  queue.busy = false;
  if (queue.waiting.empty()) return;
  const graph::StreamOrder order = graph_.order_of(n.stream);
  const auto priority = [&](const Event& e) { return op_of(node_of(r, e.node)).priority; };
  const auto next = std::min_element(
      queue.waiting.begin(), queue.waiting.end(), [&](const Event& a, const Event& b) {
        if (order == graph::StreamOrder::kLast) return Before(b, a);
        if (order == graph::StreamOrder::kPriority && priority(a) != priority(b)) {
          return priority(a) > priority(b);
        }
        return Before(a, b);
      });
  const Event event = *next;
  queue.waiting.erase(next);
  Push(event, now);
}

void Machine::CoverKernel(std::uint32_t r, const Node& n, SimTime start, SimTime end,
                          SimTime alone) {
  if (in_.joint) return;  // its parts are those of processors
  const bool optimizer = graph_.blocks[n.block].pass == graph::Pass::kOptimizer;
  Account& account = ranks_[r].account;
  const SimTime until = std::min(end, start + alone);
  account.Cover(start, until, optimizer ? Part::kOptimizer : Part::kCompute);
  account.Cover(until, end, Part::kInterference);
}

void Machine::Emit(std::uint32_t r, const Node& n, SimTime start, SimTime end, SimTime waited,
                   std::int64_t bytes, std::string_view detail) {
  if (in_.sink == nullptr || !in_.sink->wants(RankId(r)) || n.op == Node::kNoOp) return;
  const FlatProgram::Instance& call = ranks_[r].flat->instance(n);
  const graph::Block& block = graph_.blocks[n.block];
  const graph::Op& op = block.ops[n.op];
  Sink::Interval i;
  i.rank = RankId(r);
  i.stream = block.stream_of(op);
  if (i.stream == graph::kNoStream) i.stream = n.cpu == Node::kNone ? 0 : n.cpu;
  i.start = start;
  i.end = end;
  i.name = op.name;
  i.module = op.module;
  i.microbatch = call.call->microbatch;
  i.layer = static_cast<std::int16_t>(call.layer);
  i.iteration = call.iteration;
  i.waited = waited;
  i.bytes = bytes;
  i.detail = detail;
  i.op = n.op;
  in_.sink->Add(i);
}

}  // namespace orrery::engine::general
