// Adapters of routed experts: as many parameters as PEFT 0.21.2 counts, kernels and bytes by hand.
#include "orrery/workload/generators/experts/expert_adapters.h"

#include <gtest/gtest.h>

#include "orrery/graph/verify/verify.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

// Qwen3-30B-A3B of two layers, whose text model transformers 5.24.0 builds for PEFT:
// tools of that version print the counts below for rank 8.
Model TwoQwenLayers() {
  Model m = *FindModel("qwen3-30b-a3b");
  m.layers = 2;
  m.vocab = 1000;
  return m;
}

std::int64_t Trained(const Model& model, ExpertAdapterKind kind, std::uint8_t targets) {
  Plan plan{.batch = {.global_batch = 1, .seq_len = 128}};
  plan.lora = {.rank = 8, .targets = targets, .experts = kind};
  plan.framework.separate_adapters = true;
  plan.framework.reducer = Reducer::kDdp;
  plan.framework.bucket_views = true;
  const graph::Graph g = Make(model, plan);
  EXPECT_TRUE(graph::Verify(g, graph::VerifyLevel::kFull).ok());
  std::int64_t trained = 0;
  for (const graph::Buffer& b : FindBlock(g, "static").buffers) {
    if (g.name(b.name) == "parameters") trained += b.bytes / 2;
  }
  return trained;
}

TEST(ExpertAdapters, AsManyAsPeftCounts) {
  constexpr std::uint8_t kMlp = kLoraFc1 | kLoraFc2;
  const Model qwen = TwoQwenLayers();
  // LoraConfig(target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"])
  EXPECT_EQ(Trained(qwen, ExpertAdapterKind::kParameters, 0), 13'107'200);
  // LoraConfig(target_modules=["gate_proj", "up_proj", "down_proj"])
  EXPECT_EQ(Trained(qwen, ExpertAdapterKind::kModules, kMlp), 20'447'232);
  // "all-linear" has 20,760,576, of which routers 2 · 8 · (2,048 + 128).
  EXPECT_EQ(Trained(qwen, ExpertAdapterKind::kModules, kLoraAll), 20'760'576 - 34'816);
  EXPECT_EQ(Trained(qwen, ExpertAdapterKind::kNone, kLoraQkv | kLoraProjection), 278'528);
  // An A and a B for all experts, or one each: 128 times as many.
  const std::int64_t one = Trained(qwen, ExpertAdapterKind::kShared, kMlp);
  EXPECT_EQ(one, 2 * 8 * (2048 + 1536 + 768 + 2048));
  EXPECT_EQ(Trained(qwen, ExpertAdapterKind::kGrouped, kMlp), 128 * one);
}

// Dense layers and shared experts: none under modules; beside grouped ones they have theirs.
TEST(ExpertAdapters, SharedExpertsAndDenseLayers) {
  Model m = TwoQwenLayers();
  m.experts.count = 16;
  m.experts.shared_ffn_hidden = 768;
  m.experts.first_dense = 1;
  constexpr std::uint8_t kMlp = kLoraFc1 | kLoraFc2;
  const std::int64_t routed = 16 * 8 * (2048 + 1536 + 768 + 2048);
  const auto linear = [](std::int64_t ffn) { return 3 * 8 * (2048 + ffn); };  // gate, up, down
  EXPECT_EQ(Trained(m, ExpertAdapterKind::kGrouped, kMlp), routed + linear(768) + linear(6144));
  EXPECT_EQ(Trained(m, ExpertAdapterKind::kModules, kMlp),
            16 * (16 * (2048 + 1536) + 8 * (768 + 2048)));
}

// W + s·B·A of all experts of a layer: 128 · 3 · 768 · 2,048 values of 2 bytes until backward.
TEST(ExpertAdapters, PeftMergesTheWeights) {
  Plan plan{.batch = {.global_batch = 1, .seq_len = 128}};
  plan.lora = {.rank = 8, .targets = 0, .experts = ExpertAdapterKind::kParameters};
  plan.framework.reducer = Reducer::kDdp;
  const graph::Graph g = Make(TwoQwenLayers(), plan);
  const graph::Block& forward = FindBlock(g, "layer.forward");
  std::int64_t merged = 0;
  for (const graph::Buffer& b : forward.buffers) {
    if (g.name(b.name) == "experts.merged") merged += b.bytes;
  }
  EXPECT_EQ(merged, 128LL * 3 * 768 * 2048 * 2);
  const std::string operations = Operations(g, forward);
  EXPECT_NE(operations.find("lora_b.copy weight.copy merge grouped_fc1"), std::string::npos)
      << operations;
}

TEST(ExpertAdapters, WhatIsNotBuiltIsSaid) {
  const auto error = [](auto change) {
    Plan plan{.parallel = {.dp = 4}, .batch = {.global_batch = 4, .seq_len = 128}};
    plan.lora = {.rank = 8, .targets = kLoraAll, .experts = ExpertAdapterKind::kGrouped};
    change(&plan);
    return std::string(Validate(TwoQwenLayers(), plan).message());
  };
  EXPECT_EQ(error([](Plan*) {}), "");
  EXPECT_TRUE(error([](Plan* p) {
                p->lora.experts = ExpertAdapterKind::kModules;
              }).starts_with("training.lora_experts: PEFT's adapters"));
  EXPECT_TRUE(error([](Plan* p) {
                p->lora.experts = ExpertAdapterKind::kNone;
              }).starts_with("training.lora_targets: fc1 and fc2 of"));
  EXPECT_TRUE(error([](Plan* p) {
                p->lora.base = BaseWeights::kNf4;
              }).starts_with("training.lora_experts: adapters beside experts in 4 or 8 bits"));
}

}  // namespace
}  // namespace orrery::workload
