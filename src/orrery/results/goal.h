// What a run of a GOAL schedule says: when each rank is done and what held its processors.
#pragma once

#include <string>

#include "orrery/network/goal_machine.h"
#include "orrery/results/result.h"

namespace orrery::results {

struct GoalResult {
  std::string source;  // the file
  std::size_t operations = 0;
  int cpus = 1;
  network::LogGops parameters;
  network::GoalRun run;
  Simulation simulation;
  std::vector<std::string> warnings;
  std::string config_json;  // the parameters, one JSON object
};

std::string ToJson(const GoalResult& result);
std::string Report(const GoalResult& result);

}  // namespace orrery::results
