// Attention to a window and to compressed keys (DeepSeek-V4, 2026, section 2.3).
//
// One key, which is the value, too, is shared by all heads. In front of attention a compressor
// makes one key of every `compress` tokens: a softmax over them of gates and learned places weighs
// their keys. Where an indexer chooses among them the compressor has two overlapping series, and
// the indexer a compressor of its own; it scores sum over heads of w(t, h) · ReLU(q(t, h) · k(s)),
// and a query sees the best. Attention is priced as one whose window has as many keys. Its output
// is projected in groups of heads to a rank each, and from there to the hidden size. The indexer's
// choice has no gradient, and transformers computes no loss for it: its backward pass is empty.
// Built for one rank of tensor and context parallelism.
// Source: transformers 5.24.0, models/deepseek_v4, read for its behaviour.
#pragma once

#include <cstdint>
#include <vector>

#include "orrery/workload/generators/block_writer.h"
#include "orrery/workload/generators/shape.h"

namespace orrery::workload {

// REQUIRES, of all: s.compressed_keys.any().
// Keys that attention's window has: its own and compressed ones.
std::int64_t CompressedWindow(const Shape& s);
// Projection, the key's norm, compressor and indexer.
std::vector<std::int64_t> CompressedParameters(const Shape& s);

// Behind the rotation of queries and key, and its backward pass in front of that of the rotation.
void CompressKeys(const Shape& s, BlockWriter* w);
void CompressKeysBackward(const Shape& s, BlockWriter* w);

// In place of the projection of attention's output.
void GroupedProjection(const Shape& s, BlockWriter* w);
void GroupedProjectionBackward(const Shape& s, BlockWriter* w);

// Bytes that stay for backward besides the layer's own.
std::int64_t CompressedSaved(const Shape& s);

}  // namespace orrery::workload
