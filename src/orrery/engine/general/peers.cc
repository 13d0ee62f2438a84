#include "orrery/engine/general/peers.h"

#include <algorithm>

namespace orrery::engine::general {

using graph::PeerKind;

Peers::Peers(const graph::Graph& graph) : graph_(graph), places_(graph.groups.size()) {
  for (std::size_t g = 0; g < places_.size(); ++g) {
    const auto members = graph.groups.members(GroupId(g));
    bool consecutive = true;
    for (std::size_t i = 0; i < members.size(); ++i) {
      consecutive = consecutive && members[i].value == members[0].value + i;
    }
    if (consecutive) continue;
    for (std::size_t i = 0; i < members.size(); ++i) {
      places_[g].push_back({members[i], static_cast<std::uint32_t>(i)});
    }
    std::sort(places_[g].begin(), places_[g].end());
  }
  std::size_t ranks = 0;
  for (const graph::JobInfo& job : graph.jobs) {
    first_of_job_.push_back(ranks);
    ranks += job.ranks;
  }
  rank_of_.assign(ranks, kNobody);
  for (std::uint32_t r = 0; r < graph.bindings.size(); ++r) {
    const graph::Binding& b = graph.bindings[r];
    if (b.logical_rank >= graph.jobs[b.job.index()].ranks) continue;
    rank_of_[first_of_job_[b.job.index()] + b.logical_rank] = r;
  }
}

std::uint32_t Peers::PlaceOf(GroupId group, std::uint32_t rank) const {
  const auto& places = places_[group.index()];
  if (places.empty()) return rank - graph_.groups.members(group)[0].value;
  return std::lower_bound(places.begin(), places.end(), std::make_pair(RankId(rank), 0u))->second;
}

std::uint32_t Peers::Of(std::uint32_t rank, const graph::Comm& comm) const {
  const graph::Binding& b = graph_.bindings[rank];
  switch (comm.peer.kind) {
    case PeerKind::kAny:
      return kAny;
    case PeerKind::kSlot: {
      const RankId peer = b.peers[static_cast<std::size_t>(comm.peer.slot())];
      if (peer.valid()) return peer.value;
      break;
    }
    case PeerKind::kMember:
    case PeerKind::kOffset: {
      const GroupId group = graph_.group(b, comm.group);
      if (!group.valid()) break;
      const auto members = graph_.groups.members(group);
      const auto size = static_cast<std::int64_t>(members.size());
      std::int64_t place = comm.peer.value;
      if (comm.peer.kind == PeerKind::kOffset) {
        place += PlaceOf(group, rank);
        if (place >= size) place -= size;  // mostly enough, and no division
        if (place < 0 || place >= size) place = (place % size + size) % size;
      }
      if (place < size) return members[static_cast<std::size_t>(place)].value;
      break;
    }
    case PeerKind::kColumn: {
      const std::int64_t logical = graph_.number(b, {1, comm.peer.value});
      if (logical >= 0 && logical < graph_.jobs[b.job.index()].ranks) {
        return rank_of_[first_of_job_[b.job.index()] + static_cast<std::size_t>(logical)];
      }
      if (logical == -1) return kAny;
      break;
    }
  }
  return kNobody;
}

std::vector<bool> WildRanks(const graph::Graph& graph) {
  const auto any = [](const graph::Comm& c) {
    return c.collective == graph::Collective::kRecv &&
           (c.peer.kind == PeerKind::kAny || c.tag == graph::kAnyTag);
  };
  std::vector<bool> by_program;
  for (const graph::Program& program : graph.programs) {
    by_program.push_back(std::ranges::any_of(program.calls, [&](const graph::Call& call) {
      return std::ranges::any_of(graph.blocks[call.block.index()].comms, any);
    }));
  }
  std::vector<bool> wild;
  for (const graph::Binding& b : graph.bindings) wild.push_back(by_program[b.program.index()]);
  return wild;
}

}  // namespace orrery::engine::general
