#include "orrery/workload/importers/goal/goal.h"

#include <algorithm>
#include <memory>
#include <unordered_map>

#include "orrery/base/hash.h"
#include "orrery/base/time.h"
#include "orrery/workload/importers/rank_programs.h"

namespace orrery::workload {
namespace {

using formats::GoalSchedule;
using graph::Block;
using Kind = GoalSchedule::Kind;

// The greatest number of picoseconds that a schedule's nanoseconds may become.
constexpr std::int64_t kMostNanoseconds = kMaxDuration / kNanosecond;

// Ranks of equal structure.
struct Structure {
  GoalSchedule first;  // its first rank alone
  std::vector<std::uint32_t> ranks;
  std::vector<RankNumbers> sizes;
  std::vector<RankNumbers> offsets;  // of peers, round all ranks
};

// One rank of a schedule.
struct RankOf {
  const GoalSchedule& s;
  std::size_t base;
  std::size_t size;

  RankOf(const GoalSchedule& schedule, std::size_t rank)
      : s(schedule),
        base(schedule.first_op[rank]),
        size(schedule.first_op[rank + 1] - schedule.first_op[rank]) {}
  const GoalSchedule::Op& op(std::size_t i) const { return s.ops[base + i]; }
  std::span<const std::uint32_t> edges(std::size_t i) const { return s.edges_of(base + i); }
};

bool IsAny(const GoalSchedule::Op& op) {
  return op.kind == Kind::kRecv && op.peer == GoalSchedule::kAny;
}

std::uint64_t HashOf(const RankOf& rank) {
  Hasher hash;
  hash.Add(rank.size);
  for (std::size_t i = 0; i < rank.size; ++i) {
    const GoalSchedule::Op& op = rank.op(i);
    hash.Add(static_cast<std::uint64_t>(op.kind) | std::uint64_t{op.cpu} << 8 |
             std::uint64_t{op.nic} << 16 | std::uint64_t{IsAny(op)} << 24 |
             std::uint64_t{op.tag} << 32);
    const auto edges = rank.edges(i);
    hash.Add(edges.size());
    for (const std::uint32_t edge : edges) hash.Add(edge);
  }
  return hash.value();
}

bool Alike(const RankOf& a, const RankOf& b) {
  if (a.size != b.size) return false;
  for (std::size_t i = 0; i < a.size; ++i) {
    const GoalSchedule::Op &x = a.op(i), &y = b.op(i);
    if (x.kind != y.kind || x.cpu != y.cpu || x.nic != y.nic || x.tag != y.tag ||
        IsAny(x) != IsAny(y)) {
      return false;
    }
    if (!std::ranges::equal(a.edges(i), b.edges(i))) return false;
  }
  return true;
}

GoalSchedule Alone(const RankOf& rank) {
  GoalSchedule alone;
  alone.first_op = {0, static_cast<std::uint32_t>(rank.size)};
  for (std::size_t i = 0; i < rank.size; ++i) {
    alone.ops.push_back(rank.op(i));
    alone.ops.back().first_edge = static_cast<std::uint32_t>(alone.edges.size());
    alone.edges.insert(alone.edges.end(), rank.edges(i).begin(), rank.edges(i).end());
  }
  alone.ops.push_back({.first_edge = static_cast<std::uint32_t>(alone.edges.size())});
  return alone;
}

}  // namespace

class GoalImporter::Impl {
 public:
  void Add(const GoalSchedule& part, std::uint32_t all_ranks) {
    all_ = all_ranks;
    for (std::size_t i = 0; i < part.ranks(); ++i) {
      const RankOf rank(part, i);
      Structure& structure = StructureOf(rank);
      AddNumbers(rank, next_, &structure);
      structure.ranks.push_back(next_++);
    }
  }

  graph::Graph Take(const std::string& name) {
    AddWorld(name, next_, &graph_);
    for (const auto& structure : structures_) AddProgram(*structure);
    return std::move(graph_);
  }

 private:
  Structure& StructureOf(const RankOf& rank) {
    std::vector<std::size_t>& known = by_hash_[HashOf(rank)];
    for (const std::size_t i : known) {
      if (Alike({structures_[i]->first, 0}, rank)) return *structures_[i];
    }
    known.push_back(structures_.size());
    structures_.push_back(std::make_unique<Structure>());
    Structure& fresh = *structures_.back();
    fresh.first = Alone(rank);
    fresh.sizes.resize(rank.size);
    fresh.offsets.resize(rank.size);
    return fresh;
  }

