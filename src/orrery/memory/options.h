// Keys of the job file's `memory`.
#pragma once

#include "orrery/base/schema.h"

namespace orrery::memory {

const OptionTable& MemoryOptions();

}  // namespace orrery::memory
