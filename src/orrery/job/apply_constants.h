// A job under other constants than it was read with: `validate` predicts a row under several.
#pragma once

#include "orrery/constants/set.h"
#include "orrery/job/job.h"

namespace orrery::job {

// Gives the machine, the hosts and the ranks these constants, as ReadJob does with its own.
void ApplyConstants(const constants::Set& constants, Job* job);

}  // namespace orrery::job
