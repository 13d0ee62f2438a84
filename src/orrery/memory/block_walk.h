// One pass over a block's alloc/free events, from what lives before it to what lives after it.
//
// Live sets are interned: equal sets have equal ids, so that a walk can be remembered by
// (block, micro-batch state, lasting state).
#pragma once

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

// What a walk does to the bytes in use, relative to its start.
struct Walk {
  StateId micro_after = kNothing, lasting_after = kNothing;
  std::int64_t net = 0, peak = 0;
};

Result<Walk> WalkBlock(const graph::Graph& graph, const graph::Block& block, StateId micro,
                       StateId lasting, LiveSets* sets);

}  // namespace orrery::memory
