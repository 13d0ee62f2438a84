// The longest chain of operations through all ranks of a graph.
//
// A chain follows every order that the graph has: streams, dependencies, events, waits of the host,
// and from rank to rank messages and collectives. Only times that the graph itself knows count
// (graph::OpKind::kTimed and kHost, graph::Timed); networks take none. So no machine runs the
// graph's step in less than the chain's time.
//
// Of chains of equal time the one of most operations is taken. A receive from any source takes the
// message that this rule brings first.
//
// Cost: O(operations of all ranks · log), 40 bytes each.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "orrery/base/time.h"
#include "orrery/graph/graph.h"

namespace orrery::engine::general {

struct CriticalPath {
  enum class Outcome : std::uint8_t {
    kFound,
    kTooLong,  // more than kMostOperations
    kStuck,    // ranks wait for each other for ever
  };
  static constexpr std::int64_t kMostOperations = 10'000'000;  // of all ranks

  Outcome outcome = Outcome::kFound;
  std::int64_t operations = 0;
  SimTime known = 0;
  std::uint32_t ranks = 0;     // that it passes through
  std::uint32_t last = 0;      // the rank on which it ends
  std::int64_t crossings = 0;  // from a rank to another
  struct Share {
    std::int64_t operations = 0;
    SimTime known = 0;
  };
  std::map<std::string, Share> kinds;  // by graph::KindOf
};

// Of one iteration. `operations`: Survey::operations. REQUIRES: Verify(graph).ok().
CriticalPath FindCriticalPath(const graph::Graph& graph, std::int64_t operations);
// The same of one rank: it waits for no other.
CriticalPath FindChain(const graph::Graph& graph, RankId rank);

}  // namespace orrery::engine::general
