#include "orrery/astra/machine.h"

#include <fmt/format.h>

#include "orrery/astra/machine_state.h"

namespace orrery::astra {
namespace {

constexpr std::uint64_t kHandShakeBytes = 8192;  // ASTRA-sim's

}  // namespace

Machine::Machine(const MachineInputs& in, bool fold)
    : in_(in),
      system_(*in.system),
      fold_(fold),
      npus_(in.network->npus()),
      network_(*in.network),
      ranks_(fold ? 1 : npus_),
      pending_(ranks_.size()) {
  const int queues = in_.run.queues_per_dimension;
  const std::size_t dimensions = in_.network->dimensions.size();
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    Rank& rank = ranks_[r];
    rank.program = &in_.workload->of(r);
    rank.queues.resize(dimensions * static_cast<std::size_t>(queues));
    rank.levels.assign(dimensions, Level{0, 0, queues / 2});
  }
  if (system_.inter_dimension == InterDimension::kGreedy ||
      system_.inter_dimension == InterDimension::kGreedyFlex) {
    greedy_.emplace(*in_.network, ranks_.size());
  }
  const MemoryConfig& memory = *in_.memory;
  if (memory.kind == MemoryKind::kPool) controllers_.resize(1);
  if (memory.kind == MemoryKind::kPerNode) controllers_.resize(memory.nodes);
  for (std::uint32_t r = 0; system_.bus.shared && r < ranks_.size(); ++r) {
    buses_.push_back(std::make_unique<MemoryBus>(system_.bus, BusHooks(r)));
  }
}

MemoryBus::Hooks Machine::BusHooks(std::uint32_t rank) {
  MemoryBus::Hooks hooks;
  hooks.now = [this] { return now(); };
  hooks.schedule = [this, rank](Tick delay, std::uint8_t end, MemoryBus::Step step) {
    Schedule(rank, delay,
             {.kind = Local::Kind::kBus, .a = end, .b = static_cast<std::uint32_t>(step)});
  };
  hooks.done = [this, rank](const MemoryBus::Delivery& d) {
    EndHandOver(
        rank,
        {.kind = Local::Kind::kHandOver, .reduces = d.reduces, .a = d.stream, .bytes = d.bytes});
  };
  return hooks;
}

Status Machine::Run() {
  for (std::uint32_t r = 0; r < ranks_.size(); ++r) Start(r);
  Event event;
  while (status_.ok() && queue_.Pop(&event)) {
    ++events_;
    if (now() > kLatest) return Infeasible("the run does not end within 104 days");
    switch (event.kind) {
      case Event::Kind::kRank:
        RunRank(event.a);
        break;
      case Event::Kind::kArrive:
        Arrive(event.a, event.handler());
        break;
      case Event::Kind::kReceived:
        Hear(event.handler());
        break;
      case Event::Kind::kHop:
        SendOn(event.a);
        break;
      case Event::Kind::kLinkFree:
        FreeLink(event.a);
        break;
    }
    if (tied_) return {};
  }
  if (!status_.ok()) return status_;
  for (const Rank& rank : ranks_) {
    if (!rank.finished) return Infeasible("{}", Stuck());
  }
  return {};
}

Machine::Timed* Machine::TimedAt(Pending* pending, Tick time) {
  if (pending->next.time == time) return &pending->next;
  for (Timed& timed : pending->others) {
    if (timed.time == time) return &timed;
  }
  return nullptr;
}

void Machine::Schedule(std::uint32_t rank, Tick delay, const Local& local) {
  const Tick time = now() + delay;
  Pending& pending = pending_[rank];
  if (Timed* const timed = TimedAt(&pending, time); timed != nullptr) {
    const std::uint32_t id = TakePlace(&more_locals_, &free_more_locals_);
    more_locals_[id] = {local, kNobody};
    (timed->more == kNobody ? timed->more : more_locals_[timed->last].next) = id;
    timed->last = id;
    return;
  }
  const Timed timed{time, local, kNobody, kNobody};
  if (pending.next.time == kNever) {
    pending.next = timed;
  } else {
    pending.others.push_back(timed);
  }
  queue_.Push(time, {.kind = Event::Kind::kRank, .a = rank});
}

void Machine::RunRank(std::uint32_t rank) {
  Pending& pending = pending_[rank];
  RunLocal(rank, Local(TimedAt(&pending, now())->first));
  // What is added for this instant meanwhile runs, too.
  Timed* timed = TimedAt(&pending, now());
  while (status_.ok() && timed->more != kNobody) {
    const std::uint32_t id = timed->more;
    const Local local = more_locals_[id].local;
    timed->more = more_locals_[id].next;
    free_more_locals_.push_back(id);
    RunLocal(rank, local);
    timed = TimedAt(&pending, now());
  }
  if (pending.others.empty()) {
    timed->time = kNever;
    return;
  }
  *timed = pending.others.back();
  pending.others.pop_back();
}

