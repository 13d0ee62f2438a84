// One pass over a block's alloc/free events, from what lives before it to what lives after it.
//
// Live sets are interned: equal sets have equal ids, so that a walk can be remembered by
// (block, micro-batch state, lasting state).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/graph/graph.h"
#include "orrery/memory/layer_states.h"
#include "orrery/memory/memory.h"

namespace orrery::memory {

struct Live {
  std::uint32_t id = 0;
  graph::MemoryKind kind = graph::MemoryKind::kActivation;
  std::int64_t bytes = 0;
  friend auto operator<=>(const Live&, const Live&) = default;
};
using LiveSet = std::vector<Live>;  // sorted by id

class LiveSets {
 public:
  LiveSets() { ids_.emplace(LiveSet{}, kNothing), sets_.emplace_back(); }
  StateId Intern(const LiveSet& set);
  const LiveSet& operator[](StateId id) const { return sets_[id]; }

 private:
  std::map<LiveSet, StateId> ids_;
  std::vector<LiveSet> sets_;
};

using Parts = std::array<std::int64_t, kKinds>;

// What a walk does to the bytes in use, relative to its start.
struct Walk {
  StateId micro_after = kNothing, lasting_after = kNothing;
  std::int64_t net = 0, peak = 0;
  std::uint32_t peak_op = 0;  // index into Block::ops; valid if peak > 0
  Parts net_parts{}, peak_parts{};
};

// Walks `block`. When `limit` is not negative, stops at the first operation above it: that
// operation is then peak_op, and peak is above limit.
Result<Walk> WalkBlock(const graph::Graph& graph, const graph::Block& block, StateId micro,
                       StateId lasting, std::int64_t limit, LiveSets* sets);

}  // namespace orrery::memory
