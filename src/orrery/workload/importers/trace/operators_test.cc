#include "orrery/workload/importers/trace/operators.h"

#include <gtest/gtest.h>

namespace orrery::workload {
namespace {

using formats::TraceSignature;
using formats::TraceTensor;
using graph::Pass;

TraceTensor Bf16(std::vector<std::int64_t> shape, std::vector<std::int64_t> strides = {}) {
  return {.type = "bfloat16", .shape = std::move(shape), .strides = std::move(strides)};
}
TraceSignature Op(const char* name, std::vector<TraceTensor> in, std::vector<TraceTensor> out) {
  return {.name = name, .in = std::move(in), .out = std::move(out), .read = 10, .written = 20};
}

// y = x Wᵀ: [32, 64] by the transposed view of [128, 64].
TEST(TraceOperators, MatrixProducts) {
  const auto forward =
      WorkOf(Op("aten::mm", {Bf16({32, 64}), Bf16({64, 128}, {1, 64})}, {Bf16({32, 128})}),
             Pass::kForward);
  const auto& gemm = std::get<graph::Gemm>(forward.kernel);
  EXPECT_EQ(gemm, (graph::Gemm{.m = 32, .n = 128, .k = 64, .layout = graph::GemmLayout::kNT}));
  // dW = dyᵀ x, into what is there.
  const auto weight =
      WorkOf(Op("aten::addmm_", {Bf16({128, 64}), Bf16({128, 32}, {1, 128}), Bf16({32, 64})},
                {Bf16({128, 64})}),
             Pass::kBackward);
  EXPECT_EQ(std::get<graph::Gemm>(weight.kernel),
            (graph::Gemm{
                .m = 128, .n = 64, .k = 32, .layout = graph::GemmLayout::kTN, .accumulate = true}));
  const auto batched = WorkOf(
      Op("aten::bmm", {Bf16({8, 32, 16}), Bf16({8, 16, 32})}, {Bf16({8, 32, 32})}), Pass::kForward);
  EXPECT_EQ(std::get<graph::Gemm>(batched.kernel).batch, 8);
  // 4 experts share 64 rows.
  const auto grouped = WorkOf(
      Op("aten::_grouped_mm", {Bf16({64, 16}), Bf16({4, 16, 8})}, {Bf16({64, 8})}), Pass::kForward);
  EXPECT_EQ(std::get<graph::Gemm>(grouped.kernel).m, 16);
  EXPECT_EQ(std::get<graph::Gemm>(grouped.kernel).batch, 4);
}

TEST(TraceOperators, Attention) {
  TraceSignature op = Op(
      "aten::_scaled_dot_product_flash_attention_backward",
      {Bf16({2, 8, 128, 32}), Bf16({2, 8, 128, 32}), Bf16({2, 4, 128, 32}), Bf16({2, 4, 128, 32})},
      {Bf16({2, 8, 128, 32})});
  op.causal = true;
  const auto a = std::get<graph::Attention>(WorkOf(op, Pass::kBackward).kernel);
  EXPECT_EQ(a, (graph::Attention{.batch = 2,
                                 .heads = 8,
                                 .kv_heads = 4,
                                 .seq_q = 128,
                                 .seq_kv = 128,
                                 .head_dim = 32,
                                 .pass = Pass::kBackward}));
}

TEST(TraceOperators, TheRestIsKnownByItsBytes) {
  const auto norm = WorkOf(Op("aten::native_layer_norm", {Bf16({4, 32, 64})}, {Bf16({4, 32, 64})}),
                           Pass::kForward);
  const auto& memory = std::get<graph::MemoryBound>(norm.kernel);
  EXPECT_EQ(memory.op, graph::MemoryOp::kLayerNorm);
  EXPECT_EQ(memory.rows, 128);
  EXPECT_EQ(memory.cols, 64);
  EXPECT_EQ(memory.bytes_written, 20);
  EXPECT_FALSE(norm.unknown);
  EXPECT_FALSE(WorkOf(Op("aten::add", {Bf16({4})}, {Bf16({4})}), Pass::kForward).unknown);
  const auto odd = WorkOf(Op("aten::mm", {Bf16({4})}, {Bf16({4})}), Pass::kForward);
  EXPECT_TRUE(odd.unknown);
  EXPECT_TRUE(std::holds_alternative<graph::Generic>(odd.kernel));
}

TEST(TraceOperators, HostsAndCopies) {
  TraceTensor host = Bf16({4});
  host.on_device = false;
  EXPECT_EQ(WorkOf(Op("aten::add", {host}, {host}), Pass::kForward).place, OperatorPlace::kHost);
  const auto in = WorkOf(Op("aten::_to_copy", {host}, {Bf16({4})}), Pass::kForward);
  EXPECT_EQ(in.place, OperatorPlace::kCopyToDevice);
  EXPECT_EQ(in.bytes, 20);
  EXPECT_EQ(WorkOf(Op("aten::copy_", {host, Bf16({4})}, {host}), Pass::kForward).place,
            OperatorPlace::kCopyToHost);
  TraceSignature view = Op("aten::view", {Bf16({4})}, {Bf16({4})});
  view.kernel = false;
  EXPECT_EQ(WorkOf(view, Pass::kForward).place, OperatorPlace::kNothing);
}

}  // namespace
}  // namespace orrery::workload
