// A Mamba-2 mixer (Dao and Gu 2024), as Megatron Core's MambaMixer and the state-space kernels of
// mamba_ssm run it: one projection to z, x, B, C and dt; a causal convolution over x, B and C; the
// scan in chunks of Q tokens; a norm gated by z; the projection back. Heads and groups are split
// over the tensor-parallel ranks.
//
// The scan of b sequences of s tokens, h heads of width p, g groups of state n, chunk by chunk:
//   cumulative sums of dt·A              memory-bound, fp32
//   state of a chunk, xᵀ·B               GEMM p × n × Q, once a head and chunk
//   states handed from chunk to chunk    memory-bound, fp32 p × n, once a head and chunk
//   C·Bᵀ                                 GEMM Q × Q × n, once a group and chunk
//   output: C·state and (C·Bᵀ)·x         GEMM Q × p × (n + Q), once a head and chunk
// Backward computes all of this again but the output, as the memory-efficient path of mamba_ssm
// does, then a product for each operand of each GEMM. Kept from forward: the first projection's
// output, the scan's output and the gated norm's. The causal half of C·Bᵀ is computed whole.
// Context parallelism deals heads and groups out over the cp ranks, each of which scans the whole
// sequence: an all-to-all of the projection's output before the convolution, two of the scan's
// output and of z behind it, the reverse in backward, each with a copy that brings the parts of the
// sequence in order (they lie as attention wants them). Groups fewer than cp are repeated, B and C
// with them. Kernels do what they do without it: cp times the chunks of a cp-th of the heads.
// Sources: the paper, section 6; state-spaces/mamba ops/triton (ssd_combined.py) and
// megatron/core/ssm (mamba_mixer.py, mamba_context_parallel.py), read for their behaviour.
#pragma once

#include "orrery/workload/generators/block_writer.h"
#include "orrery/workload/generators/shape.h"

namespace orrery::workload {

class MambaWriter {
 public:
  // REQUIRES: s.mamba.heads > 0.
  MambaWriter(const Shape& s, BlockWriter* w);

  // From the norm's output to the sum that meets the residual. `keep`: tensors stay for backward.
  void Forward(bool keep);
  // From the gradient of that sum to the gradient of the norm's output.
  void Backward();

 private:
  void Module(std::string_view name, graph::Pass pass);
  // Rows of tokens × `cols`, so many bytes an element.
  void Stream(std::string_view name, graph::MemoryOp op, std::int64_t cols, std::int64_t read,
              std::int64_t written, graph::Pass pass);
  // C[m, n] once for each of `each` heads or groups and each chunk.
  void Product(std::string_view name, std::int64_t each, std::int64_t m, std::int64_t n,
               std::int64_t k);
  void States(std::string_view name, graph::Pass pass);
  void Scan(graph::Pass pass);
  void ScanBackward();
  // So many columns of this rank's tokens against all tokens of a cp-th of them, or back.
  void Exchange(std::string_view name, std::int64_t cols, graph::Pass pass);
  // Groups as the ranks of a context-parallel group hold them together, repeated ones included.
  std::int64_t groups() const { return m_.groups < s_.cp ? s_.cp : m_.groups; }
  // Columns of B and C that are copies.
  std::int64_t copied() const { return 2 * (groups() - m_.groups) * m_.state; }

  const Shape& s_;
  const Mamba& m_;
  BlockWriter* w_;
  graph::Buffer projected_, scanned_, gated_;
};

}  // namespace orrery::workload
