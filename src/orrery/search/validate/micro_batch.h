// A row that says neither micro_batch nor grad_accum, nor have the release's scripts it.
#pragma once

#include <string>
#include <vector>

#include "orrery/search/validate/runner.h"
#include "orrery/search/validate/training.h"

namespace orrery::search {

// MapTraining, and where nothing says how a replica's batch is cut: of 1, 2, 4, 8 and 16 sequences
// the fastest that fits the device, by prediction with a-priori constants, as those who publish
// what they reach have tuned it. Where none fits: 1. Some 0.15 s for
// a row of 2,304 GPUs.
Result<TrainingCase> MapTuned(const Configuration& row, MachinePool* pool,
                              std::vector<std::string>* assumed);

}  // namespace orrery::search