void Machine::RunLocal(std::uint32_t rank, const Local& local) {
  switch (local.kind) {
    case Local::Kind::kHandOver:
      EndHandOver(rank, local);
      return;
    case Local::Kind::kBus:
      buses_[rank]->Handle(static_cast<std::uint8_t>(local.a),
                           static_cast<MemoryBus::Step>(local.b));
      return;
    case Local::Kind::kNode:
      EndNode(rank, local.a);
      return;
    case Local::Kind::kMemory:
      MemoryDone(rank);
      return;
    case Local::Kind::kBroadcast:
      EndCollective(local.a);
      return;
    case Local::Kind::kCustom:
      CustomEnd(local.a, local.b);
      return;
  }
}

void Machine::EndHandOver(std::uint32_t rank, const Local& local) {
  if (!local.reduces) return HandedOver(local.a);
  Local again = local;
  again.reduces = false;
  const double pass = static_cast<double>(local.bytes) / system_.local_mem_bandwidth * 1e9;
  if (!(pass < static_cast<double>(kLatest))) {
    return Fail(InvalidInput("a reduction of {} bytes needs local-mem-bw", local.bytes));
  }
  Schedule(rank, 3 * static_cast<Tick>(pass), again);  // two reads and a write
}

void Machine::Hear(const Handler& handler) {
  switch (handler.kind) {
    case Handler::Kind::kNone:
      return;
    case Handler::Kind::kNode:
      EndNode(handler.a, handler.b);
      return;
    case Handler::Kind::kStream:
      Received(handler.a);
      return;
    case Handler::Kind::kCustom:
      CustomEnd(handler.a, handler.b);
      return;
    case Handler::Kind::kRendezvous: {
      const Rendezvous r = rendezvous_[handler.a];
      free_rendezvous_.push_back(handler.a);
      if (r.send) {
        SendNow(r.rank, r.peer, r.bytes, r.tag, r.offset, r.handler);
      } else {
        ReceiveNow(r.rank, r.peer, r.bytes, r.tag, r.offset, r.handler);
      }
      return;
    }
  }
}

// With the rendezvous protocol a receiver asks first, by a message of its own.
void Machine::Send(std::uint32_t rank, std::uint32_t to, std::uint64_t bytes, std::uint32_t tag,
                   std::uint32_t offset, const Handler& handler) {
  if (!in_.run.rendezvous) return SendNow(rank, to, bytes, tag, offset, handler);
  const std::uint32_t id = TakePlace(&rendezvous_, &free_rendezvous_);
  rendezvous_[id] = {true, rank, to, tag, offset, bytes, handler};
  ReceiveNow(rank, to, kHandShakeBytes, tag + kHandShakeTag, offset,
             {Handler::Kind::kRendezvous, id, 0});
}

void Machine::Receive(std::uint32_t rank, std::uint32_t from, std::uint64_t bytes,
                      std::uint32_t tag, std::uint32_t offset, const Handler& handler) {
  if (!in_.run.rendezvous) return ReceiveNow(rank, from, bytes, tag, offset, handler);
  const std::uint32_t id = TakePlace(&rendezvous_, &free_rendezvous_);
  rendezvous_[id] = {false, rank, from, tag, offset, bytes, handler};
  SendNow(rank, from, kHandShakeBytes, tag + kHandShakeTag, offset,
          {Handler::Kind::kRendezvous, id, 0});
}

void Machine::SendNow(std::uint32_t rank, std::uint32_t to, std::uint64_t bytes, std::uint32_t tag,
                      std::uint32_t offset, const Handler& handler) {
  if (bytes == 0) {
    return Fail(
        InvalidInput("a message of no bytes from rank {} to {}: a collective is too small "
                     "for its ranks and preferred-dataset-splits",
                     rank, to));
  }
  const std::uint32_t box = mailbox_.Open(KeyOf(rank, to, bytes, tag, offset));
  if (!in_.network->congestion_aware) {
    Tick& delay = mailbox_.delay(box);
    if (delay == Mailbox::kUnknown) delay = network_.Delay(rank, to, bytes);
    return Transfer(box, handler);
  }
  ++sent_;
  bytes_ += bytes;
  const std::uint32_t id = TakePlace(&messages_, &free_messages_);
  messages_[id] = {box, to, rank, Network::kNone, handler};
  TakeLink(network_.NextStep(rank, to).link, id);
}

// Unaware: a message to a box whose delay is known.
void Machine::Transfer(std::uint32_t box, const Handler& sent) {
  ++sent_;
  bytes_ += mailbox_.key(box).bytes;
  queue_.Push(now() + mailbox_.delay(box), {.kind = Event::Kind::kArrive,
                                            .hears = sent.kind,
                                            .a = box,
                                            .hears_a = sent.a,
                                            .hears_b = sent.b});
}

