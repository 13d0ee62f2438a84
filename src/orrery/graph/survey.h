// What a graph holds, counted: for people who look at a file before they run it.
//
// All counts are of one iteration of every rank (the prologue left out). Bytes are those of the
// operations (Comm::bytes), each rank's own, not what a network carries. Chains of operations are
// engine/general/critical_path.h's. Cost: O(operations of blocks + calls + ranks · communications
// with columns).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "orrery/graph/graph.h"

namespace orrery::graph {

struct Survey {
  std::int64_t operations = 0;  // kernels, communications, known times and work of the host
  std::map<std::string, std::int64_t> kinds;  // of all operations, alloc and wait too, by name

  // Communications by the group's role and kind: how many, of how many bytes.
  struct Traffic {
    std::int64_t count = 0, bytes = 0;
  };
  std::map<std::pair<GroupSlot, Collective>, Traffic> traffic;

  // What ranks send each other in messages, by sender and receiver. Collectives are not among
  // them: who sends what is the network's and the library's choice.
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::int64_t> messages;

  std::size_t assumptions = 0;
  std::uint64_t column_numbers = 0, column_bytes = 0;
  std::string why_not_straight;  // empty: it is
};

// What an operation is called: "gemm", "all-reduce", "known time".
std::string KindOf(const Block& block, const Op& op);

// REQUIRES: Verify(graph).ok().
Survey SurveyOf(const Graph& graph);

}  // namespace orrery::graph
