// Is a blank of a row what the scripts of its own release set, and of no other?
#include "orrery/search/validate/release_recipes.h"

#include "orrery/search/validate/test_cases.h"

#include <gtest/gtest.h>

namespace orrery::search {
namespace {

formats::Section Recipe(const std::string& cells) {
  const auto table = formats::CsvTable::Parse(
      "framework,framework_version,measured_date,model,gpu,compute_dtype\n" + cells + "\n",
      "t.csv");
  EXPECT_TRUE(table.ok()) << table.status().message();
  return RecipeTable::BuiltIn().Find(Configuration(TableKind::kTraining, *table, 0));
}

TEST(ReleaseRecipes, NameTheirReleases) {
  EXPECT_EQ(formats::TextOf(Recipe("NeMo (Megatron-Core),v24.11.1,,Nemotron4-340B,H100-SXM5,fp8"),
                            "recompute_modules"),
            "core_attn");
  EXPECT_EQ(formats::TextOf(Recipe("NeMo (Megatron-Core),v25.04.02,,Nemotron4-340B,H100-SXM5,fp8"),
                            "recompute_modules"),
            "");
  // A round of MLPerf is known by its date.
  EXPECT_TRUE(
      Recipe("NeMo/Megatron-Core (x),ngc25.09,2025-11,Llama3-8B,B200,fp8").Has("fp8_recipe"));
  EXPECT_FALSE(
      Recipe("NeMo/Megatron-Core (x),ngc25.09,2025-06,Llama3-8B,B200,fp8").Has("fp8_recipe"));
  // Megatron Bridge by its container.
  EXPECT_EQ(formats::TextOf(Recipe("Megatron-Bridge,v0.1 (container 25.09),,DeepSeek-V3,H100,fp8"),
                            "recompute_modules"),
            "mla_up_proj+mlp");
  EXPECT_EQ(
      formats::TextOf(Recipe("Megatron-Bridge,v0.1,,DeepSeek-V3,H100,fp8"), "recompute_modules"),
      "");
}

TEST(ReleaseRecipes, MicroBatchesOfTable1) {
  EXPECT_EQ(
      Recipe("Megatron-LM 2021 (PTD-P),PTD-P 2021,,GPT-18B,A100-SXM4,fp16").Integer("micro_batch"),
      8);
  EXPECT_TRUE(
      Recipe("Megatron-LM 2021 (PTD-P),PTD-P 2021,,GPT-18B,A100-SXM4,fp16").Bool("torch_ddp"));
  EXPECT_EQ(Recipe("Megatron-LM Jan-2021,Jan-2021,,GPT-39B,A100-SXM4,fp16").Integer("micro_batch"),
            4);
  EXPECT_EQ(Recipe("Megatron-LM Jan-2021,Jan-2021,,GPT-530B,A100-SXM4,fp16").Integer("micro_batch"),
            1);
  EXPECT_EQ(Recipe("Megatron-LM Aug-2020,2020,,GPT-1B,A100-SXM4,fp16").Integer("micro_batch"), 0);
}

TEST(ReleaseRecipes, FirstLineOfATableHolds) {
  const std::string qwen = "Megatron-Bridge,container 25.11,,Qwen3-30B-A3B,GB200,";
  EXPECT_FALSE(Recipe(qwen + "bf16").Has("cuda_graph_scope"));
  EXPECT_EQ(Recipe(qwen + "mxfp8").Text("cuda_graph_scope"), "moe_router+moe_preprocess");
}

TEST(ReleaseRecipes, JoinTheTables) {
  const formats::Section r =
      Recipe("Megatron-Bridge,container 26.08,,Nemotron-3-Super-120B,GB200,nvfp4");
  EXPECT_EQ(r.Text("expert_graphs"), "layers");
  EXPECT_EQ(r.Integer("bf16_last_layers"), 14);
  EXPECT_TRUE(r.Has("grad_reduce_fp32") && !r.Bool("grad_reduce_fp32"));
  EXPECT_EQ(r.Text("moe_dispatcher"), "hybridep");
  EXPECT_EQ(r.Integer("deferred_head"), 0);
  EXPECT_TRUE(r.Bool("moe_delayed_weights"));
  EXPECT_TRUE(
      Recipe("NeMo (Megatron-Core),v25.05.05,,Grok-1-314B,GB200,fp8").Bool("moe_pad_to_capacity"));
  EXPECT_EQ(
      Recipe("NeMo (Megatron-Core),v25.05.05,,Llama3-70B,GB200,bf16").Integer("deferred_head"), 22);
}

// DGX Cloud's and JAX-Toolbox's runs of the same model.
TEST(ReleaseRecipes, PaxmlByWhoRanIt) {
  const formats::Section cloud = Recipe("Paxml (JAX),v24.11.1,,GPT3-5B,H100-SXM5,bf16");
  EXPECT_EQ(cloud.Text("recompute_keeps"), "products");
  EXPECT_EQ(cloud.Integer("shard_hosts"), 1);
  EXPECT_TRUE(cloud.Bool("copies_units") && cloud.Bool("qkv_bias_kernel") &&
              !cloud.Bool("low_precision_gather"));
  const formats::Section toolbox = Recipe("Paxml (JAX),JAX-Toolbox @x,,GPT3-5B,H100-SXM5,bf16");
  EXPECT_EQ(toolbox.Text("recompute_keeps"), "products");
  EXPECT_TRUE(toolbox.Bool("qkv_bias_kernel") && toolbox.Bool("stacked_layers") &&
              toolbox.Integer("shard_hosts") == 0);
  EXPECT_FALSE(toolbox.Bool("copies_units"));
  EXPECT_TRUE(Recipe("Paxml (JAX),JAX-Toolbox @x,,GPT-126M,A100-SXM4,bf16").Has("recompute"));
}

// torchao's runs on H100, which have no date, compiled layers alone; others go by their date.
TEST(ReleaseRecipes, TorchtitanByDate) {
  EXPECT_FALSE(
      Recipe("torchtitan FSDP2 + compile,,,Llama3-8B,H100-SXM5,fp8").Bool("compiled_loss"));
  EXPECT_TRUE(Recipe("torchtitan FSDP2 + compile,,,Llama3-8B,B200,fp8").Bool("compiled_loss"));
  EXPECT_FALSE(Recipe("torchtitan,,2025-03,Llama3-8B,H100-SXM5,bf16").Bool("compiled_loss"));
  const formats::Section first = Recipe("torchtitan,,2024-12,Llama3-8B,H100-SXM5,bf16");
  EXPECT_TRUE(first.Bool("compiled_loss") && !first.Bool("fused_adam"));
  const formats::Section later = Recipe("torchtitan,,2025-06,Llama3-8B,H100-SXM5,fp8");
  EXPECT_TRUE(later.Bool("compiled_loss") && later.Bool("fused_adam"));
}

TEST(ReleaseRecipes, PowerSteeredByTaskAndNumberOfGpus) {
  const auto steers = [](const std::string& cells) {
    const auto table = formats::CsvTable::Parse(
        "framework,framework_version,measured_date,model,gpu,task,gpus\n" + cells + "\n", "t.csv");
    EXPECT_TRUE(table.ok()) << table.status().message();
    return RecipeTable::BuiltIn()
        .Find(Configuration(TableKind::kTraining, *table, 0))
        .Bool("vboost");
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
  EXPECT_EQ(Recipe("NeMo (x),v25.05.05,,Llama3.1-405B,GB200,fp8").Integer("cuda"), 12);
  EXPECT_EQ(Recipe("NeMo (x),v25.05.05,,Llama3.1-405B,H100-SXM5,fp8").Integer("cuda"), 0);
  EXPECT_EQ(Recipe("NeMo/Megatron-Core (x),ngc25.04,2025-06,Llama2-70B,GB200,fp8").Integer("cuda"),
            12);
  EXPECT_EQ(Recipe("NeMo/Megatron-Core (x),ngc25.09,2025-11,Llama2-70B,GB200,fp8").Integer("cuda"),
            0);
  EXPECT_EQ(
      Recipe("Megatron-Bridge,v0.1 (container 25.09),,Qwen3-30B-A3B,B200,fp8").Integer("cuda"), 12);
  EXPECT_EQ(
      Recipe("Megatron-Bridge,v0.2 (container 25.11),,Qwen3-30B-A3B,B200,fp8").Integer("cuda"), 0);
}

TEST(ReleaseRecipes, WhatNemo1LeavesOff) {
  const auto launcher = [](const std::string& cells) {
    const auto table = formats::CsvTable::Parse(
        "framework,framework_version,model,gpu,task\n" + cells + "\n", "t.csv");
    EXPECT_TRUE(table.ok()) << table.status().message();
    return RecipeTable::BuiltIn().Find(Configuration(TableKind::kTraining, *table, 0));
  };
  const formats::Section nemotron =
      launcher("NeMo 24.07 (Megatron-Core),24.07,Nemotron3-8B,H100-SXM5,pretrain");
  EXPECT_TRUE(nemotron.Has("grad_reduce_fp32") && nemotron.Bool("grad_reduce_fp32"));
  EXPECT_TRUE(!nemotron.Bool("low_precision_gather") && nemotron.Bool("fused_loss"));
  const formats::Section llama =
      launcher("NeMo 24.07 (Megatron-Core),24.07,Llama2-70B,H100-SXM5,pretrain");
  EXPECT_FALSE(llama.Has("grad_reduce_fp32"));
  EXPECT_FALSE(llama.Bool("low_precision_gather") || llama.Bool("fused_loss"));
  const formats::Section lora =
      launcher("NeMo 24.07 (Megatron-Core),24.07,Llama2-70B,H100-SXM5,lora");
  EXPECT_TRUE(lora.Bool("low_precision_gather") && lora.Bool("fused_loss"));
  // DGX Cloud's scripts set fp8_params.
  EXPECT_TRUE(Recipe("NeMo (x),v24.11.1,,GPT3-175B,H100-SXM5,fp8").Bool("low_precision_gather"));
  EXPECT_FALSE(Recipe("NeMo (x),v24.11.1,,GPT3-175B,H100-SXM5,fp8").Bool("fused_loss"));
  EXPECT_TRUE(Recipe("NeMo (x),v25.02.02,,Nemotron4-15B,H100-SXM5,fp8").Bool("grad_reduce_fp32"));
  EXPECT_FALSE(
      Recipe("NeMo (x),v25.05.05,,Nemotron-H-56B,H100-SXM5,fp8").Bool("fused_weight_gradient"));
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
        formats::CsvTable::Parse("framework,framework_version,model,gpu\n" + cells + "\n", "t.csv");
    EXPECT_TRUE(rows.ok()) << rows.status().message();
    return table.Find(Configuration(TableKind::kTraining, *rows, 0));
  };
  EXPECT_EQ(formats::TextOf(recipe("Megatron-Bridge,v1 (container 27.02),Qwen4-40B,B200"),
                            "recompute_modules"),
            "moe_act");
  EXPECT_EQ(formats::TextOf(recipe("Megatron-Bridge,v1 (container 26.12),Qwen4-40B,B200"),
                            "recompute_modules"),
            "");
  EXPECT_EQ(recipe("NeMo (x),v25.05.05,Llama3-70B,GB200").Integer("deferred_head"), 7);
  EXPECT_EQ(recipe("NeMo (x),v25.05.05,Llama3-70B,GB200").Integer("cuda"), 12);
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
  const auto rows =
      formats::CsvTable::Parse("config_extra\ncase=my_case_rope_embeddings+x\n", "t.csv");
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
  const formats::Section r = Recipe("torchtitan,,,Llama3.1-405B,H100,fp8");
  EXPECT_TRUE(r.Bool("fused_attention") && !r.Has("grad_reduce_fp32") &&
              !r.Has("recompute_modules"));
  EXPECT_EQ(r.Integer("deferred_head"), 0);
}

}  // namespace
}  // namespace orrery::search
