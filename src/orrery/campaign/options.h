// Keys of the job file's `cost` and `goodput`.
#pragma once

#include "orrery/base/schema.h"

namespace orrery::campaign {

const OptionTable& CostOptions();
const OptionTable& GoodputOptions();

}  // namespace orrery::campaign
