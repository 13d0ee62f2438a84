// Multi-head latent attention's projections; the core is layer_writer's.
#pragma once

#include "orrery/workload/generators/layers/layer_ops.h"

namespace orrery::workload {

// From the norm's output to queries, keys and values, and their gradients back to it.
void LatentForward(const Shape& s, BlockWriter* w);
void LatentBackward(const Shape& s, BlockWriter* w);
// Of ordinary attention whose queries alone are compressed, up to where positions are added.
void CompressedForward(const Shape& s, BlockWriter* w);
void CompressedBackward(const Shape& s, BlockWriter* w);
// The up-projections and all behind them, again in backward.
void LatentUp(const Shape& s, BlockWriter* w);
// Bytes that stay for the backward pass: the compressed tensors, and what comes of the
// up-projections.
std::int64_t LatentSaved(const Shape& s);
// What the norms of the compressed tensors put out, among them unless recompute_modules has
// latent_norm; the norms, again in backward.
std::int64_t LatentNormedBytes(const Shape& s);
void LatentNormsAgain(const Shape& s, BlockWriter* w);
std::int64_t LatentUpSaved(const Shape& s);

}  // namespace orrery::workload
