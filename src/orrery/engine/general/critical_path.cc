#include "orrery/engine/general/critical_path.h"

#include <algorithm>
#include <memory>
#include <queue>
#include <set>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "orrery/engine/general/flat_program.h"
#include "orrery/engine/general/matching.h"
#include "orrery/engine/general/peers.h"
#include "orrery/graph/survey.h"

namespace orrery::engine::general {
namespace {

constexpr std::uint32_t kNone = 0xFFFFFFFFu;

// A node of a rank; kStart: its beginning, else its end.
struct Place {
  static constexpr std::uint32_t kStart = Node::kStartEdge;
  std::uint32_t rank = kNone, node = kNone;
  Place start() const { return {rank, node | kStart}; }
};

// How far a chain has come.
struct Reach {
  SimTime known = 0;
  std::uint32_t operations = 0;
  friend auto operator<=>(const Reach&, const Reach&) = default;
};

// The longest chain that leads to a place, and the place before it.
struct Chain {
  Reach reach;
  Place from;
};

struct State {
  Chain ready;
  std::uint32_t open = 0;
};

class Finder {
 public:
  // `alone`: a rank that waits for no other; invalid: all ranks.
  Finder(const graph::Graph& graph, RankId alone)
      : graph_(graph),
        alone_(alone),
        peers_(graph),
        flats_(graph.programs.size()),
        matching_(WildRanks(graph)) {
    std::size_t states = 0;
    for (std::uint32_t r = 0; r < graph.bindings.size(); ++r) {
      const graph::Binding& b = graph.bindings[r];
      auto& flat = flats_[b.program.index()];
      if (!Runs(r)) {
        first_.push_back(states);
        continue;
      }
      if (flat == nullptr) {
        flat = std::make_unique<FlatProgram>(graph, graph.programs[b.program.index()], 1,
                                             [](graph::GroupSlot) { return false; });
      }
      first_.push_back(states);
      states += flat->size();
    }
    left_ = states;
    states_.resize(states);
    meets_.resize(graph.groups.size());
    for (std::size_t g = 0; g < meets_.size(); ++g) {
      meets_[g].next.assign(graph.groups.members(GroupId(g)).size(), 0);
    }
  }

  CriticalPath Find() {
    for (std::uint32_t r = 0; r < graph_.bindings.size(); ++r) {
      if (!Runs(r)) continue;
      const FlatProgram& f = flat(r);
      for (std::size_t i = 0; i < f.size(); ++i) states_[first_[r] + i].open = f.node(i).open;
      for (const std::uint32_t node : f.roots()) Push({r, node});
    }
    while (!queue_.empty()) {
      const Place at = std::get<1>(queue_.top());
      queue_.pop();
      Take(at);
    }
    CriticalPath path;
    if (left_ > 0) {
      path.outcome = CriticalPath::Outcome::kStuck;
    } else if (last_.rank != kNone) {
      Trace(&path);
    }
    return path;
  }

 private:
  // Earlier chains first; what is left open does not matter to the answer, but it is the same
  // everywhere.
  struct Later {
    using Entry = std::pair<Reach, Place>;
    bool operator()(const Entry& a, const Entry& b) const {
      return std::tuple(a.first, a.second.rank, a.second.node) >
             std::tuple(b.first, b.second.rank, b.second.node);
    }
  };
  // Collectives of a group, by their number in it.
  struct Meets {
    std::vector<std::uint32_t> next;  // by member
    std::map<std::uint32_t, std::vector<Place>> open;
  };

  bool Runs(std::uint32_t rank) const { return !alone_.valid() || alone_.value == rank; }
  const FlatProgram& flat(std::uint32_t rank) const {
    return *flats_[graph_.bindings[rank].program.index()];
  }
  const Node& node(Place p) const { return flat(p.rank).node(p.node); }
  std::size_t Number(Place p) const { return first_[p.rank] + p.node; }
  State& state(Place p) { return states_[Number(p)]; }
  const graph::Op& op(const Node& n) const { return graph_.blocks[n.block].ops[n.op]; }
  void Push(Place at) { queue_.push({state(at).ready.reach, at}); }

  // Nothing that leads to `at` is outstanding.
  void Take(Place at) {
    const Node& n = node(at);
    Release(at.start(), state(at).ready.reach);
    if (alone_.valid()) return End(at);
    switch (n.kind) {
      case NodeKind::kCollective:
        return Meet(at, n);
      case NodeKind::kSend:
      case NodeKind::kReceive:
        return Exchange(at, n);
      default:
        return End(at);
    }
  }

  void Meet(Place at, const Node& n) {
    const graph::Binding& b = graph_.bindings[at.rank];
    const GroupId id = graph_.group(b, graph_.blocks[n.block].comms[op(n).index].group);
    const std::size_t members = id.valid() ? graph_.groups.members(id).size() : 1;
    if (members < 2) return End(at);
    Meets& meets = meets_[id.index()];
    const auto open = meets.open.try_emplace(meets.next[peers_.PlaceOf(id, at.rank)]++).first;
    open->second.push_back(at);
    if (open->second.size() < members) return;
    const std::vector<Place> all = std::move(open->second);
    meets.open.erase(open);
    EndTogether(all);
  }

