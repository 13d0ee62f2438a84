// What of a training job a fitted constant may depend on, beside its machine
// (cluster::AddScope): words of constants::Scope.
#pragma once

#include "orrery/constants/set.h"
#include "orrery/workload/host_work.h"
#include "orrery/workload/model.h"
#include "orrery/workload/plan.h"

namespace orrery::workload {

void AddScope(const Model& model, const Plan& plan, HostEra host, constants::Scope* scope);

}  // namespace orrery::workload
