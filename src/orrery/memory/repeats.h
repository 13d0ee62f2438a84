// Where a program's calls repeat with the micro-batch moved on, as a pipeline's steady phase does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "orrery/graph/graph.h"

namespace orrery::memory {

// calls[begin, begin + count * period): call i + period equals call i, but that its micro-batch,
// where it has one, is `shift` later.
struct RepeatedRun {
  std::size_t begin = 0, period = 0, count = 0;
  std::int32_t shift = 0;
  friend bool operator==(const RepeatedRun&, const RepeatedRun&) = default;
};

// Disjoint, in order, each of at least four periods. Cost O(calls) times the periods tried at a
// place (at most 64).
std::vector<RepeatedRun> FindRepeats(const std::vector<graph::Call>& calls);

}  // namespace orrery::memory
