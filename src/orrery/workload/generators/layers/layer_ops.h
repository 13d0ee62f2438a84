// The pieces that Megatron's layers are made of: norms, parallel linear layers, their
// communication.
//
// A linear layer is Megatron's LinearWithGradAccumulationAndAsyncCommunication: weight gradients
// are accumulated into the gradient buffer by the GEMM itself; tensor-parallel communication of the
// backward pass runs beside a GEMM on the tp stream. Biases of qkv are in the GEMM's epilogue
// (Transformer Engine); the other biases are added by the fused kernel that follows.
// Bytes count each operand once; broadcast operands (bias, norm weight) are left out below 1/rows.
#pragma once

#include <cstdint>
#include <string_view>

#include "orrery/workload/generators/block_writer.h"
#include "orrery/workload/generators/shape.h"

namespace orrery::workload {

// A memory-bound kernel over rows × cols that moves so many bytes per element.
graph::MemoryBound Elementwise(const Shape& s, graph::MemoryOp op, std::int64_t rows,
                               std::int64_t cols, std::int64_t read_bytes,
                               std::int64_t written_bytes, graph::Pass pass);

// The same over this rank's tokens of the residual stream, by how many values it moves an element.
void OverStream(const Shape& s, BlockWriter* w, std::string_view name, graph::MemoryOp op,
                std::int64_t read, std::int64_t written, graph::Pass pass);

// What follows is of this module: its launches, and the host's time to call it.
void Enter(const Shape& s, BlockWriter* w, std::string_view module, graph::Pass pass);

// A product of [m, k] and [k, n], once per sequence and head.
graph::Gemm Batched(const Shape& s, std::int64_t m, std::int64_t n, std::int64_t k,
                    graph::GemmLayout layout);

// Of the scores of `rows` queries, each over so many keys: one kernel that scales and masks as
// well, or PyTorch's five where it is not fused.
void WriteSoftmax(const Shape& s, BlockWriter* w, std::int64_t rows, std::int64_t keys,
                  graph::Pass pass);

// What a micro-batch's forward pass leaves to its backward pass.
graph::Buffer Saved(BlockWriter* w, std::uint32_t id, std::string_view name, std::int64_t bytes);

// Of the feed-forward's function, as its kernel is named. ReLU and its square move what GeLU
// moves.
inline std::string_view ActivationName(const Shape& s) {
  return s.activation == Activation::kSwiglu ? "swiglu"
         : s.activation == Activation::kGelu ? "gelu"
         : s.activation == Activation::kRelu ? "relu"
                                             : "squared_relu";
}

// Rotary embedding of all tokens' queries or keys: one kernel, or with scaled angles Megatron's
// operators one by one (rope_utils.py: halves swapped, two products, their sum, put together
// again).
void Rotary(const Shape& s, BlockWriter* w, std::string_view name, std::int64_t width,
            graph::Pass pass);
void NormForward(const Shape& s, BlockWriter* w);
void NormBackward(const Shape& s, BlockWriter* w);
// Adds a gradient to the gradient buffer (Megatron's backward hook of parameters whose GEMMs do
// not; autograd's AccumulateGrad; DeepSpeed's update_hp_grads). Its own memory is not counted:
// BLOOM's first readings leave no room for it, its last ones do.
void AccumulateGradient(const Shape& s, BlockWriter* w, std::string_view name,
                        std::int64_t elements);
// A GEMM of a linear layer. A weight gradient (kTN) adds to the gradient buffer itself, or a kernel
// adds what it wrote, or there is none (frozen weights), as the shape says; the caller leaves
// `accumulate` and `out_dtype` alone.
void WriteGemm(const Shape& s, BlockWriter* w, std::string_view name, graph::Gemm gemm);
// Column sum of a rows × cols gradient, then the accumulation.
void BiasGradient(const Shape& s, BlockWriter* w, std::int64_t rows, std::int64_t cols);
// Autograd's sum of the two gradients that meet at a residual.
void ResidualGradient(const Shape& s, BlockWriter* w);

// torch.pow(relu(x), 2) of tokens × ffn, operator by operator. Autograd's pow_backward copies its
// input (a power of 1), doubles it and multiplies by the gradient; threshold_backward masks that.
void SquaredReluOperators(const Shape& s, BlockWriter* w, graph::Pass pass);

// y[tokens, out] = x[tokens, in] · Wᵀ with W split by columns of y: gathers x under SP.
void ColumnForward(const Shape& s, BlockWriter* w, std::string_view name, std::int64_t in,
                   std::int64_t out);
// Data gradient, reduced over tp beside the weight gradient; under SP the saved input is gathered
// beside the data gradient and the data gradient is reduce-scattered.
void ColumnBackward(const Shape& s, BlockWriter* w, std::string_view name, std::int64_t in,
                    std::int64_t out, bool fused_bias);
// A linear layer that every tensor-parallel rank runs whole, on its own tokens.
void DenseForward(const Shape& s, BlockWriter* w, std::string_view name, std::int64_t in,
                  std::int64_t out);
void DenseBackward(const Shape& s, BlockWriter* w, std::string_view name, std::int64_t in,
                   std::int64_t out);
// W split by rows: y is summed over tp (all-reduce, or reduce-scatter under SP).
void RowForward(const Shape& s, BlockWriter* w, std::string_view name, std::int64_t in,
                std::int64_t out);
void RowBackward(const Shape& s, BlockWriter* w, std::string_view name, std::int64_t in,
                 std::int64_t out);

// Collectives of the residual stream over tp; nothing when tp is 1.
void TpCollective(const Shape& s, BlockWriter* w, std::string_view name, graph::Collective kind,
                  std::int64_t bytes, graph::DType dtype);

}  // namespace orrery::workload
