// From a GOAL schedule to its result: no cluster, no graph; the LogGOPS model alone.
#pragma once

#include <string>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/results/goal.h"

namespace orrery::job {

// `set` entries are "loggops.KEY=value"; other keys are refused. Code::kInfeasible for a deadlock.
Result<results::GoalResult> SimulateGoal(const std::string& path,
                                         const std::vector<std::string>& set);

}  // namespace orrery::job
