// Tensor-parallel communication cut into pieces that run beside pieces of the GEMM next to it:
// Transformer Engine's userbuffers (Megatron's --tp-comm-overlap), with its default methods
// (transformer_engine/pytorch/module/base.py, initialize_ub).
//
//   qkv, fc1 forward;         ring exchange: a part of the tokens a rank. Each step sends the part
//   projection, fc2           at hand to the next rank beside the GEMM over it; t - 1 steps,
//   data gradient             t GEMMs
//   projection, fc2 forward   pipeline: the GEMM in four pieces of its output's width, each
//                             followed by its reduce-scatter beside the next piece. With 8- and
//                             4-bit operands as NVIDIA's recipes for them: a piece of the tokens
//                             a rank, sent to its owner, who sums what came
//   qkv, fc1 backward         bulk: as without it, a collective beside a whole GEMM (layer_ops.cc)
//
// Of compiled plain PyTorch it is Inductor's micro-pipelined tensor parallelism (async TP,
// torch/_inductor/fx_passes/micro_pipeline_tp.py): gathers as above, reduce-scatters as with 8 bits
// whatever the type, and nothing of qkv's and fc1's backward, where sums stand between product and
// reduce-scatter.
//
// What is beside what is the engine's to find; pieces are priced as the small GEMMs and messages
// that they are. Copy engines move a ring's messages, so that they take no SMs; a piece's
// reduce-scatter takes those of a collective. Pieces of a GEMM are dealt out to three streams,
// where the next ones fill the SMs that a last wave leaves idle (GemmKind::kPiece).
#pragma once

#include <string_view>

#include "orrery/workload/generators/block_writer.h"
#include "orrery/workload/generators/shape.h"

namespace orrery::workload {

// Pieces of a GEMM whose output is reduce-scattered.
inline constexpr std::int64_t kReducePieces = 4;
// Ranks of a ring: every step is a group call of the block, of which it has 255.
inline constexpr int kMostRingRanks = 32;

// Whether a linear layer, by the name that its kernels have, has userbuffers: those of a dense
// layer, of shared experts and of a Mamba mixer have, the output layer has none.
bool Pipelines(const Shape& s, std::string_view layer);

// All-gather of `bytes` over tp, and the product over the gathered rows (product.m).
void GatherAndMultiply(const Shape& s, BlockWriter* w, std::string_view name, std::int64_t bytes,
                       graph::DType wire, const graph::Gemm& product);
// The product, and the reduce-scatter of what it puts out.
void MultiplyAndReduce(const Shape& s, BlockWriter* w, std::string_view name,
                       const graph::Gemm& product);

// Device memory of the communicators' buffers, which lie outside PyTorch's allocator; 0 without
// userbuffers. One a GEMM of the ten above, shared by all layers.
std::int64_t UserbufferBytes(const Shape& s);
// REQUIRES: Validate(model, plan) is ok.
std::int64_t UserbufferBytes(const Model& model, const Plan& plan);

}  // namespace orrery::workload
