#include "orrery/workload/importers/goal/goal.h"

#include <algorithm>
#include <memory>
#include <unordered_map>

#include "orrery/base/hash.h"
#include "orrery/base/time.h"

namespace orrery::workload {
namespace {

using formats::GoalSchedule;
using graph::Block;
using Kind = GoalSchedule::Kind;

// The greatest number of picoseconds that a schedule's nanoseconds may become.
constexpr std::int64_t kMostNanoseconds = kMaxDuration / kNanosecond;

// Numbers of one operation over the ranks of a structure: all the same, or by row.
struct Numbers {
  std::int64_t first = 0;
  std::vector<std::int64_t> rows;  // empty while all are `first`

  void Add(std::int64_t value, std::size_t row) {
    if (row == 0) {
      first = value;
      return;
    }
    if (rows.empty()) {
      if (value == first) return;
      rows.assign(row, first);
    }
    rows.push_back(value);
  }
};

// Ranks of equal structure.
struct Structure {
  std::uint32_t representative = 0;  // its first rank
  std::vector<std::uint32_t> ranks;
  std::vector<Numbers> sizes;
  std::vector<Numbers> offsets;  // of peers, round all ranks
};

class Importer {
 public:
  explicit Importer(const GoalSchedule& schedule) : s_(schedule) {}

