// Optimizers beyond fused Adam: what they keep, which kernels they run.
//
//   adam        fp32 parameter and two fp32 moments. Fused: one kernel for all. Else five for all
//               (foreach), or eight for each tensor (loop), the AdamW step of torch.optim.
//   adafactor   Shazeer & Stern 2018 without momentum: the second moment of a matrix is a row and a
//               column of means; eight kernels a tensor, as Hugging Face's implementation. A flat
//               shard (FSDP1, DeepSpeed) is no matrix: its second moment is kept whole, six kernels
//               a shard. Tensors sharded by rows (FSDP2): a rank has its rows' means and all
//               columns', which are summed over the ranks, as are the mean of the rows' and the
//               update's norm: pytorch/pytorch #109581.
//   muon        Jordan et al. 2024: momentum of the layers' matrices, made orthogonal by five
//               Newton-Schulz iterations in bf16; Adam for tables, norms and biases. For a matrix
//               of m × n, m ≤ n, an iteration is three GEMMs: 2m²n + 2m³ + 2m²n operations. Under
//               tp each rank orthogonalises its part. Under ZeRO-1 as Megatron's layer-wise
//               distributed optimizer (dist_muon): gradients are all-reduced, each rank keeps the
//               state of whole matrices and updates them, all are gathered. Of a layer's m matrices
//               (an ordinary one has four; router and shared experts count) the n ranks get
//               m·layers/n, of its experts' those that hold the same ones; all run as the one with
//               most, and of a layer it has in part as the largest ones.
//   sgd         with weight decay and, unless told, momentum: one fp32 moment. Fused: one kernel;
//               else four (two) for all (foreach).
//   lion        Chen et al. 2023: one moment; a kernel that reads parameter, gradient and moment
//               and writes the first and the last (bitsandbytes).
//   lamb        You et al. 2020: Adam's direction, scaled for each tensor by the norms of parameter
//               and direction. Four kernels for all (NVIDIA apex's FusedLAMB): the parameters'
//               norms, the directions in the gradients' place, their norms, the update.
//   fp32        Moments in fp32 beside parameters of any type, a kernel a tensor (bitsandbytes).
//   bf16        Moments of fused Adam in bf16 (Transformer Engine's FusedAdam behind Megatron's
//               --exp-avg-dtype).
//   8bit, 4bit, fp8  Moments of Adam, Lion and SGD by blocks with a scale in fp32 each: a byte and
//               blocks of 256 (Dettmers et al. 2021, whose blocks were of 2,048 until bitsandbytes
//               0.45; torchao), half a byte and blocks of 128 (Li et al. 2023; torchao). A kernel a
//               tensor reads codes and scales and writes them again (bitsandbytes' blockwise
//               update; torchao compiles one). Tensors below 4,096 elements, which keep fp32, are
//               counted as the others; embeddings' are kept full where told
//               (fp32_embedding_states).
//   on the CPU  gradients are copied to the host, the CPU updates (kCpuAdamPs in shape.cc), and
//               parameters come back in the model's type; the GPU keeps no state (ZeRO-Offload).
#pragma once

#include <array>
#include <vector>

#include "orrery/workload/generators/block_writer.h"
#include "orrery/workload/generators/shape.h"

namespace orrery::workload {

// A kernel of the optimizer over a flat buffer; bytes are an element's.
graph::MemoryBound Flat(graph::MemoryOp op, std::int64_t elements, std::int64_t read,
                        std::int64_t written, graph::DType dtype = graph::DType::kFp32);

// A matrix by its rows and columns on this rank.
struct Matrix {
  std::int64_t rows = 0, columns = 0;
  std::int64_t elements() const { return rows * columns; }
};
// Weights of a layer but for its experts'; of an expert.
std::vector<Matrix> LayerMatrices(const Shape& s);
std::array<Matrix, 2> ExpertMatrices(const Shape& s);

struct OptimizerCounts {
  std::int64_t tensors = 0;
  std::int64_t factors = 0;  // elements of rows and columns of means (adafactor)
  std::int64_t outside = 0;  // elements that are no layer's matrix (muon)
  std::int64_t full = 0;     // elements whose moments stay in full beside 8 or 4 bits
};
void CountLayer(const Shape& s, OptimizerCounts* counts);
// Adafactor's, where each tensor is sharded by its rows over `ranks`: of a layer; of the root unit.
void CountShardedLayer(const Shape& s, std::int64_t ranks, OptimizerCounts* counts);
void CountShardedRoot(const Shape& s, std::int64_t ranks, OptimizerCounts* counts);
// Of the embedding's table, where its moments stay in full.
inline std::int64_t FullStates(const Shape& s) {
  return s.framework.fp32_embedding_states ? s.vocab * s.hidden : 0;
}
void CountTensors(const Shape& s, const std::vector<std::int64_t>& tensors,
                  OptimizerCounts* counts);

inline bool AsksForNumber(const Shape& s) {
  return s.optimizer == Optimizer::kAdafactor || s.optimizer == Optimizer::kMuon ||
         s.optimizer_states != OptimizerStates::kFull ||
         (s.optimizer == Optimizer::kAdam && s.framework.adam_loop && !s.framework.fused_adam);
}
// The one number of these that the plan's optimizer asks for; 0 for fused Adam.
std::int64_t OptimizerNumber(const Shape& s, const OptimizerCounts& counts);
// Packed into one number of a block's key.
constexpr std::int64_t PackStepFlags(bool distributed, bool fp16, std::int64_t number) {
  return (distributed ? 1 : 0) + (fp16 ? 2 : 0) + number * 4;
}

// Optimizer state of `shard` elements that stays on the GPU for ever.
void WriteOptimizerState(const Shape& s, std::int64_t shard, std::int64_t number, BlockWriter* w);
// Bytes of what Adam's unfused kernels hand on: of all tensors at once (foreach, one flat tensor).
std::int64_t AdamTemporaries(const Shape& s, std::int64_t n);
// From clipped fp32 gradients to fp32 parameters; on the CPU to parameters in the model's type.
void WriteUpdate(const Shape& s, std::int64_t shard, std::int64_t number, BlockWriter* w);
// Adafactor's sums over ranks, where tensors are sharded by rows: of a layer's tensors, or the
// root's.
graph::Block FactorMeans(const Shape& s, bool root, Names* names);
// Newton-Schulz of a layer's matrices and their update: of so many, the largest ones, and of so
// many of its experts' on this rank (two an expert); -1: all.
struct MatrixCounts {
  std::int64_t own = 0, experts = 0;
};
MatrixCounts CountMatrices(const Shape& layer);
graph::Block OrthogonaliseLayer(const Shape& layer, const MatrixCounts& counts, Names* names);

}  // namespace orrery::workload
