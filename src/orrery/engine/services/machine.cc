#include "orrery/engine/services/machine.h"

#include <algorithm>

#include "orrery/base/check.h"
#include "orrery/base/rng.h"
#include "orrery/base/text.h"
#include "orrery/engine/general/flat_program.h"
#include "orrery/engine/general/loggops.h"
#include "orrery/engine/loop.h"
#include "orrery/engine/straight/inline_block.h"

namespace orrery::engine::services {
namespace {

using NodeStep = graph::Shape::Step;

constexpr auto kRole = static_cast<std::size_t>(graph::GroupSlot::kPp);  // of messages
constexpr std::uint32_t kDelay = general::Node::kNoOp;

}  // namespace

Machine::Machine(const Inputs& inputs, const graph::Requests& requests,
                 const graph::Services& services, network::Network* network, Sink* sink)
    : inputs_(inputs),
      requests_(requests),
      services_(services),
      network_(*network),
      sink_(sink),
      loggops_(inputs.network_parameters.joint),
      paths_(inputs, network),
      hosts_(services.ranks) {
  MakeShapes();
  MakeLists();
  AddTimes();
}

void Machine::MakeShapes() {
  for (const graph::Shape& from : services_.shapes) {
    Shape& shape = shapes_.emplace_back();
    shape.edges.resize(from.nodes.size());
    shape.fresh.resize(from.nodes.size());
    for (std::uint32_t i = 0; i < from.nodes.size(); ++i) {
      const graph::Shape::Node& node = from.nodes[i];
      NodeState& state = shape.fresh[i];
      state.open = static_cast<std::uint32_t>(node.after.size());
      for (const std::uint32_t a : node.after) shape.edges[a].push_back(i);
      works_ = works_ || (node.step == NodeStep::kWork && node.amount > 0);
      if (node.begins) shape.begins.push_back(i);
      if (node.step != NodeStep::kReceive || state.open > 0) continue;
      shape.roots.push_back(i);
      state.receive = Receive::kPosted;
    }
  }
}

void Machine::MakeLists() {
  next_.assign(services_.all.size(), kNone);
  first_behind_ = next_;
  first_of_.assign(services_.ranks, kNone);
  for (auto i = static_cast<std::uint32_t>(services_.all.size()); i-- > 0;) {
    const graph::Services::One& one = services_.all[i];
    const std::uint32_t behind =
        requests_.all[i].after != kNone ? requests_.all[i].after : one.mount;
    std::uint32_t& first =
        behind != kNone ? first_behind_[behind] : first_of_[services_.hosts[one.first_host]];
    next_[i] = first;
    first = i;
  }
}

// What is known from the start: delays up to the requests' times, and receives that wait for
// nothing, which are posted at time 0.
void Machine::AddTimes() {
  std::vector<SimTime> at(services_.ranks, 0);
  for (std::uint32_t i = 0; i < services_.all.size(); ++i) {
    const graph::Services::One& one = services_.all[i];
    const std::uint32_t* const hosts = &services_.hosts[one.first_host];
    for (const std::uint32_t root : shapes_[one.shape].roots) {
      hosts_[hosts[services_.shapes[one.shape].nodes[root].host]].account.PostReceive(0);
    }
    const graph::Request& request = requests_.all[i];
    if (request.after != kNone) continue;
    const SimTime before = at[hosts[0]];
    if (graph::DelayBefore(request, &at[hosts[0]]) == 0) continue;
    hosts_[hosts[0]].account.HostWorks(request.begin);
    Count(hosts[0], kDelay, before, request.begin);
  }
}

Status Machine::Run() {
  for (const std::uint32_t first : first_of_) StartList(first, 0);
  while (!too_long_) {
    const SimTime queued = queue_.NextTime(), flying = network_.next_time();
    if (queued == kNever && flying == kNever) break;
    if (flying <= queued) {
      done_.clear();
      // As far as nothing starts: a network may work ahead of its next event.
      const SimTime until = queued < kNever ? queued : std::max(flying, kMaxDuration);
      const SimTime now = network_.AdvanceUntil(until, &done_);
      std::ranges::sort(done_, {}, &network::Completion::id);
      for (const network::Completion& c : done_) Land(c.id, now, done_.size() == 1);
      events_ += done_.size();
      PostFreed(now);
    } else {
      const Event event = queue_.Top();
      queue_.Pop();
      Handle(event);
      PostFreed(event.time);
    }
  }
  ORRERY_RETURN_IF_ERROR(network_.status());
  if (too_long_) {
    return Infeasible("the run takes longer than {}; are sizes and rates in the right unit?",
                      HumanTime(kMaxDuration));
  }
  ORRERY_CHECK(live_of_.size() == services_.all.size() && free_live_.size() == live_.size(),
               "every request has been served");
  return {};
}

// The event comes at `time`: at once, if that is now and nothing else could come before it.
// REQUIRES: what is under way leaves nothing to do but what the event itself frees.
void Machine::Next(const Event& event, SimTime time, SimTime now) {
  if (time > now || queue_.NextTime() <= now || network_.next_time() <= now) {
    return Push(event, time);
  }
  Event at_once = event;
  at_once.time = time;
  Handle(at_once);
}

bool Machine::TakeCpu(const Event& event, Cpu* c) {
  const Turn turn{event.since, event.order()};
  const bool first = turn <= c->next;
  if (c->free <= event.time && first) return true;
  if (first) {
    c->next = turn;
    Push(event, c->free);
    return false;
  }
  c->waiting.push_back(event);
  std::ranges::push_heap(c->waiting, std::ranges::greater(), [](const Event& e) {
    return Turn{e.since, e.order()};
  });
  return false;
}

void Machine::LeaveQueue(const Event& event, Cpu* c, SimTime free) {
  c->free = free;
  if (c->next.order != event.order()) return;
  c->next = {};
  if (c->waiting.empty()) return;
  std::ranges::pop_heap(c->waiting, std::ranges::greater(), [](const Event& e) {
    return Turn{e.since, e.order()};
  });
  const Event first = c->waiting.back();
  c->waiting.pop_back();
  c->next = {first.since, first.order()};
  Push(first, std::max(event.time, free));
}

// A request's operations have their numbers in the order of the requests: those before it are made
// with it.
std::uint32_t Machine::LiveOf(std::uint32_t request) {
  while (live_of_.size() <= request) {
    const auto next = static_cast<std::uint32_t>(live_of_.size());
    live_of_.push_back(NewLive(next));
  }
  return live_of_[request];
}

std::uint32_t Machine::NewLive(std::uint32_t request) {
  if (free_live_.empty()) {
    free_live_.push_back(static_cast<std::uint32_t>(live_.size()));
    live_.emplace_back();
  }
  const std::uint32_t id = free_live_.back();
  free_live_.pop_back();
  const graph::Services::One& one = services_.all[request];
  Live& l = live_[id];
  l.request = request;
  l.steps = services_.shapes[one.shape].nodes.data();
  l.shape = &shapes_[one.shape];
  l.hosts = &services_.hosts[one.first_host];
  l.nodes = l.shape->fresh;
  l.left = static_cast<std::uint32_t>(l.nodes.size());
  Host& asks = hosts_[l.hosts[0]];
  if (graph::DelayBefore(requests_.all[request], &asks.at) > 0) ++asks.ops;
  for (std::uint32_t i = 0; i < l.nodes.size(); ++i) l.nodes[i].op = host_of(l, i).ops++;
  return id;
}

// Requests that wait for their times alone from `now` on; their order is theirs from now on.
void Machine::StartList(std::uint32_t first, SimTime now) {
  if (first == kNone) return;
  PushArrival(first, now, order_);
  for (std::uint32_t r = first; r != kNone; r = next_[r]) {
    order_ += shapes_[services_.all[r].shape].begins.size();
  }
}

void Machine::PushArrival(std::uint32_t request, SimTime now, std::uint64_t order) {
  const SimTime time = std::max(now, requests_.all[request].begin);
  Push({.key = order << 3 | static_cast<std::uint64_t>(Step::kArrive),
        .since = time,
        .live = request},
       time);
}

void Machine::Arrive(const Event& event) {
  const std::uint32_t request = event.live;
  const std::vector<std::uint32_t>& begins = shapes_[services_.all[request].shape].begins;
  if (next_[request] != kNone) {
    PushArrival(next_[request], event.time, event.order() + begins.size());
  }
  Event part = event;
  part.live = LiveOf(request);
  for (std::size_t p = 0; p < begins.size(); ++p) {
    part.key = (event.order() + p) << 3 | static_cast<std::uint64_t>(Step::kBegin);
    part.node = begins[p];
    if (p == 0) {
      Begin(part);
    } else {
      Push(part, event.time);
    }
  }
}

// An operation into its rank's hash, as general::Machine::Finish has it.
void Machine::Count(std::uint32_t rank, std::uint32_t op, SimTime start, SimTime end) {
  Host& host = hosts_[rank];
  host.end = std::max(host.end, end);
  const std::uint64_t key = Mix64(std::uint64_t{op} + 0x0b5) | 1;
  host.hash += key * (kStartWeight * static_cast<std::uint64_t>(start) +
                      kEndWeight * static_cast<std::uint64_t>(end));
  if (end >= kMaxDuration) too_long_ = true;
}

void Machine::Finish(std::uint32_t live, std::uint32_t node, SimTime start, SimTime end) {
  Live& l = live_[live];
  Count(rank_of(l, node), l.nodes[node].op, start, end);
  for (const std::uint32_t to : l.shape->edges[node]) {
    NodeState& s = l.nodes[to];
    s.ready = std::max(s.ready, end);
    if (--s.open == 0) freed_.push_back({live, to});
  }
  if (--l.left == 0) free_live_.push_back(live);
}

// The request is answered: those behind it may begin.
void Machine::Follow(std::uint32_t request, SimTime end) {
  const std::uint32_t first = first_behind_[request];
  if (first == kNone) return;
  if (requests_.all[first].after == kNone) return StartList(first, end);
  for (std::uint32_t r = first; r != kNone; r = next_[r]) {
    const std::uint32_t live = LiveOf(r);
    Live& l = live_[live];
    const SimTime think = requests_.all[r].begin;
    if (think > 0) {
      hosts_[l.hosts[0]].account.HostWorks(end + think);
      Count(l.hosts[0], kDelay, end, end + think);
    }
    for (const std::uint32_t node : l.shape->begins) {
      l.nodes[node].ready = end + think;
      freed_.push_back({live, node});
    }
  }
}

void Machine::PostFreed(SimTime now) {
  const auto kind = [this](Freed f) {
    return std::min(node_of(live_[f.live], f.node).step, NodeStep::kWork);
  };
  if (freed_.size() > 1) std::ranges::stable_sort(freed_, {}, kind);
  for (std::size_t i = 0; i < freed_.size(); ++i) {
    PostOne(Freed(freed_[i]), now, i + 1 == freed_.size());
  }
  freed_.clear();
}

void Machine::PostOne(Freed f, SimTime now, bool last) {
  const Live& l = live_[f.live];
  const SimTime ready = l.nodes[f.node].ready;
  if (node_of(l, f.node).step != NodeStep::kDone) {
    Event event = Make(Step::kBegin, f.live, f.node);
    event.since = ready;
    return last ? Next(event, ready, now) : Push(event, ready);
  }
  const std::uint32_t request = l.request;
  if (sink_ != nullptr) {
    sink_->Add(
        {.rank = RankId(l.hosts[0]), .start = ready, .end = ready, .op = l.nodes[f.node].op});
  }
  Finish(f.live, f.node, ready, ready);
  Follow(request, ready);
}

void Machine::Handle(const Event& event) {
  ++events_;
  switch (event.step()) {
    case Step::kArrive:
      return Arrive(event);
    case Step::kBegin:
      return Begin(event);
    case Step::kPost:
      return Post(event);
    case Step::kMessage:
      return Message(event);
    case Step::kTakeIn:
      return TakeIn(event);
  }
}

void Machine::Begin(const Event& event) {
  switch (node_of(live_[event.live], event.node).step) {
    case NodeStep::kSend:
      return Send(event);
    case NodeStep::kReceive:
      return PostReceive(event);
    case NodeStep::kWork:
      return Work(event);
    case NodeStep::kDone:
      break;
  }
  ORRERY_CHECK(false, "an answer is no event");
}

// Of a processor by a message: o, and O for every byte but the first.
SimTime Machine::HeldFor(std::int64_t bytes) const {
  return loggops_.o + general::BytesTime(bytes, loggops_.O_as);
}

void Machine::Send(const Event& event) {
  const Live& l = live_[event.live];
  Host& host = host_of(l, event.node);
  if (!TakeCpu(event, &host.stack)) return;
  const SimTime held = HeldFor(node_of(l, event.node).amount);
  host.send += held;
  host.account.HostWorks(event.time + held);
  LeaveQueue(event, &host.stack, event.time + held);
  Push(Make(Step::kPost, event.live, event.node), event.time + held);
}

void Machine::Work(const Event& event) {
  const Live& l = live_[event.live];
  Host& host = host_of(l, event.node);
  if (!TakeCpu(event, &host.service)) return;
  const SimTime time = std::min<std::int64_t>(node_of(l, event.node).amount, kMaxDuration);
  host.calc += time;
  LeaveQueue(event, &host.service, event.time + time);
  host.account.Cover(event.time, event.time + time, Part::kCompute);
  Finish(event.live, event.node, event.time, event.time + time);
}

// A short message leaves at once, a longer one when its receive is posted.
void Machine::Post(const Event& event) {
  if (free_flights_.empty()) {
    free_flights_.push_back(static_cast<std::uint32_t>(flights_.size()));
    flights_.emplace_back();
  }
  const std::uint32_t id = free_flights_.back();
  free_flights_.pop_back();
  flights_[id] = {event.live, event.node, event.time};
  Live& l = live_[event.live];
  const graph::Shape::Node& node = node_of(l, event.node);
  ++messages_;
  bytes_ += node.amount;
  l.nodes[event.node].flight = id;
  if (eager(node.amount)) {
    Finish(event.live, event.node, event.time, event.time);
    return Start(id, event.time);
  }
  NodeState& receive = l.nodes[node.other];
  if (receive.receive == Receive::kPosted) return Start(id, event.time);
  receive.receive = Receive::kHeldBack;
  receive.flight = id;
}

void Machine::Start(std::uint32_t flight, SimTime now) {
  flights_[flight].start = now;
  const Live& l = live_[flights_[flight].live];
  const std::uint32_t node = flights_[flight].node;
  const graph::Shape::Node& send = node_of(l, node);
  host_of(l, send.other).account.Fly(now, kRole, +1);
  if (!eager(send.amount)) host_of(l, node).account.Fly(now, kRole, +1);
  network::LinkFluid fluid = paths_.Of(rank_of(l, node), rank_of(l, send.other), send.amount);
  fluid.id = flight;
  network_.Start(now, {&fluid, 1}, {});
}

void Machine::Land(std::uint32_t flight, SimTime now, bool last) {
  const Flight& f = flights_[flight];
  const Live& l = live_[f.live];
  const graph::Shape::Node& send = node_of(l, f.node);
  host_of(l, send.other).account.Fly(now, kRole, -1);
  if (!eager(send.amount)) host_of(l, f.node).account.Fly(now, kRole, -1);
  Event event = Make(Step::kMessage, f.live, f.node);
  event.since = now;
  if (last) {
    Next(event, now, now);
  } else {
    Push(event, now);
  }
}

void Machine::Message(const Event& event) {
  Live& l = live_[event.live];
  const graph::Shape::Node& send = node_of(l, event.node);
  Host& to = host_of(l, send.other);
  if (!TakeCpu(event, &to.stack)) return;
  const SimTime held = HeldFor(send.amount), ready = event.time + held;
  to.receive += held;
  to.account.HostWorks(ready);
  LeaveQueue(event, &to.stack, ready);
  const std::uint32_t flight = l.nodes[event.node].flight;
  free_flights_.push_back(flight);
  NodeState& receive = l.nodes[send.other];
  if (!eager(send.amount)) {
    Finish(event.live, event.node, flights_[flight].start, event.time);
  } else if (receive.receive == Receive::kNotPosted) {
    receive.receive = Receive::kCame;
    receive.came = ready;
    return;
  }
  EndReceive(event.live, send.other, ready);
}

void Machine::PostReceive(const Event& event) {
  Live& l = live_[event.live];
  host_of(l, event.node).account.PostReceive(event.time);
  NodeState& s = l.nodes[event.node];
  s.ready = event.time;
  const Receive before = std::exchange(s.receive, Receive::kPosted);
  if (before == Receive::kHeldBack) return Start(s.flight, event.time);
  if (before != Receive::kCame) return;
  ++unexpected_;
  EndReceive(event.live, event.node, std::max(event.time, s.came));
}

void Machine::EndReceive(std::uint32_t live, std::uint32_t node, SimTime end) {
  Push(Make(Step::kTakeIn, live, node), end);
}

void Machine::TakeIn(const Event& event) {
  const Live& l = live_[event.live];
  host_of(l, event.node).account.Receive(event.time);
  Finish(event.live, event.node, l.nodes[event.node].ready, event.time);
}

void Machine::Fill(Record* record) {
  const graph::Graph& graph = *inputs_.graph;
  for (const Host& host : hosts_) record->finish_time = std::max(record->finish_time, host.end);
  record->jobs.resize(1);
  record->jobs[0].iteration_end = {record->finish_time};
  record->jobs[0].step_time = record->finish_time;
  for (std::size_t r = 0; r < hosts_.size(); ++r) {
    Host& host = hosts_[r];
    RankClass c;
    c.representative = RankId(r);
    c.job = graph.bindings[r].job;
    c.program = graph.bindings[r].program;
    c.breakdown = host.account.Close(host.end);
    // After its last operation it waits for the others.
    c.breakdown[static_cast<std::size_t>(Part::kWaiting)] += record->finish_time - host.end;
    c.iteration_time = record->finish_time;
    c.finish_time = host.end;
    c.held_calc = host.calc;
    c.held_send = host.send;
    c.held_receive = host.receive;
    record->classes.push_back(c);
    record->fingerprint += RankFingerprint(host.hash);
  }
  record->ranks = record->ranks_simulated = services_.ranks;
  record->iterations = 1;
  record->not_folded_because = "a graph of this kind gives each rank operations of its own";
  record->messages = {messages_, bytes_, unexpected_, 0};
  record->events = events_;
  if (works_) record->provenance[static_cast<std::size_t>(compute::Provenance::kGiven)] = 1;
  FillLinkUse(*inputs_.cluster, network_.statistics(), record);
}

}  // namespace orrery::engine::services
