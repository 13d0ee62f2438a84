// What a layer in plain PyTorch runs where a framework has fused kernels of its own (TorchLayers):
// torchtitan's Llama (models/llama3/model.py, norms.py), of which Hugging Face's differs little.
// Bytes per element, e of them in the model's type, forward and backward:
//
//   RMSNorm, eager   to fp32, squared, averaged, scaled, back, times its weight: 28 + 4e; backward
//                    the same operators' gradients, pow's by a copy, a doubling and a product
//                    (derivatives of aten::pow and mean): 80 + 6e
//   gate, eager      silu and product 5e; backward 9e. No gradients are concatenated: the halves
//                    are layers of their own
//   rotation         to fp32, a product of complex numbers, back: 16 + 2e each way; Inductor has no
//                    complex operators and leaves it as it is
//   repeated heads   keys and values written once for each query head that reads them (repeat_kv),
//                    backward their gradients summed
//
// Kept for the backward pass beside what fused kernels keep: fp32 and normalised inputs of eager
// norms (the latter for their weights, unless these are frozen), eager silu's output, the repeated
// heads.
#pragma once

#include <string_view>

#include "orrery/workload/generators/block_writer.h"
#include "orrery/workload/generators/shape.h"

namespace orrery::workload {

inline bool EagerNorms(const Shape& s) {
  return s.framework.torch_layers == TorchLayers::kEager && s.norm == Norm::kRmsNorm;
}
inline bool EagerGates(const Shape& s) {
  return s.framework.torch_layers == TorchLayers::kEager && s.activation == Activation::kSwiglu;
}

// An RMSNorm of rows × cols. REQUIRES: EagerNorms(s).
void EagerRmsNorm(const Shape& s, BlockWriter* w, std::int64_t rows, std::int64_t cols,
                  graph::Pass pass);
// Bytes that it keeps.
std::int64_t EagerNormBytes(const Shape& s, std::int64_t elements);
// silu(gate) · up over rows × cols. REQUIRES: EagerGates(s).
void EagerGate(const Shape& s, BlockWriter* w, std::int64_t rows, std::int64_t cols,
               graph::Pass pass);
// Queries or keys of all tokens, `width` wide. REQUIRES: s.plain_torch().
void ComplexRotary(const Shape& s, BlockWriter* w, std::string_view name, std::int64_t width,
                   graph::Pass pass);
// Nothing unless s.repeats_heads().
void RepeatHeads(const Shape& s, BlockWriter* w, graph::Pass pass);

}  // namespace orrery::workload
