// Tensor-parallel communication in pieces: the same bytes and operations, in rings and pieces.
#include "orrery/workload/generators/layers/tp_overlap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "orrery/graph/verify/verify.h"
#include "orrery/workload/plan_features.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

using graph::Collective;
using ::testing::HasSubstr;

Plan Pieces(int tp, bool on) {
  Plan p{.parallel = {.tp = tp}, .batch = {.global_batch = 2, .micro_batch = 2, .seq_len = 256}};
  p.parallel.sequence_parallel = true;
  p.framework.tp_comm_overlap = on;
  return p;
}

// Out of a rank over tp: a ring's all-gather or reduce-scatter of b bytes is (t - 1)/t · b.
std::int64_t Sent(const graph::Block& block, std::int64_t tp) {
  const std::int64_t collectives =
      Bytes(block, Collective::kAllGather) + Bytes(block, Collective::kReduceScatter);
  EXPECT_EQ(collectives % tp, 0);
  EXPECT_EQ(Bytes(block, Collective::kSend), Bytes(block, Collective::kRecv));
  return collectives / tp * (tp - 1) + Bytes(block, Collective::kSend);
}

TEST(TpOverlap, BytesAndOperationsAreThoseWithoutIt) {
  for (const int tp : {2, 4, 8}) {
    for (const LowPrecision low : {LowPrecision::kNone, LowPrecision::kDelayed}) {
      for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
        Plan off = Pieces(tp, false), on = Pieces(tp, true);
        off.precision.low = on.precision.low = low;
        off.memory.recompute = on.memory.recompute = recompute;
        const graph::Graph before = Make(SmallGpt(1), off);
        const graph::Graph after = Make(SmallGpt(1), on);
        const Status verified = graph::Verify(after, graph::VerifyLevel::kFull);
        ASSERT_TRUE(verified.ok()) << verified.message();
        for (const std::string_view name : {"layer.forward", "layer.backward"}) {
          const graph::Block &a = FindBlock(before, name), &b = FindBlock(after, name);
          EXPECT_EQ(Sent(a, tp), Sent(b, tp)) << name << " tp " << tp;
          // Sums of powers of two: exact in any order.
          EXPECT_EQ(BlockFlops(a), BlockFlops(b)) << name << " tp " << tp;
        }
      }
    }
  }
}

TEST(TpOverlap, OrderOfALayer) {
  const graph::Graph g = Make(SmallGpt(1), Pieces(2, true));
  EXPECT_EQ(Operations(g, FindBlock(g, "layer.forward")),
            "layer_norm tp_ring.send+1 tp_ring.receive+1 qkv ?1 qkv flash_attention "
            "projection reduce_scatter+-1 projection reduce_scatter+-1 projection "
            "reduce_scatter+-1 projection reduce_scatter! bias_dropout_add "
            "layer_norm tp_ring.send+1 tp_ring.receive+1 fc1 ?1 fc1 gelu "
            "fc2 reduce_scatter+-1 fc2 reduce_scatter+-1 fc2 reduce_scatter+-1 fc2 "
            "reduce_scatter! bias_dropout_add");
  // 8-bit operands: a piece goes to the rank whose tokens it holds, which adds what came.
  Plan low = Pieces(2, true);
  low.precision.low = LowPrecision::kDelayed;
  const graph::Graph h = Make(SmallGpt(1), low);
  EXPECT_THAT(Operations(h, FindBlock(h, "layer.forward")),
              HasSubstr("fc2 tp_ring.send+1 tp_ring.receive+1 fc2 ?1 tp_ring.sum"));
}

TEST(TpOverlap, PiecesOfAGemm) {
  const graph::Graph g = Make(SmallGpt(1), Pieces(4, true));
  std::multiset<std::int64_t> rows, columns;
  for (const graph::Kernel& kernel : FindBlock(g, "layer.forward").kernels) {
    const auto* gemm = std::get_if<graph::Gemm>(&kernel);
    if (gemm == nullptr) continue;
    rows.insert(gemm->m);
    columns.insert(gemm->n);
  }
  // 512 tokens: qkv and fc1 in four times 128 of them, projection and fc2 in four times 64 of 256.
  EXPECT_EQ(rows.count(128), 8u);
  EXPECT_EQ(rows.count(512), 8u);
  EXPECT_EQ(columns.count(64), 8u);
}

TEST(TpOverlap, NothingWithoutSequenceParallelism) {
  Plan p = Pieces(1, true);
  const graph::Graph one = Make(SmallGpt(1), p);
  p.framework.tp_comm_overlap = false;
  EXPECT_EQ(FindBlock(one, "layer.forward").content_hash,
            FindBlock(Make(SmallGpt(1), p), "layer.forward").content_hash);
}

TEST(TpOverlap, Buffers) {
  Shape s = MakeShape(SmallGpt(1), Pieces(4, true));
  // Ten buffers of 512 tokens × 256 × 2 bytes.
  EXPECT_EQ(UserbufferBytes(s), 10 * 512 * 256 * 2);
  s.low_precision = LowPrecision::kCurrent;
  // Six of one byte, two reduced beside weight gradients, two rings of 7 parts of four.
  EXPECT_EQ(UserbufferBytes(s), 512 * 256 * (6 + 2 * 2) + 2 * 512 * 256 * 2 / 4 * 7);
  EXPECT_EQ(UserbufferBytes(SmallGpt(1), Pieces(4, false)), 0);
}

TEST(TpOverlap, RulesNameTheRemedy) {
  const auto says = [](const Plan& plan) {
    return std::string(CheckTpOverlap(SmallGpt(1), plan).message());
  };
  Plan p = Pieces(2, true);
  EXPECT_EQ(says(p), "");
  p.parallel.sequence_parallel = false;
  EXPECT_THAT(says(p), HasSubstr("parallel.sequence_parallel: true"));
  p = Pieces(2, true);
  p.precision.type = Precision::kFp32;
  EXPECT_THAT(says(p), HasSubstr("training.precision: bf16"));
  p = Pieces(2, true);
  p.lora.rank = 4;
  EXPECT_THAT(says(p), HasSubstr("layers with adapters"));
  p = Pieces(64, true);
  EXPECT_THAT(says(p), HasSubstr("rings of up to 32 ranks, not for tp 64"));
  p = Pieces(16, true);
  p.parallel.nvlink_ranks = 8;
  EXPECT_THAT(says(p), HasSubstr("an NVLink domain of 8 GPUs, not over tp 16"));
}

}  // namespace
}  // namespace orrery::workload
