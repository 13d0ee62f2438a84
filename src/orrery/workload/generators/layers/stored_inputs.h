// Tensors that a layer keeps for its backward pass in fewer bits than it makes them in.
//
// fp8_activation_input: a SwiGLU's input, as fp8 without scales, 1 byte a value. Source: Megatron
// Core, fused_bias_swiglu.py (activation_func_fp8_input_store).
//
// packed_context: what core attention puts out, in 12 bits a value; scales are left out. Source:
// DeepSeek-V3 technical report, section 3.3.3 (E5M6).
//
// Forward, a kernel behind the last use reads the wide tensor and writes the kept one, and the wide
// one is given back. Backward, another makes it again before its first use there.
#pragma once

#include <cstdint>

#include "orrery/workload/generators/block_writer.h"
#include "orrery/workload/generators/shape.h"

namespace orrery::workload {

// Bytes of `elements` as they are kept.
std::int64_t ActivationInputBytes(const Shape& s, std::int64_t elements);
std::int64_t ContextBytes(const Shape& s, std::int64_t elements);

// `wide` without bytes: the tensor is kept as it is, and neither of the two behind writes anything.
inline const graph::Buffer& AsMade(const graph::Buffer& wide, const graph::Buffer& kept) {
  return wide.bytes > 0 ? wide : kept;
}
void StoreNarrow(const Shape& s, BlockWriter* w, const graph::Buffer& wide,
                 const graph::Buffer& kept);
void Widen(const Shape& s, BlockWriter* w, const graph::Buffer& wide, const graph::Buffer& kept);

}  // namespace orrery::workload
