// NeMo's and Megatron Bridge's YAML.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "orrery/job/job.h"
#include "orrery/recipes/import.h"

namespace orrery::recipes {
namespace {

using testing::HasSubstr;

Result<Imported> ImportYaml(const std::string& text, const Options& options) {
  const std::string path = testing::TempDir() + "nemo.yaml";
  std::ofstream(path) << text;
  return Import({path}, options);
}

TEST(Nemo, BridgeIsMegatronInSections) {
  const Result<Imported> imported =
      Import({std::string(ORRERY_SOURCE_DIR) + "/examples/recipes/bridge-llama3-8b.yaml"},
             {.cluster = "h100-ib-400g", .gpus = 16});
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->dialect, "nemo");
  const job::Workload& w = imported->job.workloads.front();
  EXPECT_EQ(w.model.parameters(), 8'030'261'248);
  EXPECT_EQ(w.plan.parallel.dp, 4);
  EXPECT_EQ(w.plan.batch.global_batch, 128);
  EXPECT_TRUE(w.plan.framework.tp_comm_overlap);
  EXPECT_TRUE(w.plan.framework.grad_reduce_fp32);  // its mixed precision's, not ddp's
  EXPECT_EQ(w.plan.memory.sharding, workload::Sharding::kZero1);
  EXPECT_THAT(imported->job_text, HasSubstr("fp8_recipe: current"));
  EXPECT_THAT(imported->job_text, HasSubstr("framework: megatron-bridge"));
}

constexpr const char* kNemo1 =
    "trainer:\n  devices: 8\n  num_nodes: 2\n  precision: bf16\nexp_manager:\n  name: x\n"
    "model:\n  micro_batch_size: 1\n  global_batch_size: 64\n  tensor_model_parallel_size: 4\n"
    "  encoder_seq_length: 2048\n  max_position_embeddings: 2048\n  num_layers: 12\n"
    "  hidden_size: 768\n  num_attention_heads: 12\n  ffn_hidden_size: 3072\n"
    "  vocab_size: 50304\n  activation: fast-swiglu\n  bias: false\n"
    "  activations_checkpoint_granularity: selective\n"
    "  optim:\n    name: distributed_fused_adam\n    lr: 1e-4\n";

TEST(Nemo, OneSaysItsHosts) {
  const Result<Imported> imported = ImportYaml(kNemo1, {.cluster = "a100-80g-ib-200g"});
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  const job::Workload& w = imported->job.workloads.front();
  EXPECT_EQ(imported->job.ranks(), 16u);
  EXPECT_EQ(w.plan.parallel.dp, 4);
  EXPECT_EQ(w.plan.batch.seq_len, 2048);
  EXPECT_EQ(w.plan.memory.recompute, workload::Recompute::kSelective);
  EXPECT_EQ(w.model.activation, workload::Activation::kSwiglu);
  EXPECT_FALSE(w.model.mlp_bias);
}

// The default number of layers counts only where offloading is on.
TEST(Nemo, OffloadsWhereToldTo) {
  const auto layers = [](const std::string& on) {
    std::string yaml = kNemo1;
    yaml.insert(yaml.find("  optim:"),
                "  cpu_offloading: " + on + "\n  cpu_offloading_num_layers: 11\n");
    const Result<Imported> imported = ImportYaml(yaml, {.cluster = "a100-80g-ib-200g"});
    EXPECT_TRUE(imported.ok()) << imported.status().message();
    return imported.ok() ? imported->job.workloads.front().plan.memory.offload_layers : -1;
  };
  EXPECT_EQ(layers("true"), 11);
  EXPECT_EQ(layers("false"), 0);
}

// A file that overrides a recipe in Python says no shapes: --model does.
TEST(Nemo, OverridesNeedAModel) {
  const std::string yaml =
      "model:\n  tensor_model_parallel_size: 1\n  seq_length: 8192\ntrain:\n"
      "  global_batch_size: 8\n  micro_batch_size: 1\nscheduler:\n  lr_warmup_iters: 10\n"
      "mixed_precision: bf16_mixed\n";
  const Result<Imported> without = ImportYaml(yaml, {.cluster = "h100-ib-400g", .gpus = 8});
  ASSERT_FALSE(without.ok());
  EXPECT_THAT(without.status().message(), HasSubstr("--num-layers (model.layers)"));
  const Result<Imported> with =
      ImportYaml(yaml, {.cluster = "h100-ib-400g", .model = "llama3-8b", .gpus = 8});
  ASSERT_TRUE(with.ok()) << with.status().message();
  EXPECT_EQ(with->job.workloads.front().model.parameters(), 8'030'261'248);
  EXPECT_EQ(with->job.workloads.front().plan.batch.global_batch, 8);
  const Result<Imported> typo = ImportYaml(yaml + "ddp:\n  overlap_grad_reduse: true\n",
                                           {.cluster = "h100-ib-400g", .gpus = 8});
  ASSERT_FALSE(typo.ok());
  EXPECT_THAT(typo.status().message(), HasSubstr("unknown argument 'ddp.overlap_grad_reduse'"));
}

constexpr const char* kBridge =
    "model:\n  hf_model_id: meta-llama/Meta-Llama-3-8B\n  tensor_model_parallel_size: 2\n"
    "  sequence_parallel: true\n  seq_length: 8192\ntrain:\n  global_batch_size: 128\n"
    "  micro_batch_size: 1\nddp:\n  use_distributed_optimizer: true\n"
    "  grad_reduce_in_fp32: false\n  overlap_grad_reduce: false\n  overlap_param_gather: false\n";

workload::Plan BridgePlan(const std::string& more) {
  const Result<Imported> imported =
      ImportYaml(kBridge + more, {.cluster = "h100-ib-400g", .gpus = 16});
  EXPECT_TRUE(imported.ok()) << imported.status().message();
  return imported.ok() ? imported->job.workloads.front().plan : workload::Plan();
}

// MixedPrecisionConfig.setup writes its own value over what ddp, model and optimizer say.
TEST(Nemo, BridgesPrecisionOverrulesDdp) {
  EXPECT_TRUE(BridgePlan("mixed_precision: bf16_mixed\n").framework.grad_reduce_fp32);
  EXPECT_TRUE(BridgePlan("mixed_precision: bf16-mixed\n").framework.grad_reduce_fp32);
  const std::string target = "mixed_precision:\n  _target_: megatron.bridge.mixed_precision.";
  EXPECT_FALSE(
      BridgePlan(target + "bf16_mixed\n  grad_reduce_in_fp32: false\n").framework.grad_reduce_fp32);
  EXPECT_TRUE(
      BridgePlan(target + "MixedPrecisionConfig\n  bf16: true\n").framework.grad_reduce_fp32);
  // First and last layers, and parameters gathered in fp8, hang on the name as well.
  const workload::Plan current =
      BridgePlan("mixed_precision: bf16_with_fp8_current_scaling_mixed\n");
  EXPECT_EQ(current.precision.bf16_first_layers, 1);
  EXPECT_EQ(current.precision.bf16_last_layers, 1);
  EXPECT_TRUE(current.framework.low_precision_gather);
  const workload::Plan blocks =
      BridgePlan("mixed_precision: bf16_with_fp8_subchannel_scaling_mixed\n");
  EXPECT_EQ(blocks.precision.bf16_first_layers, 0);
  EXPECT_FALSE(blocks.framework.low_precision_gather);
  const Result<Imported> wrong = ImportYaml(std::string(kBridge) + "mixed_precision: bf16_mixd\n",
                                            {.cluster = "h100-ib-400g", .gpus = 16});
  ASSERT_FALSE(wrong.ok());
  EXPECT_THAT(wrong.status().message(), HasSubstr("did you mean 'bf16_mixed'"));
  // Recipes of Bridge are in bf16 where a file that overrides them says nothing of it.
  const Result<Imported> usual = ImportYaml(kBridge, {.cluster = "h100-ib-400g", .gpus = 16});
  ASSERT_TRUE(usual.ok()) << usual.status().message();
  EXPECT_EQ(usual->job.workloads.front().plan.precision.type, workload::Precision::kBf16);
  EXPECT_THAT(usual->job_text, HasSubstr("mixed_precision: bf16_mixed, as recipes of Megatron"));
  const Result<Imported> null = ImportYaml(std::string(kBridge) + "mixed_precision: null\n",
                                           {.cluster = "h100-ib-400g", .gpus = 16});
  ASSERT_TRUE(null.ok()) << null.status().message();
  EXPECT_EQ(null->job.workloads.front().plan.precision.type, workload::Precision::kFp32);
  EXPECT_THAT(null->job_text, HasSubstr("fp32: mixed_precision is null"));
  // No mixed precision: what ddp says counts.
  const std::string bare = std::string(kBridge);
  const Result<Imported> plain = ImportYaml(bare.substr(0, 7) + "  bf16: true\n" + bare.substr(7),
                                            {.cluster = "h100-ib-400g", .gpus = 16});
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  EXPECT_FALSE(plain->job.workloads.front().plan.framework.grad_reduce_fp32);
}

// Types of torch as objects and by name.
TEST(Nemo, BridgesMoments) {
  const auto states = [](const std::string& first, const std::string& second) {
    return BridgePlan(
               "mixed_precision: bf16_mixed\noptimizer:\n"
               "  use_precision_aware_optimizer: true\n  main_grads_dtype: torch.float32\n"
               "  exp_avg_dtype: " +
               first + "\n  exp_avg_sq_dtype: " + second + "\n")
        .optimizer_states;
  };
  EXPECT_EQ(states("{_target_: torch.bfloat16, _call_: false}",
                   "{_target_: torch.bfloat16, _call_: false}"),
            workload::OptimizerStates::kBf16);
  EXPECT_EQ(states("torch.bfloat16", "bf16"), workload::OptimizerStates::kBf16);
  EXPECT_EQ(states("torch.float32", "fp32"), workload::OptimizerStates::kFull);
  EXPECT_TRUE(BridgePlan("mixed_precision: bf16_mixed\noptimizer:\n"
                         "  main_grads_dtype: torch.bfloat16\n")
                  .framework.bf16_main_gradients);
  const Result<Imported> mixed =
      ImportYaml(std::string(kBridge) + "optimizer:\n  exp_avg_dtype: torch.float8_e4m3fn\n",
                 {.cluster = "h100-ib-400g", .gpus = 16});
  ASSERT_FALSE(mixed.ok());
  EXPECT_THAT(mixed.status().message(),
              HasSubstr("moments in float8_e4m3fn and fp32 are not modelled"));
}

// 72 GPUs share NVLink: 64 of each rack keep groups of 64 and 32 ranks whole, all 72 those of 8.
TEST(Nemo, GroupsKeepWithinARack) {
  const auto domain = [](const std::string& ep) {
    const std::string text =
        "model:\n  hf_model_id: Qwen/Qwen3-30B-A3B\n  seq_length: 4096\n"
        "  expert_model_parallel_size: " +
        ep +
        "\ntrain:\n  global_batch_size: 1024\n"
        "  micro_batch_size: 1\nddp:\n  use_distributed_optimizer: true\n";
    const Result<Imported> imported =
        ImportYaml(text, {.cluster = "gb200-nvl72-ib-400g", .gpus = 256});
    EXPECT_TRUE(imported.ok()) << imported.status().message();
    return imported.ok() ? imported->job.cluster.gpus_per_nvlink_domain : 0;
  };
  EXPECT_EQ(domain("64"), 64);
  EXPECT_EQ(domain("32"), 64);
  EXPECT_EQ(domain("8"), 72);
}

// CommOverlapConfig.setup turns on what overlaps beside a distributed optimizer, and off what is
// not asked for between tensor-parallel ranks.
TEST(Nemo, BridgesOverlapOverrulesDdp) {
  const std::string precision = "mixed_precision: bf16_mixed\n";
  const workload::Plan on = BridgePlan(precision + "comm_overlap:\n  tp_comm_overlap: false\n");
  EXPECT_TRUE(on.framework.overlap_grad_reduce);
  EXPECT_TRUE(on.framework.overlap_param_gather);
  EXPECT_FALSE(on.framework.tp_comm_overlap);
  EXPECT_EQ(on.framework.bucket_elements, 128 << 20);
  const workload::Plan off =
      BridgePlan(precision +
                 "comm_overlap:\n  tp_comm_overlap: true\n  overlap_grad_reduce: false\n"
                 "  overlap_param_gather: false\n  bucket_size: 1000000\n");
  EXPECT_FALSE(off.framework.overlap_grad_reduce);
  EXPECT_FALSE(off.framework.overlap_param_gather);
  EXPECT_TRUE(off.framework.tp_comm_overlap);
  EXPECT_EQ(off.framework.bucket_elements, 1'000'000);
  const workload::Plan without = BridgePlan(precision);
  EXPECT_FALSE(without.framework.overlap_grad_reduce);
  // Either section's word is enough.
  EXPECT_TRUE(BridgePlan(precision + "optimizer:\n  overlap_param_gather: true\n")
                  .framework.overlap_param_gather);
}

// Modules that predict further tokens are said by the recipe, beside a model of the hub.
TEST(Nemo, BridgesFurtherTokensAreRead) {
  std::string text(kBridge);
  text.insert(7, "  mtp_num_layers: 1\n");
  const Result<Imported> imported =
      ImportYaml(text + "mixed_precision: bf16_mixed\n", {.cluster = "h100-ib-400g", .gpus = 16});
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->job.workloads.front().model.mtp_layers, 1);
}

// A layout as lists of names.
TEST(Nemo, BridgesLayoutsAreRead) {
  std::string text(kBridge);
  text.insert(7,
              "  pipeline_model_parallel_size: 2\n  pipeline_model_parallel_layout: "
              "[[embedding, decoder, decoder, decoder], [decoder, loss]]\n");
  const Result<Imported> imported =
      ImportYaml(text + "mixed_precision: bf16_mixed\n", {.cluster = "h100-ib-400g", .gpus = 16});
  ASSERT_FALSE(imported.ok());  // 4 layers of 32
  EXPECT_THAT(imported.status().message(), HasSubstr("layers_per_stage"));
}

// OmegaConf's expressions, and the tokenizer's name for a vocabulary.
TEST(Nemo, ExpressionsAreResolved) {
  std::string text(kNemo1);
  const auto replace = [&](const std::string& from, const std::string& to) {
    text.replace(text.find(from), from.size(), to);
  };
  replace("ffn_hidden_size: 3072", "ffn_hidden_size: ${multiply:4, ${.hidden_size}}");
  replace("max_position_embeddings: 2048", "max_position_embeddings: ${.encoder_seq_length}");
  replace("global_batch_size: 64", "global_batch_size: ${multiply:${trainer.num_nodes}, 32}");
  replace("  vocab_size: 50304\n",
          "  tokenizer:\n    library: megatron\n    type: GPT2BPETokenizer\n");
  const Result<Imported> imported = ImportYaml(text, {.cluster = "a100-80g-ib-200g"});
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  const job::Workload& w = imported->job.workloads.front();
  EXPECT_EQ(w.model.ffn_hidden, 3072);
  EXPECT_EQ(w.model.max_position, 2048);
  EXPECT_EQ(w.plan.batch.global_batch, 64);
  EXPECT_EQ(w.model.vocab, 50'688);  // 50,257 to a multiple of 128 · 4
  std::string loop(kNemo1);
  loop.replace(loop.find("ffn_hidden_size: 3072"), 21, "ffn_hidden_size: ${.ffn_hidden_size}");
  EXPECT_THAT(ImportYaml(loop, {.cluster = "a100-80g-ib-200g"}).status().message(),
              HasSubstr("write a whole number"));
}

}  // namespace
}  // namespace orrery::recipes
