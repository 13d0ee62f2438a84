// Adapters: parameters, kernels and bytes by hand.
#include "orrery/workload/generators/lora.h"

#include <gtest/gtest.h>

#include "orrery/graph/verify.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

// Rank 8 beside SmallGpt's layers (256 wide, qkv 768, feed-forward 1,024), A then B:
// qkv 8·256 + 768·8, projection 8·256 + 256·8, fc1 8·256 + 1,024·8, fc2 8·1,024 + 256·8.
constexpr std::int64_t kAdapters = 8'192 + 4'096 + 10'240 + 10'240;
// Matrices of a layer: 256·(768 + 256 + 1,024 + 1,024).
constexpr std::int64_t kMatrices = 786'432;

Plan Tuned(int rank) { return {.dp = 2, .global_batch = 2, .seq_len = 128, .lora_rank = rank}; }

TEST(Lora, ArithmeticOfALayer) {
  const graph::Graph g = Make(SmallGpt(2), Tuned(8));
  const double tokens = 128;
  EXPECT_EQ(GemmFlops(FindBlock(g, "layer.forward")), 2 * tokens * (kMatrices + kAdapters));
  // Data gradients of all, weight gradients of the adapters only.
  EXPECT_EQ(GemmFlops(FindBlock(g, "layer.backward")), 2 * tokens * (kMatrices + 2 * kAdapters));
  EXPECT_TRUE(graph::Verify(g, graph::VerifyLevel::kFull).ok());
}

TEST(Lora, KernelsBesideALinearLayer) {
  const graph::Graph g = Make(SmallGpt(2), Tuned(8));
  const std::string forward = Operations(g, FindBlock(g, "layer.forward"));
  EXPECT_NE(forward.find("qkv lora_a lora_b lora_scale lora_add flash_attention"),
            std::string::npos)
      << forward;
  const std::string backward = Operations(g, FindBlock(g, "layer.backward"));
  EXPECT_NE(backward.find("fc1 lora_scale lora_b lora_b lora_a lora_a lora_add layer_norm"),
            std::string::npos)
      << backward;
  EXPECT_EQ(backward.find("gradient bias"), std::string::npos);
  EXPECT_EQ(backward.find("bias_sum"), std::string::npos);
}

TEST(Lora, OnlyAdaptersAreReducedAndKept) {
  Plan plan = Tuned(8);
  const graph::Graph g = Make(SmallGpt(2), plan);
  std::int64_t reduced = 0, frozen = 0, trained = 0;
  for (const graph::Block& b : g.blocks) {
    if (g.name(b.name) == "gradients.reduce") reduced += Bytes(b, graph::Collective::kAllReduce);
    for (const graph::Buffer& buffer : b.buffers) {
      if (buffer.lifetime != graph::Lifetime::kForever) continue;
      (g.name(b.name) == "frozen" ? frozen : trained) += buffer.bytes;
    }
  }
  EXPECT_EQ(reduced, 4 * 2 * kAdapters);
  EXPECT_EQ(trained, (2 + 4 + 12) * 2 * kAdapters);
  // Two layers and the root of sharded_units_test.cc in bf16.
  EXPECT_EQ(frozen, 2 * (2 * 789'760 + 256 * (1024 + 512) + 512));
}

// x·Aᵀ of four targets: 4·128·8 elements more than the model keeps.
TEST(Lora, KeepsTheInnerProducts) {
  const auto saved = [](int rank) {
    const graph::Graph g = Make(SmallGpt(2), Tuned(rank));
    return SavedBytes(FindBlock(g, "layer.forward"));
  };
  EXPECT_EQ(saved(8) - saved(0), 2 * 4 * 128 * 8);
}

TEST(Lora, TargetsAndTensorParallelism) {
  Plan plan = Tuned(8);
  plan.lora_targets = kLoraQkv;
  const graph::Graph g = Make(SmallGpt(2), plan);
  EXPECT_EQ(GemmFlops(FindBlock(g, "layer.forward")), 2 * 128.0 * (kMatrices + 8'192));
  // Over 2 ranks of a column-split layer: A and the inner product are split, B's columns too.
  plan.tp = 2;
  plan.sequence_parallel = true;
  const graph::Graph two = Make(SmallGpt(2), plan);
  EXPECT_EQ(GemmFlops(FindBlock(two, "layer.forward")), 128.0 * (kMatrices + 8'192));
  EXPECT_TRUE(graph::Verify(two, graph::VerifyLevel::kFull).ok());
  plan.lora_targets = kLoraAll;
  EXPECT_TRUE(graph::Verify(Make(SmallGpt(2), plan), graph::VerifyLevel::kFull).ok());
}

TEST(Lora, Refusals) {
  Plan plan = Tuned(9);
  plan.tp = 2;
  EXPECT_TRUE(Validate(SmallGpt(2), plan).message().starts_with("training.lora_rank: 9 is not"));
  plan = Tuned(8);
  plan.sharding = Sharding::kZero3;
  EXPECT_TRUE(Validate(SmallGpt(2), plan).message().starts_with("training.sharding: adapters"));
}

// Four sequences of 128 in one of 512: attention works on a fourth of the square.
TEST(Packing, SequencesDoNotSeeEachOther) {
  Plan plan{.global_batch = 1, .seq_len = 512};
  const auto attention = [&] {
    const graph::Graph g = Make(SmallGpt(1), plan);
    double sum = 0;
    for (const graph::Kernel& k : FindBlock(g, "layer.forward").kernels) {
      if (std::holds_alternative<graph::Attention>(k)) sum += graph::Flops(k);
    }
    return sum;
  };
  const double whole = attention();
  plan.packed_len = 128;
  EXPECT_EQ(attention(), whole / 4);
  plan.packed_len = 100;
  EXPECT_TRUE(Validate(SmallGpt(1), plan).message().starts_with("training.packed_len: 100 does"));
}

}  // namespace
}  // namespace orrery::workload
