// What moves tokens to experts and back in plain PyTorch (TorchLayers, all-to-all): torchtitan's
// models/moe, where Megatron has fused permutations. T·k·h elements, e bytes each, compiled unless
// said:
//
//   gather       rows by their expert 2e, times their scores in fp32 (fused; eager a cast, a
//                product and a cast, 16 + 4e)
//   padding      behind the exchange all rows are copied below a row of zeros (vstack) and gathered
//                in order of local experts 4e, whatever their number; back they are written where
//                they came from 2e
//   scatter-add  into a copy of the shared experts' output: 2e·T·h and 3e, what is there read, too
//   backward     the gather's gradient is a scatter-add into zeros, that of the ordering one that
//                sorts (index_put with accumulate); gate and up are products of their own, whose
//                gradients are summed, 3e
//
// No auxiliary loss (a bias of the scores is moved instead), and no weights are exchanged.
#pragma once

#include "orrery/workload/generators/block_writer.h"
#include "orrery/workload/generators/shape.h"

namespace orrery::workload {

inline bool TorchExperts(const Shape& s) {
  return s.plain_torch() && s.experts.dispatcher == Dispatcher::kAllToAll;
}

// Tokens to rows in order of experts: `sent` rows before the exchange, for their way there or back
// in a pass; the backward pass turns it round. REQUIRES, as below: TorchExperts(s).
void TorchPermute(const Shape& s, BlockWriter* w, std::int64_t sent, bool to_experts,
                  graph::Pass pass);
// Of the `rows` that arrived.
void TorchSort(const Shape& s, BlockWriter* w, std::int64_t rows, bool to_experts,
               graph::Pass pass);

}  // namespace orrery::workload
