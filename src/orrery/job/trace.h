// From a trace (a file that brings its own operations) to its result, on any network.
#pragma once

#include <string>
#include <vector>

#include "orrery/base/schema.h"
#include "orrery/base/status.h"
#include "orrery/constants/set.h"
#include "orrery/graph/graph.h"
#include "orrery/results/trace.h"

namespace orrery::job {

struct TraceOptions {
  std::string network = "loggops";
  std::string
      cluster;    // a preset or a file; empty: none, which loggops with joint endpoints allows
  int nodes = 0;  // 0: as many as the ranks need
  // key=value below loggops, goal, simulation, nccl, collective, cluster and perturb.
  std::vector<std::string> set;
  std::string timeline, timeline_ranks;
  const constants::Set* constants = nullptr;
};

// Runs a GOAL schedule (docs/formats/goal.md). Code::kInfeasible for a deadlock.
Result<results::TraceResult> SimulateGoal(const std::string& path, const TraceOptions& options);
// Runs a graph in either of its forms (docs/formats/graph.md).
Result<results::TraceResult> SimulateGraph(const std::string& path, const TraceOptions& options);

// Keys of --set that traces take beside a cluster's: section `goal`.
const OptionTable& GoalOptions();

}  // namespace orrery::job