  void AddNumbers(const RankOf& own, std::uint32_t rank, Structure* structure) const {
    const std::size_t row = structure->ranks.size();
    const auto n = static_cast<std::int64_t>(all_);
    constexpr std::size_t kAhead = 8;
    for (std::size_t i = 0; i < own.size; ++i) {
      const GoalSchedule::Op& op = own.op(i);
      // Each number goes to the end of a list of its own.
      const std::vector<std::int64_t>& soon =
          structure->sizes[std::min(i + kAhead, own.size - 1)].rows;
      __builtin_prefetch(soon.data() + soon.size(), 1);
      structure->sizes[i].Add(
          op.kind == Kind::kCalc ? std::min(op.size, kMostNanoseconds) * kNanosecond : op.size,
          row);
      if (op.kind == Kind::kCalc || IsAny(op)) continue;
      const std::int64_t offset = static_cast<std::int64_t>(op.peer) - rank;
      structure->offsets[i].Add(offset < 0 ? offset + n : offset, row);
    }
  }

  void AddProgram(const Structure& structure) {
    graph::Columns columns;
    Block block;
    block.issue = graph::Issue::kFree;
    const RankOf own(structure.first, 0);
    const NameId names[] = {graph_.Intern("send"), graph_.Intern("recv"), graph_.Intern("calc")};
    for (std::size_t i = 0; i < own.size; ++i) {
      const GoalSchedule::Op& op = own.op(i);
      graph::Op out;
      if (op.kind == Kind::kCalc) out.stream = graph::kNoStream;
      out.name = names[static_cast<std::size_t>(op.kind) - 1];
      const graph::Hold hold{op.cpu,
                             op.kind == Kind::kCalc ? graph::Hold::kNone : std::uint16_t{op.nic}};
      const auto held = std::find(block.holds.begin(), block.holds.end(), hold);
      out.hold = static_cast<std::uint16_t>(held - block.holds.begin() + 1);
      if (held == block.holds.end()) block.holds.push_back(hold);
      const graph::Quantity amount = structure.sizes[i].Amount(&columns);
      if (op.kind == Kind::kCalc) {
        out.kind = graph::OpKind::kTimed;
        out.index = static_cast<std::uint32_t>(block.times.size());
        block.times.push_back(amount);
      } else {
        out.kind = graph::OpKind::kComm;
        out.index = static_cast<std::uint32_t>(block.comms.size());
        graph::Comm comm;
        comm.collective =
            op.kind == Kind::kSend ? graph::Collective::kSend : graph::Collective::kRecv;
        comm.group = graph::GroupSlot::kPp;
        comm.peer = IsAny(op) ? graph::Peer(graph::PeerKind::kAny, 0)
                              : structure.offsets[i].Peer(structure.ranks, all_, &columns);
        comm.stream = comm.after = graph::kNoStream;
        comm.tag = static_cast<std::int32_t>(op.tag);
        comm.blocking = false;
        comm.bytes = amount;
        block.comms.push_back(comm);
      }
      block.ops.push_back(out);
    }
    AddDependencies(own, &block);
    AddRankProgram(std::move(block), std::move(columns), structure.ranks, &graph_);
  }

  // GOAL says who follows an operation, a block what it follows.
  static void AddDependencies(const RankOf& own, Block* block) {
    const std::size_t n = own.size;
    std::vector<std::uint32_t> begin(n + 1, 0);
    for (std::size_t i = 0; i < n; ++i) {
      for (const std::uint32_t edge : own.edges(i)) {
        ++begin[(edge & ~GoalSchedule::kStartEdge) + 1];
      }
    }
    for (std::size_t i = 0; i < n; ++i) begin[i + 1] += begin[i];
    if (begin[n] == 0) return;
    block->deps.resize(begin[n]);
    std::vector<std::uint32_t> next(begin.begin(), begin.end() - 1);
    for (std::uint32_t i = 0; i < n; ++i) {
      for (const std::uint32_t edge : own.edges(i)) {
        graph::Dep dep;
        dep.op = i;
        dep.on_start = (edge & GoalSchedule::kStartEdge) != 0;
        block->deps[next[edge & ~GoalSchedule::kStartEdge]++] = dep;
      }
    }
    block->dep_begin = std::move(begin);
  }

  std::uint32_t next_ = 0, all_ = 0;
  graph::Graph graph_;
  std::vector<std::unique_ptr<Structure>> structures_;
  std::unordered_map<std::uint64_t, std::vector<std::size_t>> by_hash_;
};

GoalImporter::GoalImporter() : impl_(std::make_unique<Impl>()) {}
GoalImporter::~GoalImporter() = default;
void GoalImporter::Add(const GoalSchedule& part, std::uint32_t ranks) { impl_->Add(part, ranks); }
graph::Graph GoalImporter::Take(const std::string& name) { return impl_->Take(name); }

Result<graph::Graph> ImportGoal(const GoalSchedule& schedule, const std::string& name) {
  GoalImporter importer;
  importer.Add(schedule, static_cast<std::uint32_t>(schedule.ranks()));
  return importer.Take(name);
}

}  // namespace orrery::workload
