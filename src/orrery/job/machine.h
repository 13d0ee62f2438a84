// What a job runs on, built: cluster, GPU, network library. Internal to `job`.
#pragma once

#include <memory>
#include <optional>

#include "orrery/base/status.h"
#include "orrery/cluster/cluster.h"
#include "orrery/collective/collective.h"
#include "orrery/compute/compute.h"
#include "orrery/engine/prices.h"
#include "orrery/job/job.h"
#include "orrery/job/simulate.h"

namespace orrery::job {

// All that prices depend on: cluster, GPU, network library. Addresses inside are stable.
struct Machine {
  cluster::Cluster cluster;
  compute::CostModel compute;
  std::optional<collective::Planner> planner;
  std::optional<engine::PriceCache> prices;
};

Result<std::unique_ptr<Machine>> BuildMachine(const Job& job, const SimulateOptions& options);

}  // namespace orrery::job