  void Exchange(Place at, const Node& n) {
    const bool sends = n.kind == NodeKind::kSend;
    const graph::Comm& comm = graph_.blocks[n.block].comms[op(n).index];
    const std::uint32_t peer = peers_.Of(at.rank, comm);
    if (peer == Peers::kNobody) return;  // never ends
    const std::uint32_t to = sends ? peer : at.rank;
    const Matching::Item own{.node = at.node,
                             .source = sends ? at.rank : peer,
                             .tag = static_cast<std::uint32_t>(comm.tag)};
    // A message of the network's own leaves by itself.
    if (sends && n.raw) End(at);
    Matching::Item other;
    const bool met =
        sends ? matching_.Message(to, own, &other) : matching_.Receive(to, own, &other);
    if (!met) return;
    const Place send = sends ? at : Place{other.source, other.node};
    const Place receive = sends ? Place{to, other.node} : at;
    if (!node(send).raw) return EndTogether({send, receive});
    Prolong(receive, {EndOf(send), send});
    End(receive);
  }

  // All end once the last has come.
  void EndTogether(const std::vector<Place>& all) {
    const Place last = *std::max_element(all.begin(), all.end(), [&](Place a, Place b) {
      return state(a).ready.reach < state(b).ready.reach;
    });
    const Reach reach = state(last).ready.reach;
    for (const Place p : all) {
      Prolong(p, {reach, last.start()});
      End(p);
    }
  }

  // A communication is held up by another end of it, if that came later.
  void Prolong(Place at, const Chain& other) {
    if (other.reach > state(at).ready.reach) held_up_.emplace(Number(at), other);
  }
  const Chain& Cause(Place at) const {
    const auto held = held_up_.find(Number(at));
    return held == held_up_.end() ? states_[Number(at)].ready : held->second;
  }

  SimTime KnownTime(Place at) const {
    const Node& n = node(at);
    if (n.timed || n.kind == NodeKind::kHost) {
      const std::int64_t time = graph_.number(graph_.bindings[at.rank], n.amount);
      return std::min<SimTime>(time, kMaxDuration);
    }
    if (n.kind != NodeKind::kWork) return 0;
    const graph::Block& block = graph_.blocks[n.block];
    const auto* timed = std::get_if<graph::Timed>(&block.kernels[block.ops[n.op].index]);
    return timed == nullptr ? 0 : timed->duration_ps;
  }
  // The host's launches are no operations of the graph.
  bool Counts(const Node& n) const {
    return n.kind == NodeKind::kHost ? n.amount.value > 0 : n.kind != NodeKind::kJoin;
  }
  Reach EndOf(Place at) const {
    Reach end = Cause(at).reach;
    end.known = std::min(end.known + KnownTime(at), kMaxDuration);
    end.operations += Counts(node(at)) ? 1 : 0;
    return end;
  }

  void End(Place at) {
    --left_;
    const Reach end = EndOf(at);
    if (last_.rank == kNone || end > longest_) {
      longest_ = end;
      last_ = at;
    }
    Release(at, end);
  }

  void Release(Place at, Reach reach) {
    const std::uint32_t own = at.node & ~Place::kStart;
    for (const std::uint32_t edge : flat(at.rank).edges(own)) {
      if ((edge & Node::kStartEdge) != (at.node & Place::kStart)) continue;
      const Place to{at.rank, edge & ~Node::kStartEdge};
      State& s = state(to);
      if (s.ready.from.rank == kNone || reach > s.ready.reach) s.ready = {reach, at};
      if (--s.open == 0) Push(to);
    }
  }

  // Back from the chain's end.
  void Trace(CriticalPath* path) const {
    path->operations = longest_.operations;
    path->known = longest_.known;
    path->last = last_.rank;
    std::set<std::uint32_t> ranks;
    for (Place at = last_; at.rank != kNone;) {
      ranks.insert(at.rank);
      const bool begins = (at.node & Place::kStart) != 0;
      const Place whole{at.rank, at.node & ~Place::kStart};
      if (!begins) Count(whole, path);
      const Place from = begins ? states_[Number(whole)].ready.from : Cause(whole).from;
      if (from.rank != kNone && from.rank != at.rank) ++path->crossings;
      at = from;
    }
    path->ranks = static_cast<std::uint32_t>(ranks.size());
  }
  void Count(Place at, CriticalPath* path) const {
    const Node& n = node(at);
    if (!Counts(n)) return;
    CriticalPath::Share& share =
        path->kinds[n.kind == NodeKind::kHost ? "host work"
                                              : graph::KindOf(graph_.blocks[n.block], op(n))];
    ++share.operations;
    share.known += KnownTime(at);
  }

  const graph::Graph& graph_;
  const RankId alone_;
  const Peers peers_;
  std::vector<std::unique_ptr<FlatProgram>> flats_;  // by program
  std::vector<std::size_t> first_;                   // of its states, by rank
  std::vector<State> states_;
  std::unordered_map<std::size_t, Chain> held_up_;  // by state
  std::vector<Meets> meets_;                        // by group
  Matching matching_;
  std::priority_queue<std::pair<Reach, Place>, std::vector<std::pair<Reach, Place>>, Later> queue_;
  std::size_t left_ = 0;
  Reach longest_;
  Place last_;
};

}  // namespace

CriticalPath FindCriticalPath(const graph::Graph& graph, std::int64_t operations) {
  if (operations > CriticalPath::kMostOperations) {
    return {.outcome = CriticalPath::Outcome::kTooLong};
  }
  return Finder(graph, RankId()).Find();
}

CriticalPath FindChain(const graph::Graph& graph, RankId rank) {
  std::int64_t operations = 0;
  for (const graph::Call& call :
       graph.programs[graph.bindings[rank.index()].program.index()].calls) {
    operations += std::int64_t{call.repeat} *
                  static_cast<std::int64_t>(graph.blocks[call.block.index()].ops.size());
  }
  if (operations > CriticalPath::kMostOperations) {
    return {.outcome = CriticalPath::Outcome::kTooLong};
  }
  return Finder(graph, rank).Find();
}

}  // namespace orrery::engine::general
