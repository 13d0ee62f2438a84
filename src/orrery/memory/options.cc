#include "orrery/memory/options.h"

namespace orrery::memory {
namespace {

using enum OptionType;

constexpr Option kMemory[] = {
    {.name = "allocator",
     .type = kText,
     .doc = "Settings of PyTorch's allocator, as PYTORCH_CUDA_ALLOC_CONF has them: "
            "expandable_segments:True,max_split_size_mb:128."},
    {.name = "timeline",
     .type = kBool,
     .fallback = "false",
     .doc = "Bytes allocated and reserved after every call of an iteration, in the result."},
};

constexpr OptionTable kTable{
    .path = "memory", .doc = "GPU memory (docs/memory.md).", .options = kMemory};

}  // namespace

const OptionTable& MemoryOptions() { return kTable; }

}  // namespace orrery::memory
