// The chain of operations that a step took as long as its sum: from the step's last operation back,
// each time to the one that ended last before it could begin, on another rank where a communication
// waited for that.
//
// Of one rank of each pipeline stage, whose intervals an engine::Sink gets; a rank that was not
// followed shows as waiting. What the chain's parts take adds up to the step to the picosecond.
//
// Cost: O(intervals of a step · log), some 100 bytes each.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "orrery/base/ids.h"
#include "orrery/base/time.h"
#include "orrery/engine/engine.h"
#include "orrery/graph/graph.h"

namespace orrery::results {

struct StepPath {
  struct Part {
    std::string what;        // an operation's module and name
    std::int64_t count = 0;  // of the chain's links
    SimTime time = 0;        // ps
  };
  std::vector<Part> parts;     // the longest first; ties by name
  std::uint32_t ranks = 0;     // that the chain passes through
  std::uint32_t followed = 0;  // that it could pass through
  std::int64_t crossings = 0;  // from a rank to another
};

class StepPathSink final : public engine::Sink {
 public:
  // `graph` must outlive the sink. `ranks`: that are followed (DefaultRanks).
  StepPathSink(const graph::Graph& graph, std::span<const RankId> ranks);

  bool wants(RankId rank) const override { return place_[rank.index()] != kNone; }
  // Intervals of the latest iteration are kept.
  void Add(const Interval& interval) override;

  // From `to` back to `from`, the end of the iteration before. REQUIRES: from <= to.
  StepPath Path(SimTime from, SimTime to);

 private:
  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;
  struct Span {
    SimTime start = 0, came = 0, end = 0;  // came: when all partners of a communication had
    NameId name, module;
    bool communication = false;
  };
  // A span of a followed rank: its place among these, and in it.
  struct At {
    std::uint32_t rank = kNone;
    std::size_t span = 0;
  };
  class Walk;

  const graph::Graph* graph_;
  std::vector<std::uint32_t> place_;      // by rank; kNone: not followed
  std::vector<std::vector<Span>> spans_;  // by followed rank
  std::int32_t iteration_ = 0;
};

}  // namespace orrery::results
