// A cluster's network without a job: what `orrery traffic` runs on.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/cluster/cluster.h"
#include "orrery/collective/collective.h"
#include "orrery/network/parameters.h"

namespace orrery::job {

struct NetworkSetup {
  cluster::Cluster cluster;
  collective::Environment environment;
  collective::Pricing pricing;
  network::Parameters parameters;
  std::string description;           // the cluster in one line
  std::vector<std::string> assumed;  // what was filled in
};

// `cluster` is a preset or a file, as in a job file, of so many `nodes`; 0: as many as it says
// itself, else 4. `set` entries are keys of a job file below
// cluster, collective, nccl, packet and perturb.links; others are refused. With `constants` links
// have the rates that long transfers reach, and collectives the fitted steps, as in a job; without,
// line rates.
Result<NetworkSetup> ReadNetworkSetup(const std::string& cluster, int nodes,
                                      std::string_view network, const std::vector<std::string>& set,
                                      const constants::Set* constants);

}  // namespace orrery::job
