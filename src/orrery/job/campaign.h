// The job file's `cost` and `goodput`: read, and what they ask for. Internal to `job`.
#pragma once

#include "orrery/compute/compute.h"
#include "orrery/graph/graph.h"
#include "orrery/job/job.h"
#include "orrery/job/reader.h"
#include "orrery/results/result.h"

namespace orrery::job {

// Prices, power, electricity and rates of failures that the job leaves out come from data/; which
// ones is listed in `assumed`.
Status ReadCampaign(const Source& source, const formats::Node& root, Job* job);

// Fills cost and goodput of the result of workload `index`, where the job asks for them.
// `draw`: with the interval of goodput.
void AddCampaign(const Job& job, std::size_t index, const graph::Graph& graph,
                 const compute::CostModel& compute, bool draw, results::JobResult* result);

}  // namespace orrery::job
