// Tensors that a layer keeps for its backward pass in fewer bits than it makes them in.
//
//   switch                tensor                     kept as                  source
//   fp8_activation_input  a SwiGLU's input           fp8 without scales:      Megatron Core,
//   fused_bias_swiglu.py
//                                                    1 byte a value
//                                                    (activation_func_fp8_input_store)
//   packed_context        what core attention puts   12 bits a value, scales  DeepSeek-V3 technical
//   report,
//                         out                        left out                 section 3.3.3 (E5M6)
//
// Forward, a kernel behind the last use reads the wide tensor and writes the kept one, and the wide
// one is given back. Backward, another makes it again before its first use there.
#pragma once

#include <cstdint>
#include <string_view>

#include "orrery/workload/generators/block_writer.h"
#include "orrery/workload/generators/shape.h"

namespace orrery::workload {

// Bytes of `elements` as they are kept.
std::int64_t ActivationInputBytes(const Shape& s, std::int64_t elements);
std::int64_t ContextBytes(const Shape& s, std::int64_t elements);

// `wide` without bytes: the tensor is kept as it is, and neither writes anything.
void StoreNarrow(const Shape& s, BlockWriter* w, const graph::Buffer& wide,
                 const graph::Buffer& kept);
void Widen(const Shape& s, BlockWriter* w, const graph::Buffer& wide, const graph::Buffer& kept);

}  // namespace orrery::workload
