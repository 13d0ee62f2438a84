// Several jobs on one cluster: together, each alone, and by pairs.
//
// Jobs that only train go on until the last has ended, and their steps are compared (the engine's
// fast machine). Where one does not train, or has its own begin or end, every job runs as often as
// its entry says on the general machine, and completion times are compared. Alone and in pairs a
// job has the same ranks on the same GPUs and paths, the others are not there. Runs beside the one
// together do not depend on each other: threads take them in turn.
//
// Cost: runs = 1 + jobs (alone) + jobs · (jobs - 1) / 2 (pairs); of two jobs the pair is the run
// together.
#pragma once

#include <vector>

#include "orrery/base/ids.h"
#include "orrery/base/status.h"
#include "orrery/job/job.h"
#include "orrery/job/simulate.h"
#include "orrery/results/result.h"

namespace orrery::job {

// REQUIRES: job.tenants is not empty.
Result<results::RunResult> SimulateTenants(const Job& job, const SimulateOptions& options);

// Adds to the result of several jobs that train what each does alone and in pairs. `devices`: of
// all ranks.
Status CompareTraining(const Job& job, const SimulateOptions& options,
                       const std::vector<DeviceId>& devices, Caches* caches,
                       results::RunResult* result);

}  // namespace orrery::job
