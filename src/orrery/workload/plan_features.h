// Rules of fine-tuning, offloading, optimizers and CUDA graphs.
#pragma once

#include <string>

#include "orrery/workload/plan.h"

namespace orrery::workload {

// Whether tensor-parallel communication can run in pieces where the plan asks for it.
Status CheckTpOverlap(const Model& model, const Plan& plan);
// Of schedules that split the backward pass, or are given.
Status CheckPasses(const Plan& plan);
Status CheckOffload(const Model& model, const Plan& plan);
Status CheckFeatures(const Model& model, const Plan& plan);

// "4 or 8": the divisors of n nearest to `value` on either side.
std::string NearestDivisors(std::int64_t n, std::int64_t value);

}  // namespace orrery::workload