void Machine::TakeLink(std::uint32_t number, std::uint32_t message) {
  Network::Link& link = network_.link(number);
  if (!link.busy) return Transmit(number, message);
  messages_[message].behind = Network::kNone;
  (link.first == Network::kNone ? link.first : messages_[link.last].behind) = message;
  link.last = message;
}

void Machine::Transmit(std::uint32_t number, std::uint32_t message) {
  Network::Link& link = network_.link(number);
  link.busy = true;
  const std::uint64_t bytes = mailbox_.key(messages_[message].box).bytes;
  queue_.Push(now() + network_.Transit(link, bytes), {.kind = Event::Kind::kHop, .a = message});
  queue_.Push(now() + network_.Busy(link, bytes), {.kind = Event::Kind::kLinkFree, .a = number});
}

void Machine::FreeLink(std::uint32_t number) {
  Network::Link& link = network_.link(number);
  link.busy = false;
  if (link.first == Network::kNone) return;
  const std::uint32_t message = link.first;
  link.first = messages_[message].behind;
  Transmit(number, message);
}

// A message stands at the end of a link.
void Machine::SendOn(std::uint32_t message) {
  Message& m = messages_[message];
  m.device = network_.NextStep(m.device, m.to).device;
  if (m.device == m.to) {
    free_messages_.push_back(message);
    return Arrive(m.box, Handler(m.sent));
  }
  TakeLink(network_.NextStep(m.device, m.to).link, message);
}

void Machine::ReceiveNow(std::uint32_t rank, std::uint32_t from, std::uint64_t bytes,
                         std::uint32_t tag, std::uint32_t offset, const Handler& handler) {
  Post(mailbox_.Receive(KeyOf(from, rank, bytes, tag, offset), handler), handler);
}

// A receive for which a message has come is heard of behind what happens at this instant.
void Machine::Post(bool met, const Handler& handler) {
  if (!met) return;
  queue_.Push(now(), {.kind = Event::Kind::kReceived,
                      .hears = handler.kind,
                      .hears_a = handler.a,
                      .hears_b = handler.b});
}

void Machine::Arrive(std::uint32_t box, const Handler& sent) {
  Handler receiver;
  const bool met = mailbox_.Arrive(box, &receiver);
  Hear(sent);
  if (met) Hear(receiver);
}

MachineResult Machine::Finished() const {
  MachineResult result;
  for (std::size_t r = 0; r < npus_; ++r) result.ranks.push_back(ranks_[fold_ ? 0 : r].times);
  result.nodes = nodes_;
  result.events = events_;
  const std::uint64_t each = fold_ ? npus_ : 1;
  result.messages = sent_ * each;
  result.bytes = bytes_ * each;
  result.folded = fold_;
  return result;
}

namespace {

// Why one rank cannot stand for all; empty: it can.
std::string WhyNotFolded(const MachineInputs& in) {
  if (in.workload->programs.size() != 1) return "ranks differ in their traces";
  if (in.network->congestion_aware) return "links are shared in order of arrival";
  if (in.system->bus.shared) return "the memory bus serves in order of arrival";
  if (in.system->inter_dimension != InterDimension::kAscending) {
    return "chunks take their dimensions by what other ranks have begun";
  }
  if (in.memory->kind == MemoryKind::kPerNode || in.memory->kind == MemoryKind::kPool) {
    return "ranks share remote memory";
  }
  for (const Node& node : in.workload->programs[0]->nodes) {
    if (node.kind == NodeKind::kSend || node.kind == NodeKind::kReceive) {
      return "ranks send messages of their own";
    }
    if (node.kind != NodeKind::kCollective) continue;
    if (node.group != 0) return "a communicator of some ranks only";
    const auto c = static_cast<std::size_t>(node.collective);
    if (!in.system->custom[c].empty() || in.system->custom_by_node.contains(node.id)) {
      return "custom collectives";
    }
    for (const Implementation& i : in.system->implementations[c]) {
      if (i.algorithm == Algorithm::kDoubleBinaryTree) {
        return "ranks differ in their place in trees";
      }
    }
  }
  return "";
}

}  // namespace

Result<MachineResult> RunMachine(const MachineInputs& in, bool fold) {
  std::string why = fold ? WhyNotFolded(in) : "not asked for";
  if (why.empty()) {
    Machine one(in, true);
    ORRERY_RETURN_IF_ERROR(one.Run());
    if (!one.tied()) return one.Finished();
    why = "two things end at one instant, and their order may matter";
  }
  Machine all(in, false);
  ORRERY_RETURN_IF_ERROR(all.Run());
  MachineResult result = all.Finished();
  result.not_folded_because = std::move(why);
  return result;
}

}  // namespace orrery::astra
