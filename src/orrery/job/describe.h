// One-line descriptions of jobs and clusters for people. Internal to `job`.
#pragma once

#include <string>

#include "orrery/cluster/cluster.h"
#include "orrery/job/job.h"
#include "orrery/results/result.h"

namespace orrery::job {

// `ranks`: GPUs that run something; 0: all of them.
std::string DescribeCluster(const cluster::Spec& spec, std::size_t ranks = 0);
std::string DescribeWorkload(const Workload& workload);
results::JobFacts FactsOf(const Job& job, const Workload& workload);
// Cluster and NCCL variables as text: equal texts mean equal prices.
std::string MachineText(const Job& job);

}  // namespace orrery::job
