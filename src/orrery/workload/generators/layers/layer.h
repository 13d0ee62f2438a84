// One transformer layer of Megatron Core, forward and backward, kernel by kernel.
//
// Forward: norm, qkv, rotary, core attention, projection, bias-dropout-add, norm, fc1, activation,
// fc2, bias-dropout-add. Backward: the same in reverse, a linear layer being data gradient then
// weight gradient. Core attention is one flash kernel, or scores, masked softmax, dropout, context.
//
// Saved for backward, per micro-batch (Korthikanti et al. 2022, eq. 1, counts the same tensors):
// the layer's input, both norms' outputs and statistics, qkv (with rotary positions also the
// rotated q and k: v is a view that keeps qkv alive), the attention's output and statistics (flash)
// or probabilities, the second norm's input, fc1's output, the activation's output, dropout masks
// of one byte. A layer owns its input: the preceding layer's output passes to it when the call
// begins.
#pragma once

#include "orrery/workload/generators/layers/layer_ops.h"

namespace orrery::workload {

// Into a block that does more besides.
void WriteLayerForward(const Shape& s, BlockWriter* w);
void WriteLayerBackward(const Shape& s, BlockWriter* w);
graph::Block LayerForward(const Shape& s, Names* names);
// Under full recompute the forward pass, its communication included, runs again first; under
// selective recompute the parts that MemorySaving::recompute_modules names do.
graph::Block LayerBackward(const Shape& s, Names* names);

}  // namespace orrery::workload
