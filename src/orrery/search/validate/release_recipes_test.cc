// Is a blank of a row what the scripts of its own release set, and of no other?
#include "orrery/search/validate/release_recipes.h"

#include "orrery/search/validate/test_cases.h"

#include <gtest/gtest.h>

namespace orrery::search {
namespace {

ReleaseRecipe Recipe(const std::string& cells) {
  const auto table = CsvTable::Parse(
      "framework,framework_version,measured_date,model,gpu,compute_dtype\n" + cells + "\n",
      "t.csv");
  EXPECT_TRUE(table.ok()) << table.status().message();
  return RecipeTable::BuiltIn().Find(Configuration(TableKind::kTraining, *table, 0));
}

TEST(ReleaseRecipes, NameTheirReleases) {
  EXPECT_EQ(Recipe("NeMo (Megatron-Core),v24.11.1,,Nemotron4-340B,H100-SXM5,fp8").recompute,
            "core_attn");
  EXPECT_EQ(Recipe("NeMo (Megatron-Core),v25.04.02,,Nemotron4-340B,H100-SXM5,fp8").recompute, "");
  // A round of MLPerf is known by its date.
  EXPECT_TRUE(Recipe("NeMo/Megatron-Core (x),ngc25.09,2025-11,Llama3-8B,B200,fp8").current);
  EXPECT_FALSE(Recipe("NeMo/Megatron-Core (x),ngc25.09,2025-06,Llama3-8B,B200,fp8").current);
  // Megatron Bridge by its container.
  EXPECT_EQ(Recipe("Megatron-Bridge,v0.1 (container 25.09),,DeepSeek-V3,H100,fp8").recompute,
            "mla_up_proj+mlp");
  EXPECT_EQ(Recipe("Megatron-Bridge,v0.1,,DeepSeek-V3,H100,fp8").recompute, "");
}

TEST(ReleaseRecipes, MicroBatchesOfTable1) {
  EXPECT_EQ(Recipe("Megatron-LM 2021 (PTD-P),PTD-P 2021,,GPT-18B,A100-SXM4,fp16").micro_batch, 8);
  EXPECT_TRUE(Recipe("Megatron-LM 2021 (PTD-P),PTD-P 2021,,GPT-18B,A100-SXM4,fp16").torch_ddp);
  EXPECT_EQ(Recipe("Megatron-LM Jan-2021,Jan-2021,,GPT-39B,A100-SXM4,fp16").micro_batch, 4);
  EXPECT_EQ(Recipe("Megatron-LM Jan-2021,Jan-2021,,GPT-530B,A100-SXM4,fp16").micro_batch, 1);
  EXPECT_EQ(Recipe("Megatron-LM Aug-2020,2020,,GPT-1B,A100-SXM4,fp16").micro_batch, 0);
}

TEST(ReleaseRecipes, FirstLineOfATableHolds) {
  const std::string qwen = "Megatron-Bridge,container 25.11,,Qwen3-30B-A3B,GB200,";
  EXPECT_EQ(Recipe(qwen + "bf16").graph_scope, workload::kGraphAll);
  EXPECT_EQ(Recipe(qwen + "mxfp8").graph_scope,
            workload::kGraphRouter | workload::kGraphPreprocess);
}

TEST(ReleaseRecipes, JoinTheTables) {
  const ReleaseRecipe r =
      Recipe("Megatron-Bridge,container 26.08,,Nemotron-3-Super-120B,GB200,nvfp4");
  EXPECT_EQ(r.expert_graphs, workload::CudaGraphs::kLayers);
  EXPECT_EQ(r.bf16_last_layers, 14);
  EXPECT_EQ(r.reduces_fp32, false);
  EXPECT_EQ(r.dispatcher, workload::Dispatcher::kHybridEp);
  EXPECT_EQ(r.deferred_head, 0);
  EXPECT_TRUE(r.delays_weights);
  EXPECT_TRUE(Recipe("NeMo (Megatron-Core),v25.05.05,,Grok-1-314B,GB200,fp8").drops);
  EXPECT_EQ(Recipe("NeMo (Megatron-Core),v25.05.05,,Llama3-70B,GB200,bf16").deferred_head, 22);
}

// DGX Cloud's and JAX-Toolbox's runs of the same model.
TEST(ReleaseRecipes, PaxmlByWhoRanIt) {
  using workload::RecomputeKeeps;
  const ReleaseRecipe cloud = Recipe("Paxml (JAX),v24.11.1,,GPT3-5B,H100-SXM5,bf16");
  EXPECT_EQ(cloud.keeps, RecomputeKeeps::kProducts);
  EXPECT_EQ(cloud.shard_hosts, 1);
  EXPECT_TRUE(cloud.copies_carried && cloud.bias_kernels && cloud.gathers_16_bits);
  const ReleaseRecipe toolbox = Recipe("Paxml (JAX),JAX-Toolbox @x,,GPT3-5B,H100-SXM5,bf16");
  EXPECT_EQ(toolbox.keeps, RecomputeKeeps::kProducts);
  EXPECT_TRUE(toolbox.bias_kernels && toolbox.scans && toolbox.shard_hosts == 0);
  EXPECT_FALSE(toolbox.copies_carried);
  EXPECT_FALSE(Recipe("Paxml (JAX),JAX-Toolbox @x,,GPT-126M,A100-SXM4,bf16").recomputes);
}

// torchao's runs on H100, which have no date, compiled layers alone; others go by their date.
TEST(ReleaseRecipes, TorchtitanByDate) {
  EXPECT_FALSE(Recipe("torchtitan FSDP2 + compile,,,Llama3-8B,H100-SXM5,fp8").compiles_loss);
  EXPECT_TRUE(Recipe("torchtitan FSDP2 + compile,,,Llama3-8B,B200,fp8").compiles_loss);
  EXPECT_FALSE(Recipe("torchtitan,,2025-03,Llama3-8B,H100-SXM5,bf16").compiles_loss);
  const ReleaseRecipe first = Recipe("torchtitan,,2024-12,Llama3-8B,H100-SXM5,bf16");
  EXPECT_TRUE(first.compiles_loss && first.adam_operators);
  const ReleaseRecipe later = Recipe("torchtitan,,2025-06,Llama3-8B,H100-SXM5,fp8");
  EXPECT_TRUE(later.compiles_loss && !later.adam_operators);
}

TEST(ReleaseRecipes, PowerSteeredByTaskAndNumberOfGpus) {
  const auto steers = [](const std::string& cells) {
    const auto table = CsvTable::Parse(
        "framework,framework_version,measured_date,model,gpu,task,gpus\n" + cells + "\n", "t.csv");
    EXPECT_TRUE(table.ok()) << table.status().message();
    return RecipeTable::BuiltIn().Find(Configuration(TableKind::kTraining, *table, 0)).vboost;
  };
  EXPECT_FALSE(steers("NeMo (x),v25.02.02,,Llama3-8B,H100-SXM5,pretrain,32"));
  EXPECT_TRUE(steers("NeMo (x),v25.02.02,,Llama3-8B,H100-SXM5,sft,32"));
  EXPECT_TRUE(steers("NeMo (x),v25.04.02,,Llama3-8B,H100-SXM5,pretrain,32"));
  EXPECT_FALSE(steers("NeMo (x),v25.04.02,,Grok-1-314B,H100-SXM5,pretrain,512"));
  EXPECT_FALSE(steers("NeMo (x),v25.05.05,,Llama3.1-405B,GB200,pretrain,512"));
  EXPECT_TRUE(steers("NeMo/Megatron-Core (x),,2024-06,GPT3-175B,H100-SXM5,pretrain,512"));
  EXPECT_FALSE(steers("NeMo/Megatron-Core (x),,2024-06,GPT3-175B,H100-SXM5,pretrain,10752"));
  EXPECT_FALSE(steers("NeMo/Megatron-Core (x),,2024-06,GPT3-175B,H100-SXM5,pretrain,5120"));
}

TEST(ReleaseRecipes, ContainersOfBlackwell) {
  EXPECT_EQ(Recipe("NeMo (x),v25.05.05,,Llama3.1-405B,GB200,fp8").cuda, 12);
  EXPECT_EQ(Recipe("NeMo (x),v25.05.05,,Llama3.1-405B,H100-SXM5,fp8").cuda, 0);
  EXPECT_EQ(Recipe("NeMo/Megatron-Core (x),ngc25.04,2025-06,Llama2-70B,GB200,fp8").cuda, 12);
  EXPECT_EQ(Recipe("NeMo/Megatron-Core (x),ngc25.09,2025-11,Llama2-70B,GB200,fp8").cuda, 0);
  EXPECT_EQ(Recipe("Megatron-Bridge,v0.1 (container 25.09),,Qwen3-30B-A3B,B200,fp8").cuda, 12);
  EXPECT_EQ(Recipe("Megatron-Bridge,v0.2 (container 25.11),,Qwen3-30B-A3B,B200,fp8").cuda, 0);
}

TEST(ReleaseRecipes, WhatNemo1LeavesOff) {
  const auto launcher = [](const std::string& cells) {
    const auto table =
        CsvTable::Parse("framework,framework_version,model,gpu,task\n" + cells + "\n", "t.csv");
    EXPECT_TRUE(table.ok()) << table.status().message();
    return RecipeTable::BuiltIn().Find(Configuration(TableKind::kTraining, *table, 0));
  };
  const ReleaseRecipe nemotron =
      launcher("NeMo 24.07 (Megatron-Core),24.07,Nemotron3-8B,H100-SXM5,pretrain");
  EXPECT_EQ(nemotron.reduces_fp32, true);
  EXPECT_TRUE(nemotron.gathers_16_bits && !nemotron.plain_loss);
  const ReleaseRecipe llama =
      launcher("NeMo 24.07 (Megatron-Core),24.07,Llama2-70B,H100-SXM5,pretrain");
  EXPECT_FALSE(llama.reduces_fp32.has_value());
  EXPECT_TRUE(llama.gathers_16_bits && llama.plain_loss);
  const ReleaseRecipe lora = launcher("NeMo 24.07 (Megatron-Core),24.07,Llama2-70B,H100-SXM5,lora");
  EXPECT_FALSE(lora.gathers_16_bits || lora.plain_loss);
  // DGX Cloud's scripts set fp8_params.
  EXPECT_FALSE(Recipe("NeMo (x),v24.11.1,,GPT3-175B,H100-SXM5,fp8").gathers_16_bits);
  EXPECT_TRUE(Recipe("NeMo (x),v24.11.1,,GPT3-175B,H100-SXM5,fp8").plain_loss);
  EXPECT_EQ(Recipe("NeMo (x),v25.02.02,,Nemotron4-15B,H100-SXM5,fp8").reduces_fp32, true);
  EXPECT_TRUE(Recipe("NeMo (x),v25.05.05,,Nemotron-H-56B,H100-SXM5,fp8").adds_weight_gradients);
}

// A recipe by a user's own file: a release that is not built in, and one in place of a built-in
// row.
TEST(ReleaseRecipes, AUsersOwn) {
  RecipeTable table = RecipeTable::BuiltIn();
  const Status added = table.Add(
      "next: {scripts: bridge, from: 27.01, models: Qwen4, recompute_modules: moe_act, source: s}\n"
      "mine: {scripts: nemo, about: head, models: Llama3-70B, deferred_head: 7, source: s}\n",
      "mine/release_recipes.yaml");
  ASSERT_TRUE(added.ok()) << added.message();
  const auto recipe = [&](const std::string& cells) {
    const auto rows =
        CsvTable::Parse("framework,framework_version,model,gpu\n" + cells + "\n", "t.csv");
    EXPECT_TRUE(rows.ok()) << rows.status().message();
    return table.Find(Configuration(TableKind::kTraining, *rows, 0));
  };
  EXPECT_EQ(recipe("Megatron-Bridge,v1 (container 27.02),Qwen4-40B,B200").recompute, "moe_act");
  EXPECT_EQ(recipe("Megatron-Bridge,v1 (container 26.12),Qwen4-40B,B200").recompute, "");
  EXPECT_EQ(recipe("NeMo (x),v25.05.05,Llama3-70B,GB200").deferred_head, 7);
  EXPECT_EQ(recipe("NeMo (x),v25.05.05,Llama3-70B,GB200").cuda, 12);
  const auto error = [&](const std::string& row) { return table.Add(row, "mine.yaml").message(); };
  EXPECT_EQ(error("a: {scripts: nemo, vbost: true, source: s}\n").find("mine.yaml:1:"), 0U);
  EXPECT_NE(error("e: {scripts: nemo, vbost: true, source: s}\n").find("'vboost'"),
            std::string::npos);
  EXPECT_NE(error("b: {from: 24.11, source: s}\n").find("'b' lacks scripts"), std::string::npos);
  EXPECT_NE(error("c: {scripts: nemo, to: May, source: s}\n").find("'May' is no month"),
            std::string::npos);
  EXPECT_NE(error("d: {scripts: nemo, cuda_graph_scope: all, source: s}\n").find("all"),
            std::string::npos);
}

TEST(TestCases, AUsersOwn) {
  TestCaseTable table = TestCaseTable::BuiltIn();
  const Status added =
      table.Add("x: {case: my_case, vocab: 1000, description: vocab 1000, source: s}\n", "x.yaml");
  ASSERT_TRUE(added.ok()) << added.message();
  const auto rows = CsvTable::Parse("config_extra\ncase=my_case_rope_embeddings+x\n", "t.csv");
  ASSERT_TRUE(rows.ok());
  workload::Model model;
  std::vector<std::string> assumed;
  table.Apply(Configuration(TableKind::kTraining, *rows, 0), &model, &assumed);
  EXPECT_EQ(model.vocab, 1000);
  EXPECT_EQ(model.position, workload::Position::kRotary);
  EXPECT_EQ(assumed.size(), 2U);
  const auto error = [&](const std::string& row) { return table.Add(row, "x.yaml").message(); };
  EXPECT_NE(error("y: {case: c, vocab: 5, source: s}\n").find("lacks a description"),
            std::string::npos);
  EXPECT_NE(error("z: {case: c, vocabs: 5, description: d, source: s}\n").find("'vocab'"),
            std::string::npos);
}

TEST(ReleaseRecipes, UnknownScriptsSetNothing) {
  const ReleaseRecipe r = Recipe("torchtitan,,,Llama3.1-405B,H100,fp8");
  EXPECT_TRUE(r.fused_attention && !r.reduces_fp32.has_value() && r.recompute.empty());
  EXPECT_EQ(r.deferred_head, 0);
}

}  // namespace
}  // namespace orrery::search
