// The keys of a model, of its parallel plan, of training, and of the framework's behaviour.
#pragma once

#include "orrery/base/schema.h"

namespace orrery::workload {

const OptionTable& ModelOptions();      // section `model`
const OptionTable& ParallelOptions();   // section `parallel`
const OptionTable& TrainingOptions();   // section `training`
const OptionTable& FrameworkOptions();  // section `framework_options`

}  // namespace orrery::workload
