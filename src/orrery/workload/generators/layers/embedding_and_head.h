// The two ends of the model: embedding, and final norm, output layer and loss.
//
// Embedding: vocab-parallel lookup (out-of-range tokens masked when tp > 1), summed over tp;
// learned positions added after an all-reduce, then the sequence is split under SP; rotary models
// reduce-scatter at once. Loss: vocab-parallel cross entropy on fp32 logits with Megatron's three
// all-reduces (maximum, predicted logit, sum of exponentials).
#pragma once

#include "orrery/workload/generators/layers/layer_ops.h"

namespace orrery::workload {

// The modules around a chunk's layers, where neither end of the model is: what fetches a
// micro-batch has them.
graph::Block EnterChunk(const Shape& s, Names* names);
// Into a block that does more besides: the look-up of s.tokens().
void WriteEmbeddingForward(const Shape& s, BlockWriter* w);
void WriteEmbeddingBackward(const Shape& s, BlockWriter* w);
graph::Block EmbeddingForward(const Shape& s, Names* names);
graph::Block EmbeddingBackward(const Shape& s, Names* names);
graph::Block HeadForward(const Shape& s, Names* names);
graph::Block HeadBackward(const Shape& s, Names* names);

}  // namespace orrery::workload
