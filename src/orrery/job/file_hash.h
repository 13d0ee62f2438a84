// The contents of the files that a job names. Internal to `job`.
#pragma once

#include <cstdint>

#include "orrery/job/job.h"

namespace orrery::job {

// Of schedules, routings, the topology's file and the slowdown's, which stand in the resolved
// configuration by their names alone; 0: there are none. Data and NCCL's tuner have hashes of their
// own (Data::hash, Job::tuner_hash).
std::uint64_t HashOfFiles(const Job& job);

}  // namespace orrery::job
