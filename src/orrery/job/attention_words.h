// Attention as frameworks name it, on a GPU.
#pragma once

#include <string_view>

#include "orrery/job/frameworks.h"

namespace orrery::job {

// REQUIRES: `word` is a choice of framework_options.attention. A kernel is itself. `flash`: the
// framework's generation of flash attention; `sdpa`: PyTorch's choice on this GPU; `te`:
// Transformer Engine's for the model's heads; `flex`: FlexAttention, priced as flash attention 2.
workload::AttentionBackend AttentionNamed(std::string_view word, const FrameworkDefaults& defaults,
                                          cluster::Arch arch, const workload::Model& model);

}  // namespace orrery::job
