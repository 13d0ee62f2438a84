// A layer with experts in three parts, so that its exchanges run beside another micro-batch.
//
// Megatron's combined 1F1B (overlap_moe_expert_parallel_comm) walks the layers of one micro-batch's
// forward and of another's backward in step. With F and B in parts at their two exchanges, one pair
// of layers is, on the compute stream:
//
//   B1, F1, (combine's gradient arrived) B2, (tokens arrived) F2, (dispatch's gradient arrived) B3,
//   (results arrived) F3
//
// and each exchange, in the order B, F, B, F on its stream, has the part after it to hide behind.
// Source: megatron/core/models/common/model_chunk_schedule_plan.py, read for its behaviour.
//
// A part is a whole layer's block cut behind an exchange, which becomes one that the call's event
// records; the next part begins when that event has been waited for. Tensors that were temporary in
// the layer and live across a cut become the micro-batch's.
#pragma once

#include "orrery/workload/generators/block_writer.h"
#include "orrery/workload/generators/shape.h"

namespace orrery::workload {

inline constexpr int kExpertParts = 3;

// REQUIRES: `layer` is a layer with experts over ep > 1 ranks, forward or backward, exchanges
// blocking; part is 0 to 2.
graph::Block PartOf(const graph::Block& layer, int part, Names* names);

// Part of a layer's backward pass. With delayed weight gradients parts 1 and 2 leave theirs to
// blocks of their own, of experts and of what stands before the dispatch: the order is then
//
//   B1, (the rest of the pair before), F1, B2, weights of B2, F2, B3, F3, and its weights of B3
//   behind the next pair's B1
//
// so that the dispatch's gradient travels beside the experts' weight gradients as well, and the
// next layer's combine beside those of attention.
graph::Block BackwardPart(const Shape& s, int part, Names* names);
graph::Block WeightPart(const Shape& s, int part, Names* names);

}  // namespace orrery::workload