  Result<graph::Graph> Import(const std::string& name) {
    const auto ranks = static_cast<std::uint32_t>(s_.ranks());
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      Structure& structure = StructureOf(rank);
      AddNumbers(rank, &structure);
      structure.ranks.push_back(rank);
    }
    graph_.jobs.push_back({.name = name, .ranks = ranks, .once = true});
    std::vector<RankId> all;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) all.push_back(RankId(rank));
    const GroupId world = graph_.groups.Add(graph::GroupSlot::kPp, all);
    graph_.bindings.resize(ranks);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      graph::Binding& b = graph_.bindings[rank];
      b.job = JobId(std::size_t{0});
      b.logical_rank = rank;
      b.groups[static_cast<std::size_t>(graph::GroupSlot::kPp)] = world;
    }
    for (const auto& structure : structures_) AddProgram(*structure);
    return std::move(graph_);
  }

 private:
  std::size_t ops(std::uint32_t rank) const { return s_.first_op[rank + 1] - s_.first_op[rank]; }
  std::span<const GoalSchedule::Op> ops_of(std::uint32_t rank) const {
    return {s_.ops.data() + s_.first_op[rank], ops(rank)};
  }
  static bool IsAny(const GoalSchedule::Op& op) {
    return op.kind == Kind::kRecv && op.peer == GoalSchedule::kAny;
  }

  std::uint64_t HashOf(std::uint32_t rank) const {
    Hasher hash;
    hash.Add(ops(rank));
    for (std::size_t i = s_.first_op[rank]; i < s_.first_op[rank + 1]; ++i) {
      const GoalSchedule::Op& op = s_.ops[i];
      hash.Add(static_cast<std::uint64_t>(op.kind) | std::uint64_t{op.cpu} << 8 |
               std::uint64_t{op.nic} << 16 | std::uint64_t{IsAny(op)} << 24 |
               std::uint64_t{op.tag} << 32);
      const auto edges = s_.edges_of(i);
      hash.Add(edges.size());
      for (const std::uint32_t edge : edges) hash.Add(edge);
    }
    return hash.value();
  }
  bool Alike(std::uint32_t a, std::uint32_t b) const {
    if (ops(a) != ops(b)) return false;
    for (std::size_t i = 0; i < ops(a); ++i) {
      const GoalSchedule::Op& x = s_.ops[s_.first_op[a] + i];
      const GoalSchedule::Op& y = s_.ops[s_.first_op[b] + i];
      if (x.kind != y.kind || x.cpu != y.cpu || x.nic != y.nic || x.tag != y.tag ||
          IsAny(x) != IsAny(y)) {
        return false;
      }
      const auto p = s_.edges_of(s_.first_op[a] + i), q = s_.edges_of(s_.first_op[b] + i);
      if (!std::equal(p.begin(), p.end(), q.begin(), q.end())) return false;
    }
    return true;
  }
  Structure& StructureOf(std::uint32_t rank) {
    std::vector<std::size_t>& known = by_hash_[HashOf(rank)];
    for (const std::size_t i : known) {
      if (Alike(structures_[i]->representative, rank)) return *structures_[i];
    }
    known.push_back(structures_.size());
    structures_.push_back(std::make_unique<Structure>());
    Structure& fresh = *structures_.back();
    fresh.representative = rank;
    fresh.sizes.resize(ops(rank));
    fresh.offsets.resize(ops(rank));
    return fresh;
  }

  void AddNumbers(std::uint32_t rank, Structure* structure) const {
    const std::size_t row = structure->ranks.size();
    const auto n = static_cast<std::int64_t>(s_.ranks());
    const auto own = ops_of(rank);
    for (std::size_t i = 0; i < own.size(); ++i) {
      const GoalSchedule::Op& op = own[i];
      structure->sizes[i].Add(
          op.kind == Kind::kCalc ? std::min(op.size, kMostNanoseconds) * kNanosecond : op.size,
          row);
      if (op.kind == Kind::kCalc || IsAny(op)) continue;
      const std::int64_t offset = static_cast<std::int64_t>(op.peer) - rank;
      structure->offsets[i].Add(offset < 0 ? offset + n : offset, row);
    }
  }

  graph::Quantity Amount(const Numbers& numbers, graph::Columns* columns) {
    if (numbers.rows.empty()) return {numbers.first, -1};
    return {1, static_cast<std::int32_t>(columns->Add(numbers.rows))};
  }
  graph::Peer PeerOf(const GoalSchedule::Op& op, const Structure& structure, std::size_t i,
                     graph::Columns* columns) {
    if (IsAny(op)) return {graph::PeerKind::kAny, 0};
    const Numbers& offsets = structure.offsets[i];
    if (offsets.rows.empty()) {
      return {graph::PeerKind::kOffset, static_cast<std::int32_t>(offsets.first)};
    }
    const auto n = static_cast<std::int64_t>(s_.ranks());
    std::vector<std::int64_t> peers;
    for (std::size_t row = 0; row < structure.ranks.size(); ++row) {
      peers.push_back((offsets.rows[row] + structure.ranks[row]) % n);
    }
    return {graph::PeerKind::kColumn, static_cast<std::int32_t>(columns->Add(peers))};
  }

  void AddProgram(const Structure& structure) {
    graph::Program program;
    Block block;
    block.issue = graph::Issue::kFree;
    const auto own = ops_of(structure.representative);
    const NameId names[] = {graph_.Intern("send"), graph_.Intern("recv"), graph_.Intern("calc")};
    for (std::size_t i = 0; i < own.size(); ++i) {
      const GoalSchedule::Op& op = own[i];
      graph::Op out;
      if (op.kind == Kind::kCalc) out.stream = graph::kNoStream;
      out.name = names[static_cast<std::size_t>(op.kind) - 1];
      const graph::Hold hold{op.cpu,
                             op.kind == Kind::kCalc ? graph::Hold::kNone : std::uint16_t{op.nic}};
      const auto held = std::find(block.holds.begin(), block.holds.end(), hold);
      out.hold = static_cast<std::uint16_t>(held - block.holds.begin() + 1);
      if (held == block.holds.end()) block.holds.push_back(hold);
      const graph::Quantity amount = Amount(structure.sizes[i], &program.columns);
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
        comm.peer = PeerOf(op, structure, i, &program.columns);
        comm.stream = comm.after = graph::kNoStream;
        comm.tag = static_cast<std::int32_t>(op.tag);
        comm.blocking = false;
        comm.bytes = amount;
        block.comms.push_back(comm);
      }
      block.ops.push_back(out);
    }
    AddDependencies(structure.representative, &block);
    block.Seal();
    program.name = structure.ranks.size() == 1
                       ? "rank " + std::to_string(structure.representative)
                       : std::to_string(structure.ranks.size()) + " ranks like rank " +
                             std::to_string(structure.representative);
    program.calls.push_back({.block = BlockId(graph_.blocks.size())});
    for (std::size_t row = 0; row < structure.ranks.size(); ++row) {
      graph::Binding& b = graph_.bindings[structure.ranks[row]];
      b.program = ProgramId(graph_.programs.size());
      b.row = static_cast<std::uint32_t>(row);
    }
    graph_.blocks.push_back(std::move(block));
    graph_.programs.push_back(std::move(program));
  }

  // GOAL says who follows an operation, a block what it follows.
  void AddDependencies(std::uint32_t rank, Block* block) const {
    const std::size_t n = ops(rank);
    std::vector<std::uint32_t> begin(n + 1, 0);
    for (std::size_t i = 0; i < n; ++i) {
      for (const std::uint32_t edge : s_.edges_of(s_.first_op[rank] + i)) {
        ++begin[(edge & ~GoalSchedule::kStartEdge) + 1];
      }
    }
    for (std::size_t i = 0; i < n; ++i) begin[i + 1] += begin[i];
    if (begin[n] == 0) return;
    block->deps.resize(begin[n]);
    std::vector<std::uint32_t> next(begin.begin(), begin.end() - 1);
    for (std::uint32_t i = 0; i < n; ++i) {
      for (const std::uint32_t edge : s_.edges_of(s_.first_op[rank] + i)) {
        graph::Dep dep;
        dep.op = i;
        dep.on_start = (edge & GoalSchedule::kStartEdge) != 0;
        block->deps[next[edge & ~GoalSchedule::kStartEdge]++] = dep;
      }
    }
    block->dep_begin = std::move(begin);
  }

  const GoalSchedule& s_;
  graph::Graph graph_;
  std::vector<std::unique_ptr<Structure>> structures_;
  std::unordered_map<std::uint64_t, std::vector<std::size_t>> by_hash_;
};

}  // namespace

Result<graph::Graph> ImportGoal(const GoalSchedule& schedule, const std::string& name) {
  return Importer(schedule).Import(name);
}

}  // namespace orrery::workload
