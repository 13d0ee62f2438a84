// A rank's program: which nodes run, and what they do.
#include <fmt/format.h>

#include <algorithm>

#include "orrery/astra/machine_state.h"

namespace orrery::astra {

void Machine::Start(std::uint32_t rank) {
  Rank& r = ranks_[rank];
  const std::vector<Node>& nodes = r.program->nodes;
  r.left = nodes.size();
  if (!in_.watched.empty() && (fold_ || in_.watched[rank])) r.began.resize(nodes.size());
  for (std::uint32_t i = 0; i < nodes.size(); ++i) {
    r.open.push_back(nodes[i].open);
    if (nodes[i].open == 0) MakeReady(&r, {i});
  }
  IssueReady(rank);
}

void Machine::MakeReady(Rank* r, const std::vector<std::uint32_t>& freed) {
  for (const std::uint32_t f : freed) {
    r->ready[static_cast<std::size_t>(r->program->nodes[f].unit)].push(f);
  }
  r->ready_count += freed.size();
}

// Gives the time since the last change to what ran in it.
void Machine::Count(Rank* r) const {
  const Tick time = now() - r->counted;
  r->counted = now();
  const bool gpu = r->running[static_cast<std::size_t>(Unit::kGpu)] > 0;
  if (gpu) r->times.compute += time;
  if (r->running_communication > 0) {
    r->times.communication += time;
    if (!gpu) r->times.exposed += time;
  } else if (!gpu &&
             (r->running_memory > 0 || r->running[static_cast<std::size_t>(Unit::kCpu)] > 0)) {
    r->times.other += time;
  }
}

void Machine::Release(std::uint32_t rank, std::uint32_t node, std::vector<std::uint32_t>* freed) {
  Rank& r = ranks_[rank];
  const Node& n = r.program->nodes[node];
  Count(&r);
  --r.running[static_cast<std::size_t>(n.unit)];
  if (n.counted == Counted::kCommunication) --r.running_communication;
  if (n.counted == Counted::kMemory) --r.running_memory;
  --r.left;
  for (const std::uint32_t d : r.program->dependents(node)) {
    if (--r.open[d] == 0) freed->push_back(d);
  }
}

void Machine::EndNode(std::uint32_t rank, std::uint32_t node) {
  Rank& r = ranks_[rank];
  if (fold_ && r.node_ended == now()) tied_ = true;
  r.node_ended = now();
  if (!r.began.empty()) nodes_.push_back({rank, node, r.began[node], now()});
  std::vector<std::uint32_t> freed;
  Release(rank, node, &freed);
  MakeReady(&r, freed);
  IssueReady(rank);
}

// The lowest id first among those whose unit is free. What a skipped node frees waits for the
// rank's next event, unless there is none: ASTRA-sim stops there for ever.
void Machine::IssueReady(std::uint32_t rank) {
  Rank& r = ranks_[rank];
  std::vector<std::uint32_t> freed;
  do {
    MakeReady(&r, freed);
    freed.clear();
    for (;;) {
      std::uint32_t next = kNobody;
      for (std::size_t u = 0; u < kUnits; ++u) {
        const bool taken = u != static_cast<std::size_t>(Unit::kNone) && r.running[u] > 0;
        if (!taken && !r.ready[u].empty()) next = std::min(next, r.ready[u].top());
      }
      if (next == kNobody) break;
      const Node& n = r.program->nodes[next];
      r.ready[static_cast<std::size_t>(n.unit)].pop();
      --r.ready_count;
      Count(&r);
      ++r.running[static_cast<std::size_t>(n.unit)];
      if (n.counted == Counted::kCommunication) ++r.running_communication;
      if (n.counted == Counted::kMemory) ++r.running_memory;
      if (!r.began.empty()) r.began[next] = now();
      if (n.kind == NodeKind::kSkip) {
        Release(rank, next, &freed);
      } else {
        Issue(rank, next);
      }
      if (!status_.ok()) return;
    }
  } while (!in_.run.stalls && !freed.empty() && r.ready_count + freed.size() == r.left);
  MakeReady(&r, freed);
  if (r.left == 0 && !r.finished) {
    r.finished = true;
    r.times.finish = now();
  }
}

void Machine::Issue(std::uint32_t rank, std::uint32_t node) {
  Rank& r = ranks_[rank];
  const Node& n = r.program->nodes[node];
  switch (n.kind) {
    case NodeKind::kSkip:
      return;
    case NodeKind::kTimed:
      if (n.unit != Unit::kCpu) r.times.compute_ticks += n.amount;
      Schedule(rank, n.amount, {.kind = Local::Kind::kNode, .a = node});
      return;
    case NodeKind::kMemory:
      Access(rank, node);
      return;
    case NodeKind::kCollective:
      BeginCollective(rank, node);
      return;
    case NodeKind::kBroadcast:
      BeginBroadcast(rank, node);
      return;
    case NodeKind::kSend:
      Send(rank, n.peer, n.amount, n.tag % kCollectiveTag, 0, {Handler::Kind::kNode, rank, node});
      return;
    case NodeKind::kReceive:
      Receive(rank, n.peer, n.amount, n.tag % kCollectiveTag, 0,
              {Handler::Kind::kNode, rank, node});
      return;
  }
}

void Machine::BeginBroadcast(std::uint32_t rank, std::uint32_t node) {
  const std::uint32_t collective = TakePlace(&collectives_, &free_collectives_);
  collectives_[collective] = {rank, node, 1, 0};
  Schedule(rank, ranks_[rank].program->nodes[node].amount,
           {.kind = Local::Kind::kBroadcast, .a = collective});
}

namespace {

Tick AccessTime(const MemoryConfig& memory, std::uint64_t bytes) {
  return memory.latency +
         WholeTicks(static_cast<double>(bytes) / static_cast<double>(memory.bandwidth));
}

}  // namespace

// A node's or the pool's memory serves one request at a time, in order.
void Machine::Access(std::uint32_t rank, std::uint32_t node) {
  const MemoryConfig& memory = *in_.memory;
  const std::uint64_t bytes = ranks_[rank].program->nodes[node].amount;
  const Tick time = AccessTime(memory, bytes);
  if (memory.kind == MemoryKind::kNone) {
    return Fail(InvalidInput(
        "rank {}: node {} uses remote memory, and the remote memory file has NO_MEMORY_EXPANSION",
        rank, ranks_[rank].program->nodes[node].id));
  }
  if (memory.kind == MemoryKind::kPerNpu) {
    return Schedule(rank, time, {.kind = Local::Kind::kNode, .a = node});
  }
  const std::size_t c = memory.kind == MemoryKind::kPool ? 0 : rank / memory.npus_per_node;
  if (c >= controllers_.size()) {
    return Fail(InvalidInput("rank {} lies behind the remote memory's {} nodes of {} NPUs", rank,
                             memory.nodes, memory.npus_per_node));
  }
  if (controllers_[c].busy) {
    controllers_[c].waiting.emplace_back(rank, node);
    return;
  }
  controllers_[c].busy = true;
  Schedule(rank, time, {.kind = Local::Kind::kNode, .a = node});
  Schedule(rank, time, {.kind = Local::Kind::kMemory});
}

void Machine::MemoryDone(std::uint32_t rank) {
  const MemoryConfig& memory = *in_.memory;
  Controller& c = controllers_[memory.kind == MemoryKind::kPool ? 0 : rank / memory.npus_per_node];
  c.busy = !c.waiting.empty();
  if (!c.busy) return;
  const auto [next, node] = c.waiting.front();
  c.waiting.pop_front();
  const Tick time = AccessTime(memory, ranks_[next].program->nodes[node].amount);
  Schedule(next, time, {.kind = Local::Kind::kNode, .a = node});
  Schedule(next, time, {.kind = Local::Kind::kMemory});
}

std::string Machine::Stuck() const {
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const Rank& rank = ranks_[r];
    if (rank.finished) continue;
    return fmt::format(
        "deadlock: rank {} of {} has {} nodes left, and nothing that they wait for comes; messages "
        "meet by tag, source, destination, order and bytes",
        r, npus_, rank.left);
  }
  return "deadlock";
}

}  // namespace orrery::astra
