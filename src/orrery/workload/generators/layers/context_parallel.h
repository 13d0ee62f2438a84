// Core attention of a sequence that lies on cp ranks: what is exchanged, which kernels run.
//
// Each rank holds two of 2·cp equal parts, one from either end, so that the causal mask leaves all
// ranks the same work: 1/cp of the causal square. Forms (Transformer Engine's cp_comm_type):
//   ring        p2p: keys and values travel round the ring, cp - 1 steps, each beside the attention
//               over the part at hand; the first step is causal, the others see half of a square.
//               A step's result is merged into the sum (Liu et al. 2023, Ring Attention). Backward:
//               keys and values again, their gradients one step behind, home after the last.
//   all-gather  keys and values of all ranks, then attention of the rank's own queries; backward
//               gathers again and reduce-scatters their gradients (Llama 3, section 3.3.2).
//   all-to-all  queries, keys, values dealt out by heads, attention over the whole sequence, the
//               output dealt back (Jacobs et al. 2023, DeepSpeed Ulysses).
// Units: bytes of the rank's own part. Assumes flash attention; parts move in Shape::dtype.
#pragma once

#include "orrery/workload/generators/block_writer.h"
#include "orrery/workload/generators/shape.h"

namespace orrery::workload {

// REQUIRES: s.cp > 1 and s.flash().
void ContextForward(const Shape& s, BlockWriter* w);
void ContextBackward(const Shape& s, BlockWriter* w);

// Bytes of the keys and values of this rank's part, as they travel.
inline std::int64_t KeyValueBytes(const Shape& s) {
  const std::int64_t whole = s.repeats_heads() ? 2 * s.query() : s.key_value() + s.values();
  return s.tokens() * whole * s.element_bytes;
}

}  // namespace orrery::workload
