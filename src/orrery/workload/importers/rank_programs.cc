#include "orrery/workload/importers/rank_programs.h"

#include <fmt/format.h>

namespace orrery::workload {

using graph::OpKind;

void RankPrograms::Numbers::Add(std::int64_t value, std::size_t row) {
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
  graph::Program program;
  graph::Block& block = s->block;
  for (std::size_t i = 0; i < block.ops.size(); ++i) {
    const graph::Op& op = block.ops[i];
    const Numbers& amounts = s->amounts[i];
    if (amounts.first != RankOps::kNone) {
      graph::Quantity amount{amounts.first, -1};
      if (!amounts.rows.empty()) {
        amount = {1, static_cast<std::int32_t>(program.columns.Add(amounts.rows))};
      }
      (op.kind == OpKind::kTimed ? block.times[op.index] : block.comms[op.index].bytes) = amount;
    }
    const Numbers& offsets = s->offsets[i];
    if (offsets.first == RankOps::kNone) continue;
    graph::Peer& peer = block.comms[op.index].peer;
    peer = {graph::PeerKind::kOffset, static_cast<std::int32_t>(offsets.first)};
    if (offsets.rows.empty()) continue;
    std::vector<std::int64_t> peers;
    for (std::size_t row = 0; row < s->ranks.size(); ++row) {
      peers.push_back((offsets.rows[row] + s->ranks[row]) % ranks_);
    }
    peer = {graph::PeerKind::kColumn, static_cast<std::int32_t>(program.columns.Add(peers))};
  }
  block.Seal();
  program.name = s->ranks.size() == 1
                     ? fmt::format("rank {}", s->ranks.front())
                     : fmt::format("{} ranks like rank {}", s->ranks.size(), s->ranks.front());
  program.calls.push_back({.block = BlockId(graph_.blocks.size())});
  for (std::size_t row = 0; row < s->ranks.size(); ++row) {
    graph::Binding& b = graph_.bindings[s->ranks[row]];
    b.program = ProgramId(graph_.programs.size());
    b.row = static_cast<std::uint32_t>(row);
  }
  graph_.blocks.push_back(std::move(block));
  graph_.programs.push_back(std::move(program));
}

}  // namespace orrery::workload
