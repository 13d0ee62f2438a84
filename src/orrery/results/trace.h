// What a run of a trace says: when each rank is done, and what its time went to.
#pragma once

#include <string>

#include "orrery/network/parameters.h"
#include "orrery/results/result.h"

namespace orrery::results {

struct TraceResult {
  std::string source;   // the file
  std::string format;   // "GOAL"
  std::string cluster;  // empty: none, every pair of ranks alike
  std::string network;
  std::string parameters;  // of the network, for the report; may be empty
  std::size_t operations = 0;
  std::size_t programs = 0;
  int processors = 0;  // a rank's, where its operations hold them
  engine::Record record;
  std::vector<WorstLink> worst_links;
  UseOverTime over_time;
  Simulation simulation;
  std::vector<std::string> assumed, warnings;
  std::string config_json;  // what was chosen, one JSON object
};

// The simulation's part that the record knows.
void FillSimulation(const engine::Record& record, Simulation* simulation);

std::string ToJson(const TraceResult& result);
std::string Report(const TraceResult& result);

}  // namespace orrery::results
