// Rules of Validate(model, plan) about 8 and 4 bits; used by plan.cc only.
#pragma once

#include "orrery/base/status.h"
#include "orrery/workload/model.h"
#include "orrery/workload/plan.h"

namespace orrery::workload {

Status CheckPrecision(const Model& model, const Plan& plan);

}  // namespace orrery::workload
