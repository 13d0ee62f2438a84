// Manifold-constrained hyper-connections (Xie et al. 2026; DeepSeek-V4, 2026, section 2.2).
//
// The residual has N streams. In front of attention and of the feed-forward a product of all of a
// token's streams, normalised, with (2 + N) · N columns in fp32 gives weights: N with which the
// streams are summed to the part's input, N with which its output is spread over them, and N · N,
// made doubly stochastic by Sinkhorn's iterations, with which the streams are mixed. Behind the
// last layer N weights sum the streams. Kernels: the streams' norm and the product, one for the
// weights (as fused kernels have it; transformers runs some 40 small ones), one that sums, one that
// mixes and spreads. Kept for backward besides the layer's own: N - 1 streams more in front of each
// part. Every rank has all of it; built without tensor parallelism. Source: transformers 5.24.0,
// models/deepseek_v4 (DeepseekV4HyperConnection), read for its behaviour.
#pragma once

#include <cstdint>
#include <vector>

#include "orrery/workload/generators/block_writer.h"
#include "orrery/workload/generators/shape.h"

namespace orrery::workload {

// Of both halves of a layer; empty without streams.
std::vector<std::int64_t> HyperParameters(const Shape& s);

// The halves of a layer, attention and feed-forward; behind the last layer a sum alone.
enum class HyperPart : std::uint8_t { kAttention, kFeedForward };
// REQUIRES, of all: s.hyper_streams > 0. `again`: what the part reads is there from the first run.
void GatherStreams(const Shape& s, HyperPart part, bool again, BlockWriter* w);
void SpreadStreams(const Shape& s, BlockWriter* w);
// What a layer that runs again does not leave to its backward pass.
void DropStreams(const Shape& s, BlockWriter* w);
void GatherStreamsBackward(const Shape& s, HyperPart part, BlockWriter* w);
void SpreadStreamsBackward(const Shape& s, BlockWriter* w);
void SumStreams(const Shape& s, BlockWriter* w);
void SumStreamsBackward(const Shape& s, BlockWriter* w);

}  // namespace orrery::workload
