// Linear layers in 8 and 4 bits: which GEMMs, which casts, how many bytes.
//
// Model: the three GEMMs of qkv, projection, fc1 and fc2 run in low precision; attention, norms,
// embedding, logits and residuals stay in bf16 unless told, gradients leave the GEMM as without it.
// Before a GEMM its bf16 operand is cast, once along rows and once along columns, since the weight
// gradient contracts over tokens (under LoRA it does not exist). Weights are cast once an
// iteration, under ZeRO-3 whenever gathered.
//
//   recipe     element and scale         before the cast        source
//   delayed    fp8, one per tensor       nothing: yesterday's   Transformer Engine, DelayedScaling;
//                                        maximum; summed over   norms write fp8 themselves
//                                        the model group
//   current    fp8, one per tensor       a pass for the maximum Float8CurrentScaling
//   blockwise  fp8, fp32 per 128         nothing                Float8BlockScaling
//   mxfp8      fp8, 1 byte per 32        nothing                MXFP8BlockScaling; OCP MX 1.0
//   nvfp4      fp4, 1 byte per 16        a pass for the maximum NVFP4BlockScaling
//
// Attention in 8 bits casts queries, keys and values before its kernel and the gradient of its
// output before the backward one, whose products then run at twice the rate and whose exponentials
// do not; a context-parallel group exchanges them as cast, what comes out in 16 bits. Beside nvfp4
// its scales are those of tensors (NVTE_DPA_FP8_RECIPE). The output layer in 8 bits is a linear
// layer like the others.
//
// Layers at the ends and parts of all layers may stay in bf16 (NumberFormats::bf16_first_layers,
// bf16_last_layers, bf16_modules); what is gathered in low precision is counted whole.
//
// Under sequence parallelism an operand with one scale that is found in a pass is cast with the
// maximum over the ranks that hold its parts, an all-reduce the cast waits for (Transformer Engine,
// with_amax_reduction; nvfp4 two numbers, of rows and of rotated columns). Operands are gathered as
// cast, gradients of outputs with block scales (blockwise, mxfp8, nvfp4) in both directions
// (Transformer Engine, gather_along_first_dim; beside the data gradient under userbuffers, pull
// request 1982). nvfp4 casts along columns in a kernel of its own, which rotates (its random
// Hadamard transform). Left out: stochastic rounding, re-ordering of scales.
#pragma once

#include <cstdint>
#include <string_view>

#include "orrery/workload/generators/block_writer.h"
#include "orrery/workload/generators/shape.h"

namespace orrery::workload {

// The same without a recipe, and with weights that are not quantised; where the plan keeps a part
// in bf16.
inline Shape InBf16(Shape s) {
  s.low_precision = LowPrecision::kNone;
  s.base_weights = BaseWeights::kModelType;
  return s;
}
inline Shape PartShape(const Shape& s, Bf16Module part) {
  return (s.bf16_modules & part) != 0 ? InBf16(s) : s;
}
inline bool AttendsIn8Bits(const Shape& s) {
  return s.framework.fp8_attention && s.low_precision != LowPrecision::kNone;
}
inline graph::DType AttentionType(const Shape& s) {
  return AttendsIn8Bits(s) ? graph::DType::kFp8 : s.dtype;
}
inline Shape OutputShape(const Shape& s) { return s.framework.fp8_output_layer ? s : InBf16(s); }
inline bool IsLow(const Shape& s) { return s.low_precision != LowPrecision::kNone; }
graph::DType LinearType(const Shape& s);  // of the operands of a linear layer's GEMMs
// Bytes of an operand once cast, scales included; of `elements` in Shape::dtype without a recipe.
std::int64_t LinearBytes(const Shape& s, std::int64_t elements);

// The kernels that cast a rows × cols operand; none without a recipe. `fused`: a norm wrote it in
// low precision where the recipe knows its scale beforehand. `split`: over the tensor-parallel
// ranks under sequence parallelism, who agree on its maximum first.
void CastOperand(const Shape& s, BlockWriter* w, std::string_view name, std::int64_t rows,
                 std::int64_t cols, graph::Pass pass, bool fused = false, bool split = false);
// What attention in 8 bits casts before its kernel: this rank's tokens × cols; else nothing.
void CastAttention(const Shape& s, BlockWriter* w, std::int64_t cols, graph::Pass pass);
// Under sequence parallelism a gradient of the output is gathered once a direction: with scales a
// block what was gathered for the data gradient cannot be turned for that of the weights.
bool GathersBothDirections(const Shape& s);
// Weights in two directions.
void CastWeights(const Shape& s, BlockWriter* w, std::int64_t elements, graph::Pass pass);

// Elements of the weights that a layer of this shape casts, experts' among them.
std::int64_t LinearWeights(const Shape& s);
// Casts a stage's `weights` and, with delayed scaling, sums the maxima of all `model_layers` over
// the model group.
graph::Block CastAllWeights(const Shape& s, std::int64_t weights, std::int64_t norm_group,
                            std::int64_t model_layers, Names* names);

// Both casts of these weights are kept from one iteration to the next, in place of the parameters
// themselves where those are kept in low precision (low_precision_gather).
graph::Block LowPrecisionMemory(const Shape& s, std::int64_t weights, Names* names);

}  // namespace orrery::workload
