// Any graph as a GOAL schedule, and what GOAL cannot say of it.
//
// A rank's operations become calcs, sends and receives with the dependencies that its streams,
// events and host make. What runs side by side on a rank gets a processor of its own: each
// processor that operations hold, the host, each stream, each lane of a collective; a point where
// several orders meet is a calc of 0 on a processor that nothing else uses. A collective becomes
// the messages of its lowered schedule (collective/lowering/lowering.h) on the cluster at hand, its
// copies and reductions calcs between them; each of its connections has a tag of its own.
//
// Cost: O(operations written), 32 bytes each and 4 a dependency.
#pragma once

#include <string>
#include <vector>

#include "orrery/engine/engine.h"
#include "orrery/formats/goal.h"

namespace orrery::job {

struct GoalExport {
  formats::GoalSchedule schedule;
  std::vector<std::string> lost;  // sentences
};

// `iterations` of each job that repeats. Refused: more than kMostGoalOperations, more processors
// than GOAL's 256, a message whose peer is no rank.
inline constexpr std::size_t kMostGoalOperations = 50'000'000;
Result<GoalExport> ExportGoal(const engine::Inputs& inputs, int iterations);

}  // namespace orrery::job
