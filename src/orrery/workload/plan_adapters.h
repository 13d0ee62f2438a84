// Rules of Validate(model, plan) about fine-tuning: adapters, frozen weights in 4 and 8 bits.
#pragma once

#include "orrery/base/status.h"
#include "orrery/workload/model.h"
#include "orrery/workload/plan.h"

namespace orrery::workload {

// Whether ranks hold parts of gradients, or of parameters as well.
bool SplitsUnits(const Plan& plan);

// Whether experts' adapters become part of the weights in front of the product, as PEFT's do
// (generators/experts/expert_adapters.h).
bool MergesAdapters(ExpertAdapterKind kind);

Status CheckLora(const Model& model, const Plan& plan);

}  // namespace orrery::workload
