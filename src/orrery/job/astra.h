// ASTRA-sim's command line: its workload, system, network and memory files, run by its own system
// layer (orrery/astra), to the nanosecond.
#pragma once

#include <string>
#include <vector>

#include "orrery/base/schema.h"
#include "orrery/base/status.h"
#include "orrery/results/trace.h"

namespace orrery::job {

// ASTRA-sim's options by their own names, dashes for underscores.
struct AstraOptions {
  std::string workload_configuration;  // a prefix of Chakra traces
  std::string system_configuration;
  std::string network_configuration;
  std::string remote_memory_configuration;
  std::string comm_group_configuration;  // "", or a name with "empty" in it: none
  int num_queues_per_dim = 1;
  double injection_scale = 1;
  bool rendezvous_protocol = false;
  bool fold = true;
  std::string timeline;          // a Perfetto trace to write; "": none
  std::string timeline_ranks;    // "0,8,16-19"; "": rank 0
  std::vector<std::string> set;  // key=value below `astra`
};

Result<results::TraceResult> SimulateAstra(const AstraOptions& options);

const OptionTable& AstraKeys();  // section `astra` of --set

}  // namespace orrery::job
