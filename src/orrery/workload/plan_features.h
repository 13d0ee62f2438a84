// Rules of fine-tuning, offloading, optimizers and CUDA graphs.
#pragma once

#include "orrery/workload/plan.h"

namespace orrery::workload {

Status CheckFeatures(const Model& model, const Plan& plan);

}  // namespace orrery::workload
