#include "orrery/workload/importers/rank_programs.h"

#include <fmt/format.h>

#include <utility>

namespace orrery::workload {

using graph::OpKind;

void RankNumbers::Add(std::int64_t value, std::size_t row) {
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

graph::Quantity RankNumbers::Amount(graph::Columns* columns) const {
  if (rows.empty()) return {first, -1};
  return {1, static_cast<std::int32_t>(columns->Add(rows))};
}

graph::Peer RankNumbers::Peer(std::span<const std::uint32_t> ranks, std::int64_t world,
                              graph::Columns* columns) const {
  if (rows.empty()) return {graph::PeerKind::kOffset, static_cast<std::int32_t>(first)};
  std::vector<std::int64_t> peers;
  for (std::size_t row = 0; row < ranks.size(); ++row) {
    peers.push_back((rows[row] + ranks[row]) % world);
  }
  return {graph::PeerKind::kColumn, static_cast<std::int32_t>(columns->Add(peers))};
}

void AddWorld(const std::string& name, std::uint32_t ranks, graph::Graph* graph) {
  graph->jobs.push_back({.name = name, .ranks = ranks, .once = true});
  std::vector<RankId> all;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) all.emplace_back(rank);
  const GroupId world = graph->groups.Add(graph::GroupSlot::kPp, all);
  graph->bindings.resize(ranks);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    graph::Binding& b = graph->bindings[rank];
    b.job = JobId(std::size_t{0});
    b.logical_rank = rank;
    b.groups[static_cast<std::size_t>(graph::GroupSlot::kPp)] = world;
  }
}

void AddRankProgram(graph::Block&& block, graph::Columns&& columns,
                    std::span<const std::uint32_t> ranks, graph::Graph* graph) {
  block.Seal();
  graph::Program program;
  program.columns = std::move(columns);
  program.name = ranks.size() == 1
                     ? fmt::format("rank {}", ranks.front())
                     : fmt::format("{} ranks like rank {}", ranks.size(), ranks.front());
  program.calls.push_back({.block = BlockId(graph->blocks.size())});
  for (std::size_t row = 0; row < ranks.size(); ++row) {
    graph::Binding& b = graph->bindings[ranks[row]];
    b.program = ProgramId(graph->programs.size());
    b.row = static_cast<std::uint32_t>(row);
  }
  graph->blocks.push_back(std::move(block));
  graph->programs.push_back(std::move(program));
}

RankPrograms::RankPrograms(graph::Graph* graph, std::size_t ranks)
    : graph_(*graph), ranks_(static_cast<std::int64_t>(ranks)) {}

void RankPrograms::Add(std::uint32_t rank, RankOps&& ops) {
  ops.block.Seal();
  const auto [known, fresh] = by_hash_.emplace(ops.block.content_hash, structures_.size());
  if (fresh) {
    structures_.push_back(std::make_unique<Structure>());
    structures_.back()->amounts.resize(ops.amounts.size());
    structures_.back()->offsets.resize(ops.peers.size());
    structures_.back()->block = std::move(ops.block);
  }
  Structure& s = *structures_[known->second];
  const std::size_t row = s.ranks.size();
  s.ranks.push_back(rank);
  for (std::size_t i = 0; i < ops.amounts.size(); ++i) {
    s.amounts[i].Add(ops.amounts[i], row);
    const std::int64_t peer = ops.peers[i];
    s.offsets[i].Add(peer < 0 ? RankOps::kNone : (peer - rank + ranks_) % ranks_, row);
  }
}

void RankPrograms::Finish() {
  for (const auto& structure : structures_) Make(structure.get());
}

void RankPrograms::Make(Structure* s) {
  graph::Columns columns;
  graph::Block& block = s->block;
  for (std::size_t i = 0; i < block.ops.size(); ++i) {
    const graph::Op& op = block.ops[i];
    if (s->amounts[i].first != RankOps::kNone) {
      (op.kind == OpKind::kTimed ? block.times[op.index] : block.comms[op.index].bytes) =
          s->amounts[i].Amount(&columns);
    }
    if (s->offsets[i].first != RankOps::kNone) {
      block.comms[op.index].peer = s->offsets[i].Peer(s->ranks, ranks_, &columns);
    }
  }
  AddRankProgram(std::move(block), std::move(columns), s->ranks, &graph_);
}

}  // namespace orrery::workload
