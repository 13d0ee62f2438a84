// Keys of the back ends' own parameters.
#pragma once

#include "orrery/base/schema.h"

namespace orrery::network {

// `loggops`: the model's parameters (engine/general/joint.cc).
const OptionTable& LogGopsOptions();     // section `loggops` of a GOAL schedule
const OptionTable& JobLogGopsOptions();  // section `loggops` of a job file

// `packet`: switches, hosts and congestion control (parameters.h, packet/).
const OptionTable& PacketOptions();

}  // namespace orrery::network
