// The text of PYTORCH_CUDA_ALLOC_CONF: "key:value,key:value", as a user would set it.
#pragma once

#include <string_view>

#include "orrery/base/status.h"
#include "orrery/memory/caching_allocator.h"

namespace orrery::memory {

// Keys that only concern pinned host memory, locks or tracing are accepted and change nothing here.
// An unknown key, a value out of range or another backend than `native` is an error.
Result<AllocatorSettings> ParseAllocatorConf(std::string_view text);

}  // namespace orrery::memory
