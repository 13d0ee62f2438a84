// Attention as frameworks name it, on a GPU.
#pragma once

#include <string>
#include <string_view>

#include "orrery/job/frameworks.h"

namespace orrery::job {

// REQUIRES: `word` is a choice of framework_options.attention. A kernel is itself. `flash`: the
// framework's generation of flash attention; `sdpa`: PyTorch's choice on this GPU; `te`:
// Transformer Engine's for the model's heads; `flex`: FlexAttention, priced as flash attention 2.
workload::AttentionBackend AttentionNamed(std::string_view word, const FrameworkDefaults& defaults,
                                          cluster::Arch arch, const workload::Model& model);

// Heads that no fused kernel takes: under Transformer Engine their layers are unfused. What is
// priced for them, to be said; empty: there are none.
std::string SetWideHeads(const workload::Model& model, bool transformer_engine,
                         workload::FrameworkBehaviour* behaviour);

}  // namespace orrery::job
