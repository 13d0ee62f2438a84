// Text files of network simulators: ns-3's and SimAI's topology, htsim's .topo. No meaning beyond
// the fields; every value keeps its line.
//
// ns-3 (ASTRA-sim, HPCC): line 1 "nodes switches links", line 2 the switches' ids, then a line per
// cable "a b 400Gbps 0.0005ms error_rate". SimAI: line 1 "nodes gpus_per_server nvswitches
// other_switches links gpu_type", NVSwitches first in line 2. htsim: "Key value" lines, "Tier k"
// begins a tier, # comments.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/base/time.h"

namespace orrery::formats {

struct Ns3Topology {
  struct Cable {
    std::uint32_t a = 0, b = 0;
    std::int64_t bandwidth_Bps = 0;
    SimTime latency = 0;
    int line = 0;
  };
  bool simai = false;
  std::uint32_t nodes = 0;            // hosts (GPUs) and switches
  std::uint32_t gpus_per_server = 0;  // SimAI
  std::uint32_t nvswitches = 0;       // SimAI: the first of `switches`
  std::string gpu_type;               // SimAI
  std::vector<std::uint32_t> switches;
  std::vector<Cable> cables;
};
// Checked: counts agree, ids are below `nodes`, switches differ, no cable joins a node to itself.
Result<Ns3Topology> ParseNs3Topology(std::string_view text, const std::string& name);

struct HtsimTopology {
  struct Setting {
    std::string key;  // lower case
    std::string value;
    int line = 0;
  };
  struct Tier {
    std::vector<Setting> settings;
    int line = 0;
  };
  std::vector<Setting> settings;
  std::vector<Tier> tiers;  // 0 first
};
Result<HtsimTopology> ParseHtsimTopology(std::string_view text, const std::string& name);

}  // namespace orrery::formats
