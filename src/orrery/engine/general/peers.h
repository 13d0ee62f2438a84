// Whom a message meets: graph::Peer, resolved for a rank. O(log members) a message, 4 bytes a
// rank, 8 a member of a group whose ranks are not consecutive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "orrery/graph/graph.h"

namespace orrery::engine::general {

class Peers {
 public:
  static constexpr std::uint32_t kAny = 0xFFFFFFFFu;     // whoever sends
  static constexpr std::uint32_t kNobody = 0xFFFFFFFEu;  // no rank of its job

  explicit Peers(const graph::Graph& graph);

  // The rank's place in a group. REQUIRES: it is a member.
  std::uint32_t PlaceOf(GroupId group, std::uint32_t rank) const;
  // The rank that `comm` of `rank` goes to or comes from, kAny, or kNobody. REQUIRES: a message.
  std::uint32_t Of(std::uint32_t rank, const graph::Comm& comm) const;

 private:
  const graph::Graph& graph_;
  std::vector<std::size_t> first_of_job_;  // by job: where its ranks stand in rank_of_
  std::vector<std::uint32_t> rank_of_;     // by job and number in it
  // By group: its ranks in ascending order with their places; empty where they are consecutive.
  std::vector<std::vector<std::pair<RankId, std::uint32_t>>> places_;
};

// By rank: whether it receives from any source, or with any tag. O(operations of programs).
std::vector<bool> WildRanks(const graph::Graph& graph);

}  // namespace orrery::engine::general
