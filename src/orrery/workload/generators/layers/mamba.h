// A Mamba-2 mixer (Dao and Gu 2024), as Megatron Core's MambaMixer and the state-space kernels of
// mamba_ssm run it: one projection to z, x, B, C and dt; a causal convolution over x, B and C; the
// scan in chunks of Q tokens; a norm gated by z; the projection back. Heads and groups are split
// over the tensor-parallel ranks.
//
// The scan of b sequences of s tokens, h heads of width p, g groups of state n, chunk by chunk, a
// Triton kernel each:
//   cumulative sums of dt·A              fp32
//   state of a chunk, xᵀ·B               reads x, writes fp32 p × n a head and chunk
//   states handed from chunk to chunk    p × n a head and chunk, fp32 to 16 bits
//   C·Bᵀ                                 GEMM Q × Q × n, once a group and chunk, fp32
//   output: C·state and (C·Bᵀ ∘ L)·x     reads x and states, writes y
// L holds the decays exp(sum_i - sum_j) of a head and chunk, j <= i; a kernel evaluates them tile
// by tile where it needs them, in fp32 outside the tensor cores, which takes longer than the
// products of width p. Forward does so once; backward for x, for C·Bᵀ and, with a scan along the
// rows, for the sums (counted twice). It also computes all of forward again but the output, as the
// memory-efficient path of mamba_ssm does. Kept from forward: the first projection's output, the
// scan's output and the gated norm's. Megatron Core keeps a position's sequences together,
// mamba_ssm a sequence's tokens: with more than one sequence, copies at the first projection's
// output and the scan's, in both passes. Context parallelism deals heads and groups out over the cp
// ranks, each of which scans the whole sequence: an all-to-all of the projection's output before
// the convolution, two of the scan's output and of z behind it, the reverse in backward, each with
// a copy that brings the parts of the sequence in order (they lie as attention wants them). Groups
// fewer than cp are repeated, B and C with them. Kernels do what they do without it: cp times the
// chunks of a cp-th of the heads. Sources: the paper, section 6; state-spaces/mamba ops/triton
// (ssd_combined.py) and megatron/core/ssm (mamba_mixer.py, mamba_context_parallel.py), read for
// their behaviour.
//
// The gated delta net and lightning attention have the same frame: one projection to gate, values,
// keys and queries (and write strength and decay), the convolution (lightning: SiLU alone), the
// scan, the gated norm, the projection back. Their scans are products of a chunk's tokens Q, keys'
// width K and values' width V, a head and chunk each, as flash-linear-attention
// (ops/gated_delta_rule) and lightning attention's kernels (Qin et al. 2024) have them; the tables
// stand in mamba.cc. Keys and queries are repeated for every head of values. The products of a
// chunk's state wait for the chunk before, which is not priced: with few heads a rank the scan
// takes longer. Kept from forward besides: what goes into the scan, and the delta net's inverse.
//
// Kimi's delta attention (flash-linear-attention, ops/kda): the delta net's products; decays in
// fp32 a channel of every key in place of one a head, made of a projection of their own, summed
// along a chunk, and multiplied into copies of keys and queries. Gate and decays may be projected
// by way of a few values. LFM2's short convolution: one projection to two gates and values, a gate,
// the convolution, the other gate, the projection back.
//
// The first Mamba (Gu and Dao 2023; state-spaces/mamba, selective_scan_interface.py): one
// projection to x and z, the convolution, x projected to dt (by way of gate_rank values), B and C,
// the scan. That is one kernel a pass: of each channel its n states decay by exp(dt·A) token by
// token, an exponential each forward and two backward (state and gradient); it reads x, dt and z
// and writes what is scanned before and behind the gate. Kept from forward: x and z, dt's values,
// B, C, the scan's output, and states every 2,048 tokens; backward runs the convolution and dt
// again (checkpoint_lvl 1) and the gate with the scan. tp 1 and cp 1.
#pragma once

#include <string_view>

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
  // C[Q, n] of every group and chunk.
  void Product(std::string_view name, std::int64_t n, std::int64_t k, graph::DType out);
  // What a fused kernel moves: so many tensors of x's width a token; fp32 numbers a token and head;
  // bytes an element of the chunks' states; tensors of B's width; fp32 C·Bᵀ.
  struct Bytes {
    std::int64_t values = 0, scalars = 0, state_bytes = 0, shared = 0, products = 0;
  };
  // `evaluations`: how often it evaluates every decay.
  void Fused(std::string_view name, Bytes read, Bytes written, std::int64_t evaluations,
             graph::Pass pass);
  void Reorder(std::int64_t cols, graph::Pass pass);
  void Scan(graph::Pass pass);
  void ScanBackward();
  bool linear() const { return m_.kind != Mixer::kMamba2; }
  // From the few values of Kimi's gate and decays, and back.
  void GatesUp(graph::Pass pass);
  // Decays of every channel.
  void Decay(graph::Pass pass);
  // Bytes that a linear scan keeps: its inputs, the delta net's inverse.
  std::int64_t LinearSaved() const;
  void LinearScan();
  // The first Mamba's: a kernel over tokens and channels that evaluates so many exponentials each.
  void SelectiveScan(std::int64_t read, std::int64_t written, std::int64_t evaluations,
                     graph::Pass pass);
  void FirstScan();
  void FirstScanBackward();
  void Select(graph::Pass pass, bool again);
  void LinearScanBackward();
  // So many columns of this rank's tokens against all tokens of a cp-th of them, or back.
  void Exchange(std::string_view name, std::int64_t cols, graph::Pass pass);
  std::int64_t chunks() const { return (s_.seq + m_.chunk - 1) / m_.chunk; }
  // Decays exp(sum_i - sum_j), j <= i, of a chunk for each of its tokens: tiles of 64 x 64, whole
  // on the diagonal.
  std::int64_t Decays() const { return (m_.chunk + 64) / 2; }
  // Groups as the ranks of a context-parallel group hold them together, repeated ones included.
  std::int64_t groups() const { return m_.groups < s_.cp ? s_.cp : m_.groups; }
  // Columns of B and C that are copies.
  std::int64_t copied() const { return 2 * (groups() - m_.groups) * m_.state; }

  const Shape& s_;
  const Mamba& m_;
  BlockWriter* w_;
  graph::Buffer projected_, scanned_, gated_;
  graph::Buffer operands_;  // of a linear scan
};

}  // namespace orrery::workload
