// A backward pass in two halves (Qi et al. 2023, "Zero Bubble Pipeline Parallelism"): B, what the
// stage before waits for, and W, the weight gradients, which nobody waits for until the optimizer.
//
// W holds the GEMMs that add into the gradient buffer, of linear layers and of the output layer;
// all else is B: biases, norms and tables stay there, as in Megatron's zero-bubble forks. Under SP
// the operand that lies split over tp is gathered in W, blocking. Until W runs, both operands of
// each of its GEMMs are kept, as the GEMM reads them: B keeps them when it ends, W frees them.
#pragma once

#include "orrery/workload/generators/block_writer.h"
#include "orrery/workload/generators/shape.h"

namespace orrery::workload {

// Megatron's delay_wgrad_compute keeps the gathered operand instead (kInData).
enum class OperandGather : std::uint8_t { kInWeights, kInData };

graph::Block DataHalf(const Shape& s, const graph::Block& backward, Names* names,
                      OperandGather gather = OperandGather::kInWeights);
graph::Block WeightHalf(const Shape& s, const graph::Block& backward, Names* names,
                        OperandGather gather = OperandGather::kInWeights);

}  // namespace orrery::workload
