// Keys of the back ends' own parameters.
#pragma once

#include "orrery/base/schema.h"

namespace orrery::network {

// `loggops`: the model's parameters (goal_machine.h).
const OptionTable& LogGopsOptions();

}  // namespace orrery::network
