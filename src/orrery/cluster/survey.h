// What a cluster's network is, in numbers: links by kind, bisection, diameter, path diversity.
//
// The network is all links but NVLink and PCIe; its ends are NICs (GPUs where they are wired
// directly). Bisection is the most that the lower-numbered half of the hosts can send to the other
// half at once: a maximum flow (Dinic), so NICs bound it too, and 1:1 fabrics reach all of what
// half the NICs inject. Diameter is the most links that lie between two ends by the shortest way.
// Diversity is the number of different shortest ways between end 0 and the last of the ends that
// are farthest from it. Cost: one breadth-first search a first switch, and a few sweeps of all
// links for the flow. Beyond kSurveyLinks links bisection is left out, and the diameter is a lower
// bound from as many searches as the budget has.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "orrery/cluster/cluster.h"

namespace orrery::cluster {

inline constexpr std::size_t kSurveyLinks = 4'000'000;

struct Survey {
  struct Kind {
    LinkKind kind = LinkKind::kNvlink;
    std::size_t links = 0;                     // directions
    std::int64_t least_Bps = 0, most_Bps = 0;  // of one link
  };
  std::vector<Kind> kinds;
  std::size_t vertices = 0;
  std::int64_t bisection_Bps = -1;  // -1: not computed
  std::int64_t injection_Bps = 0;   // of the lower half's NICs
  int diameter_links = 0;
  bool diameter_exact = true;
  std::uint32_t far_from = 0, far_to = 0;  // vertices
  std::uint64_t far_paths = 0;             // saturates at 2^63
};
Survey SurveyOf(const Cluster& cluster);

// Links of the shortest way from one end to every vertex; -1 where there is none. For tests, which
// hold routes against it.
std::vector<int> NetworkDistances(const Cluster& cluster, std::uint32_t from);

}  // namespace orrery::cluster
