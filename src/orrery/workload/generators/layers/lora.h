// LoRA (Hu et al. 2021): the model is frozen; beside a linear layer y = x·Wᵀ runs an adapter
// y += scale · (x·Aᵀ)·Bᵀ of rank r, and only A and B are trained.
//
// Forward of a target: two GEMMs, one kernel that scales, one that adds. Backward: the frozen
// layer's data gradient only; the adapter's scaling, the gradients of B, of x·Aᵀ, of A and of x,
// one kernel that adds the last to the data gradient. Dropout in front of A (0 by default) is left
// out. Over tp, as NeMo's ParallelLinearAdapter: beside a layer split by columns A is split by rank
// and its output gathered, B split by columns; beside one split by rows A is split by its input and
// its output summed, B split by columns and the adapter's output gathered. Backward in reverse.
// Beside a layer that every rank has whole (the down-projections of latent attention) A and B are
// whole, too: under sequence parallelism each rank adds up gradients of its own tokens, which are
// summed over tp at the end of the step.
// Kept for backward besides the layer's own: x·Aᵀ, s·b·r elements a target.
// An adapter of one's own is four modules of Python more.
// With the switch separate_adapters what one product makes (queries, keys and values; gate and up;
// keys and values of cross attention) has an adapter each, whose kernels run one after the other.
#pragma once

#include <string_view>
#include <vector>

#include "orrery/workload/generators/block_writer.h"
#include "orrery/workload/generators/shape.h"

namespace orrery::workload {

// How tensor parallelism splits a linear layer.
enum class Split : std::uint8_t { kColumns, kRows, kWhole };

// Whether the linear layer, by the name that its kernels have, is one of the targets.
bool Adapts(const Shape& s, std::string_view layer);

// Of a target of this name, whose sizes on this rank are `in` and `out`; else nothing.
void AdapterForward(const Shape& s, BlockWriter* w, std::string_view layer, std::int64_t in,
                    std::int64_t out, Split split);
void AdapterBackward(const Shape& s, BlockWriter* w, std::string_view layer, std::int64_t in,
                     std::int64_t out, Split split);

// Elements of the adapters of one layer on this rank: A, then B of each target.
std::vector<std::int64_t> AdapterParameters(const Shape& s);
// Of those, what every rank has whole.
std::int64_t WholeAdapterParameters(const Shape& s);
std::int64_t AdapterSavedBytes(const Shape& s);

}  // namespace orrery::workload
