// NeMo-RL's YAML.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "orrery/job/job.h"
#include "orrery/recipes/import.h"

namespace orrery::recipes {
namespace {

using testing::HasSubstr;

// A recipe over `base`, which it inherits.
Result<Imported> ImportPolicy(const std::string& base, const std::string& text) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "nemo_rl";
  std::filesystem::create_directories(folder / "recipes");
  std::ofstream(folder / "base.yaml") << base;
  std::ofstream(folder / "recipes/child.yaml") << "defaults: ../base.yaml\n" + text;
  return Import({(folder / "recipes/child.yaml").string()}, {.cluster = "h100-ib-400g"});
}

constexpr const char* kGrpo =
    "grpo:\n  num_prompts_per_step: 32\n  num_generations_per_prompt: 16\npolicy:\n"
    "  model_name: Qwen/Qwen2.5-1.5B\n  train_global_batch_size: 512\n"
    "  train_micro_batch_size: 4\n  max_total_sequence_length: 512\n  precision: bfloat16\n"
    "  dtensor_cfg:\n    enabled: true\n    tensor_parallel_size: 1\n    context_parallel_size: 1\n"
    "    activation_checkpointing: false\n    cpu_offload: false\n  megatron_cfg:\n"
    "    enabled: false\n    activation_checkpointing: false\n    recompute_granularity: full\n"
    "    tensor_model_parallel_size: 1\n    expert_model_parallel_size: 1\n"
    "    expert_tensor_parallel_size: 1\n    sequence_parallel: false\n"
    "    moe_permute_fusion: true\n    optimizer:\n      optimizer: adam\n      bf16: true\n"
    "      use_distributed_optimizer: true\n    distributed_data_parallel_config:\n"
    "      grad_reduce_in_fp32: false\n      overlap_grad_reduce: true\n"
    "      overlap_param_gather: true\n  sequence_packing:\n    enabled: false\n"
    "    train_mb_tokens: ${mul:${policy.max_total_sequence_length}, "
    "${policy.train_micro_batch_size}}\n  optimizer:\n    name: torch.optim.AdamW\n    kwargs:\n"
    "      lr: 5e-6\n      fused: false\n  generation:\n    backend: vllm\n    colocated:\n"
    "      enabled: true\n      resources:\n        gpus_per_node: null\n"
    "        num_nodes: null\ncluster:\n  gpus_per_node: 8\n  num_nodes: 1\n";

// An update takes 512 sequences; 32 prompts of 16 answers are one update.
TEST(NemoRl, PolicyOnFsdp) {
  const Result<Imported> imported = ImportPolicy(kGrpo, "cluster:\n  num_nodes: 2\n");
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->dialect, "nemo-rl");
  const job::Workload& w = imported->job.workloads.front();
  EXPECT_EQ(w.model.parameters(), 1'543'714'304);
  EXPECT_EQ(imported->job.ranks(), 16u);
  EXPECT_EQ(w.plan.batch.global_batch, 512);
  EXPECT_EQ(w.plan.batch.micro_batch, 4);
  EXPECT_EQ(w.plan.batch.seq_len, 512);
  EXPECT_EQ(w.plan.memory.sharding, workload::Sharding::kZero3);
  EXPECT_TRUE(w.plan.framework.grad_reduce_fp32);
  EXPECT_THAT(imported->job_text, HasSubstr("an iteration has 1 such updates"));
}

// Transformer Engine's Adam over fp32 parameters keeps its moments in two bytes.
TEST(NemoRl, MomentsOfFusedAdam) {
  const Result<Imported> imported = ImportPolicy(
      kGrpo,
      "policy:\n  optimizer:\n"
      "    name: transformer_engine.pytorch.optimizers.fused_adam.FusedAdam\n    kwargs:\n"
      "      master_weights: true\n      store_param_remainders: true\n"
      "      exp_avg_dtype: torch.bfloat16\n      exp_avg_sq_dtype: torch.bfloat16\n");
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  const workload::Plan& plan = imported->job.workloads.front().plan;
  EXPECT_EQ(plan.optimizer_states, workload::OptimizerStates::kBf16);
  EXPECT_TRUE(plan.framework.fused_adam);
  EXPECT_FALSE(plan.framework.model_type_states);
}

TEST(NemoRl, PolicyOnMegatron) {
  const std::string text =
      "policy:\n  model_name: meta-llama/Llama-3.1-8B-Instruct\n  dtensor_cfg:\n"
      "    enabled: false\n  megatron_cfg:\n    enabled: true\n    activation_checkpointing: true\n"
      "    tensor_model_parallel_size: 2\n    sequence_parallel: true\n  sequence_packing:\n"
      "    enabled: true\n    train_mb_tokens: 1024\n  generation:\n    colocated:\n"
      "      enabled: false\n      resources:\n        num_nodes: 1\n        gpus_per_node: 8\n"
      "cluster:\n  num_nodes: 3\n";
  const Result<Imported> imported = ImportPolicy(kGrpo, text);
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  const job::Workload& w = imported->job.workloads.front();
  EXPECT_EQ(w.model.parameters(), 8'030'261'248);
  EXPECT_EQ(imported->job.ranks(), 16u);  // one host of three generates
  EXPECT_EQ(w.plan.parallel.tp, 2);
  EXPECT_EQ(w.plan.parallel.dp, 8);
  EXPECT_EQ(w.plan.batch.global_batch, 512);
  EXPECT_EQ(w.plan.batch.micro_batch, 2);  // 1,024 tokens of 512
  EXPECT_EQ(w.plan.memory.recompute, workload::Recompute::kFull);
  EXPECT_EQ(w.plan.memory.sharding, workload::Sharding::kZero1);
  EXPECT_FALSE(w.plan.framework.grad_reduce_fp32);
  EXPECT_FALSE(w.plan.framework.tp_comm_overlap);
}

// A pair of answers is two sequences.
TEST(NemoRl, PairsAreTwoSequences) {
  std::string base(kGrpo);
  base.replace(0, base.find("policy:"), "dpo:\n  max_num_steps: 1\n");
  const Result<Imported> imported = ImportPolicy(base, "policy:\n  train_global_batch_size: 64\n");
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->job.workloads.front().plan.batch.global_batch, 128);
}

TEST(NemoRl, WhatIsNotReadIsSaid) {
  const auto wrong = [](const std::string& text) {
    const Result<Imported> imported = ImportPolicy(kGrpo, text);
    return imported.ok() ? std::string() : std::string(imported.status().message());
  };
  EXPECT_THAT(wrong("policy:\n  dtensor_cfg:\n    tensor_parallel_sise: 2\n"),
              HasSubstr("child.yaml:4:27: unknown argument "
                        "'policy.dtensor_cfg.tensor_parallel_sise'"));
  EXPECT_THAT(wrong("policy:\n  precision: float32\n"), HasSubstr("bfloat16 is"));
  EXPECT_THAT(wrong("policy:\n  train_global_batch_size: 100\n"),
              HasSubstr("not shared out evenly to 8 replicas"));
}

}  // namespace
}  // namespace orrery::recipes
