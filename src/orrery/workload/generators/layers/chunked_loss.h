// Output layer and loss in one operation, a chunk of tokens after the other, so that the logits of
// all tokens never exist (Liger Kernel's fused linear cross entropy).
//
// Forward, per chunk: logits in 16 bits, loss and their gradient in place in one kernel (two passes
// over them), the chunk's part of the input's gradient, its part added to the weight's. Backward
// only scales both gradients. Chunks are as many as the vocabulary is wider than the hidden size,
// rounded so that a chunk's tokens are a power of two (fused_linear_cross_entropy.py): the logits
// of one take about as much as the layer's input. The whole vocabulary must lie on one rank.
#pragma once

#include "orrery/workload/generators/layers/layer_ops.h"

namespace orrery::workload {

// Tokens of a chunk; the last may hold fewer.
std::int64_t LossChunk(const Shape& s);
void ChunkedLossForward(const Shape& s, BlockWriter* w);
void ChunkedLossBackward(const Shape& s, BlockWriter* w);

}  // namespace orrery::workload
