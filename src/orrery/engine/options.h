// The keys of a run: iterations, seed, and what disturbs it.
#pragma once

#include "orrery/base/schema.h"

namespace orrery::engine {

const OptionTable& SimulationOptions();   // section `simulation`
const OptionTable& PerturbOptions();      // section `perturb`
const OptionTable& PerturbRankOptions();  // an entry of `perturb.ranks`
const OptionTable& PerturbLinkOptions();  // an entry of `perturb.links`

}  // namespace orrery::engine
