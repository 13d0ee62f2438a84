// Collectives in chunks, their phases, and the queues of dimensions.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "orrery/astra/machine_state.h"

namespace orrery::astra {
namespace {

constexpr std::uint32_t kStreamsOfGroup = 1'000'000;  // ASTRA-sim's: a group's begin at id times it

}  // namespace

// Which queue of a dimension is next, and whether its ring runs clockwise: half of them run back.
// FirstQueue is of the half that does not, LastQueue of the other.
std::pair<int, bool> Machine::NextQueue(Rank* rank, int level) const {
  const int n = in_.run.queues_per_dimension;
  Level& l = rank->levels[static_cast<std::size_t>(level)];
  const bool back = n > 1 && l.next >= n / 2;
  const int queue = level * n + l.next++;
  if (l.next >= n) l.next = 0;
  return {queue, !back};
}
std::pair<int, bool> Machine::FirstQueue(Rank* rank, int level) const {
  const int n = in_.run.queues_per_dimension;
  Level& l = rank->levels[static_cast<std::size_t>(level)];
  const int queue = level * n + l.first++;
  if (l.first >= n / 2) l.first = 0;
  return {queue, true};
}
std::pair<int, bool> Machine::LastQueue(Rank* rank, int level) const {
  const int n = in_.run.queues_per_dimension;
  Level& l = rank->levels[static_cast<std::size_t>(level)];
  const int queue = level * n + l.last++;
  if (l.last >= n) l.last = n / 2;
  return {queue, false};
}

std::int64_t Machine::PriorityOf(Rank* rank, const Node& node) const {
  switch (system_.policy) {
    case Policy::kLifo:
      return rank->priority++;
    case Policy::kFifo:
      return rank->priority--;
    case Policy::kExplicit:
      break;
  }
  return node.priority;
}

const Machine::Layout* Machine::LayoutOf(std::uint32_t rank, const Node& node) {
  const auto c = static_cast<std::uint32_t>(node.collective);
  const auto [at, fresh] = layouts_.try_emplace({c, node.group});
  Layout& layout = at->second;
  if (!fresh) return &layout;
  layout.implementations = system_.implementations[c];
  if (layout.implementations.empty()) {
    Fail(InvalidInput("the system file has no {}-implementation, and node {} of rank {} is one",
                      Name(node.collective), node.id, rank));
    return nullptr;
  }
  const std::vector<Dimension>& dimensions = in_.network->dimensions;
  if (node.group != 0 && in_.workload->groups.at(node.group).size() != npus_) {
    layout.world = false;
    if (layout.implementations.size() > 1) layout.implementations = {Implementation{}};
    const auto& members = in_.workload->groups.at(node.group);
    layout.rings.push_back({static_cast<std::uint32_t>(members.size()), 1, &members, true});
  } else {
    if (layout.implementations.size() > dimensions.size()) {
      Fail(InvalidInput("{}-implementation has {} entries, and the network {} dimensions",
                        Name(node.collective), layout.implementations.size(), dimensions.size()));
      return nullptr;
    }
    std::uint32_t stride = 1;
    for (std::size_t d = 0; d < layout.implementations.size(); ++d) {
      if (layout.implementations[d].one) {
        layout.rings.push_back({static_cast<std::uint32_t>(npus_), 1, nullptr, false});
        break;
      }
      const auto n = static_cast<std::uint32_t>(dimensions[d].npus);
      layout.rings.push_back({n, stride, nullptr, false});
      stride *= n;
    }
  }
  for (std::size_t d = 0; d < layout.rings.size(); ++d) {
    const std::uint32_t n = layout.rings[d].size;
    const Algorithm a = layout.implementations[d].algorithm;
    const bool tree = a == Algorithm::kDoubleBinaryTree;
    if ((tree || a == Algorithm::kHalvingDoubling) && !std::has_single_bit(n)) {
      Fail(InvalidInput("{} over {} NPUs: they must be a power of two",
                        tree ? "doubleBinaryTree" : "halvingDoubling", n));
      return nullptr;
    }
    if (tree && !layout.world) {
      Fail(
          InvalidInput("doubleBinaryTree over communicator {}: ASTRA-sim lays its trees over the "
                       "whole system only",
                       node.group));
      return nullptr;
    }
    if (a == Algorithm::kHalvingDoubling && node.collective == Collective::kAllToAll) {
      Fail(InvalidInput("all-to-all by halvingDoubling: there is no such algorithm"));
      return nullptr;
    }
  }
  return &layout;
}

Machine::Phase Machine::MakePhase(std::uint32_t rank, const Layout& layout, Collective of,
                                  Collective type, int d, std::uint64_t bytes,
                                  std::pair<int, bool> queue) {
  Phase phase;
  phase.dimension = static_cast<std::uint8_t>(d);
  phase.type = type;
  phase.implementation = layout.implementations[static_cast<std::size_t>(d)];
  phase.ring = layout.rings[static_cast<std::size_t>(d)];
  phase.bytes = bytes;
  phase.queue = queue.first;
  phase.clockwise = queue.second;
  phase.place = phase.ring.PlaceOf(rank);
  const std::uint64_t n = phase.ring.size;
  if (phase.implementation.algorithm == Algorithm::kDoubleBinaryTree) {
    phase.after = bytes;
    auto& turn = ranks_[rank].tree_turn[static_cast<std::size_t>(of)][d];
    phase.root_last = turn++ % 2 == 0;
  } else {
    phase.after = type == Collective::kAllGather       ? bytes * n
                  : type == Collective::kReduceScatter ? bytes / n
                                                       : bytes;
  }
  return phase;
}

// The phases of a chunk of `bytes`. False: there are none.
bool Machine::AddPhases(std::uint32_t rank, const Layout& layout, Collective of,
                        std::uint64_t bytes, const std::vector<int>& order, unsigned involved,
                        std::vector<Phase>* phases) {
  Rank& r = ranks_[rank];
  std::vector<int> dims;
  for (const int d : order) {
    const bool used =
        (involved >> d & 1u) != 0 && layout.rings[static_cast<std::size_t>(d)].size > 1;
    if (used) dims.push_back(d);
  }
  const auto add = [&](Collective type, int d, std::pair<int, bool> queue) {
    phases->push_back(MakePhase(rank, layout, of, type, d, bytes, queue));
    bytes = phases->back().after;
  };
  if (dims.empty()) return false;
  const bool greedy = greedy_.has_value() && layout.world;
  if (of != Collective::kAllReduce || !system_.local_bandwidth_aware) {
    for (const int d : dims) add(of, d, NextQueue(&r, d));
    return true;
  }
  // Scatter on the way out, gather on the way back; the last dimension reduces as a whole, unless
  // chunks choose their dimensions.
  const std::size_t out = greedy ? dims.size() : dims.size() - 1;
  for (std::size_t i = 0; i < out; ++i) {
    add(Collective::kReduceScatter, dims[i], FirstQueue(&r, dims[i]));
  }
  if (!greedy) add(Collective::kAllReduce, dims.back(), FirstQueue(&r, dims.back()));
  for (std::size_t i = out; i-- > 0;) add(Collective::kAllGather, dims[i], LastQueue(&r, dims[i]));
  return true;
}

// In which order the next chunk visits the dimensions; takes its bytes from `left`.
std::vector<int> Machine::OrderOf(std::uint32_t rank, const Node& node, const Layout& layout,
                                  std::uint64_t wanted, std::uint64_t* left, std::uint64_t* chunk) {
  Rank& r = ranks_[rank];
  std::vector<int> order(layout.rings.size());
  std::iota(order.begin(), order.end(), 0);
  if (node.collective == Collective::kAllGather) std::reverse(order.begin(), order.end());
  if (system_.inter_dimension == InterDimension::kRoundRobin) {
    std::rotate(order.begin(), order.begin() + r.round_robin, order.end());
    r.round_robin = (r.round_robin + 1) % static_cast<int>(order.size());
  } else if (greedy_ && layout.world && node.collective != Collective::kAllToAll) {
    const GreedyScheduler::Chunk next =
        greedy_->Next(r.streams, *left, wanted, node.involved,
                      system_.inter_dimension == InterDimension::kGreedyFlex, node.collective);
    *chunk = next.bytes;
    *left -= next.bytes;
    return next.order;
  }
  *left -= std::min(*left, *chunk);
  return order;
}

void Machine::BeginCollective(std::uint32_t rank, std::uint32_t node) {
  Rank& r = ranks_[rank];
  const Node& n = r.program->nodes[node];
  const auto by_node = system_.custom_by_node.find(n.id);
  const std::string& custom = by_node != system_.custom_by_node.end()
                                  ? by_node->second
                                  : system_.custom[static_cast<std::size_t>(n.collective)];
  if (!custom.empty()) {
    return BeginCustom(rank, node, custom);
  }
  const Layout* layout = LayoutOf(rank, n);
  if (layout == nullptr) return;
  const auto splits = static_cast<std::uint64_t>(system_.splits);
  std::uint64_t left = n.amount, chunk = n.amount / splits;
  if (n.collective != Collective::kAllGather && npus_ > chunk) {
    chunk = npus_;
    left = splits * chunk;
  }
  if (chunk == 0) {
    return Fail(
        InvalidInput("rank {}: node {}: an all-gather of {} bytes cannot be cut into {} chunks "
                     "(preferred-dataset-splits)",
                     rank, n.id, n.amount, splits));
  }
  const std::uint32_t collective = TakePlace(&collectives_, &free_collectives_);
  collectives_[collective] = {rank, node, 0, 0};
  const std::int64_t priority = PriorityOf(&r, n);
  if (rank == 0 && greedy_ && last_collective_ != now()) {
    greedy_->Forget();
    last_collective_ = now();
  }
  const std::uint64_t wanted = chunk;
  const unsigned involved = n.group != 0 ? 0xFFu : n.involved;
  while (left > 0) {
    ++collectives_[collective].streams;
    const std::vector<int> order = OrderOf(rank, n, *layout, wanted, &left, &chunk);
    std::vector<Phase> phases;
    if (!AddPhases(rank, *layout, n.collective, chunk, order, involved, &phases)) {
      return Fail(InvalidInput("rank {}: node {}: a collective over no dimension (involved_dim)",
                               rank, n.id));
    }
    AddStream(rank, collective, n, priority, std::move(phases));
    if (!status_.ok()) return;
  }
}

void Machine::BeginCustom(std::uint32_t rank, std::uint32_t node, const std::string& prefix) {
  Rank& r = ranks_[rank];
  const Node& n = r.program->nodes[node];
  Phase phase;
  phase.place = rank;
  if (n.group != 0) {
    phase.ring.members = &in_.workload->groups.at(n.group);
    std::vector<std::uint32_t> sorted = *phase.ring.members;
    std::sort(sorted.begin(), sorted.end());
    phase.place = static_cast<std::uint32_t>(std::ranges::find(sorted, rank) - sorted.begin());
  }
  phase.bytes = phase.after = n.amount;
  Result<const Program*> program = in_.custom(prefix, phase.place, n.amount);
  if (!program.ok()) {
    return Fail(std::move(program).TakeStatus());
  }
  phase.custom = *program;
  const std::uint32_t collective = TakePlace(&collectives_, &free_collectives_);
  collectives_[collective] = {rank, node, 1, 0};
  AddStream(rank, collective, n, PriorityOf(&r, n), {phase});
}

void Machine::AddStream(std::uint32_t rank, std::uint32_t collective, const Node& node,
                        std::int64_t priority, std::vector<Phase> phases) {
  const std::uint32_t id = TakePlace(&streams_, &free_streams_);
  Stream& s = streams_[id];
  s = {};
  s.rank = rank;
  s.collective = collective;
  s.priority = priority;
  s.phases = std::move(phases);
  std::uint32_t number = 0;
  if (node.group == 0) {
    number = ranks_[rank].streams++;
  } else {
    // ASTRA-sim counts it among those of all ranks, too, which then meet no more where ranks differ
    // in their communicators.
    if (in_.run.stalls) ++ranks_[rank].streams;
    const auto at =
        ranks_[rank].group_streams.try_emplace(node.group, node.group * kStreamsOfGroup).first;
    number = at->second++;
  }
  s.tag = number % kCollectiveTag + kCollectiveTag;
  Proceed(id);
}

// Folded, one rank stands for all, and what happens at one instant may happen in another order on
// another rank. That matters to a queue where two streams come, or where one comes and one goes,
// and the one that comes would go before one that waits.
void Machine::NoteCame(Queue* q, std::uint32_t stream, bool fresh) {
  if (!fold_) return;
  if (q->came_at == now() && q->came != stream && !(fresh && q->came_new)) tied_ = true;
  if (q->went_at == now() && q->gave && q->started < streams_[stream].priority) tied_ = true;
  q->came_at = now();
  q->came = stream;
  q->came_new = fresh;
}

void Machine::NoteWent(Queue* q, std::uint32_t stream) {
  if (!fold_) return;
  if (q->went_at != now()) q->gave = false;
  q->went_at = now();
  if (q->came_at != now() || q->came == stream) return;
  for (const std::uint32_t other : q->streams) {
    const Stream& o = streams_[other];
    if (other != q->came && !o.initialized && o.priority < streams_[q->came].priority) tied_ = true;
  }
}

// Streams from `first` on have been given a place.
void Machine::NoteGiven(Queue* q, std::size_t first) {
  if (!fold_ || q->went_at != now()) return;
  for (std::size_t i = first; i < q->running; ++i) {
    const std::int64_t priority = streams_[q->streams[i]].priority;
    q->started = q->gave ? std::min(q->started, priority) : priority;
    q->gave = true;
  }
}

// The stream's phase is over, or it is new: into the next phase's queue, or out.
void Machine::Proceed(std::uint32_t id) {
  const std::uint32_t rank = streams_[id].rank;
  const std::int32_t before = streams_[id].queue;
  const bool last = streams_[id].next == streams_[id].phases.size();
  DropBoxes(&streams_[id].work);
  if (last) EndCollective(streams_[id].collective);
  Rank& r = ranks_[rank];
  if (before >= 0) {
    Queue& q = r.queues[static_cast<std::size_t>(before)];
    NoteWent(&q, id);
    q.streams.erase(std::ranges::find(q.streams, id));
  }
  if (!last) {
    Stream& s = streams_[id];
    s.queue = s.phases[s.next++].queue;
    s.initialized = false;
    Queue& q = r.queues[static_cast<std::size_t>(s.queue)];
    NoteCame(&q, id, before < 0);
    Insert(&q, id);
  } else {
    free_streams_.push_back(id);
  }
  if (before >= 0) {
    --r.queues[static_cast<std::size_t>(before)].running;
    StartWaiting(rank, before);
  }
  if (!last) StartWaiting(rank, streams_[id].queue);
}

void Machine::EndCollective(std::uint32_t collective) {
  CollectiveRun& c = collectives_[collective];
  if (++c.finished < c.streams) return;
  free_collectives_.push_back(collective);
  EndNode(c.rank, c.node);
}

// Behind those that run, and those of at least its priority.
void Machine::Insert(Queue* queue, std::uint32_t id) {
  const std::int64_t priority = streams_[id].priority;
  const auto at = std::ranges::partition_point(queue->streams, [&](std::uint32_t other) {
    return streams_[other].initialized || streams_[other].priority >= priority;
  });
  queue->streams.insert(at, id);
}

void Machine::StartWaiting(std::uint32_t rank, std::int32_t queue) {
  const int queues = in_.run.queues_per_dimension;
  const auto most = static_cast<std::size_t>((system_.active_chunks + queues - 1) / queues);
  Queue& q = ranks_[rank].queues[static_cast<std::size_t>(queue)];
  const std::size_t first = q.running;
  while (q.running < most && q.running < q.streams.size()) Init(q.streams[q.running++]);
  NoteGiven(&q, first);
}

}  // namespace orrery::astra
