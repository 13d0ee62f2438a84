// Is a blank of a row what the scripts of its own release set, and of no other?
#include "orrery/search/validate/release_recipes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "orrery/search/validate/names.h"
#include "orrery/workload/options.h"

namespace orrery::search {
namespace {

// The last that sets a key holds; empty: nothing does.
std::string ValueOf(const Release& release, std::string_view key) {
  std::string value;
  for (const formats::Field& field : release.job) {
    if (field.key == key) value = field.value.text;
  }
  return value;
}

constexpr std::string_view kColumns =
    "framework,framework_version,measured_date,model,gpu,compute_dtype,task,gpus";

Release Recipe(const std::string& cells, std::string_view columns = kColumns,
               const RecipeTable& recipes = RecipeTable::BuiltIn()) {
  const auto table = formats::CsvTable::Parse(fmt::format("{}\n{}\n", columns, cells), "t.csv");
  EXPECT_TRUE(table.ok()) << table.status().message();
  const auto measured = Columns::BuiltIn().ReadAs(TableKind::kTraining, *table);
  const Configuration row(*measured, 0);
  const auto framework = FrameworkNames::BuiltIn().Match(row, job::FrameworkTable::BuiltIn());
  return recipes.Find(row, framework.ok() ? framework->framework->name : "",
                      FrameworkNames::BuiltIn().OriginOf(row));
}

TEST(ReleaseRecipes, SetKeysOfAJob) {
  struct Expected {
    const char *cells, *key, *value;
  };
  constexpr const char* kModules = "training.recompute_modules";
  constexpr const char* kHead = "framework_options.deferred_head";
  constexpr const char* kCut = "training.micro_batch";
  constexpr const char* kReduce = "framework_options.grad_reduce_fp32";
  constexpr const char* kGather = "framework_options.low_precision_gather";
  constexpr const char* kFused = "framework_options.fused_cross_entropy";
  constexpr const char* kVboost = "cluster.device.vboost";
  constexpr const char* kCuda = "cluster.device.cuda";
  constexpr const char* kKeeps = "framework_options.recompute_keeps";
  const Expected rows[] = {
      {"NeMo (Megatron-Core),v24.11.1,,Nemotron4-340B,H100-SXM5,fp8,,", kModules, "core_attn"},
      {"NeMo (Megatron-Core),v25.04.02,,Nemotron4-340B,H100-SXM5,fp8,,", kModules, ""},
      // A round of MLPerf is known by its date.
      {"NeMo/Megatron-Core (x),ngc25.09,2025-11,Llama3-8B,B200,fp8,,",
       "framework_options.fp8_recipe", "current"},
      {"NeMo/Megatron-Core (x),ngc25.09,2025-06,Llama3-8B,B200,fp8,,",
       "framework_options.fp8_recipe", ""},
      // Megatron Bridge by its container.
      {"Megatron-Bridge,v0.1 (container 25.09),,DeepSeek-V3,H100,fp8,,", kModules,
       "mla_up_proj+mlp"},
      {"Megatron-Bridge,v0.1,,DeepSeek-V3,H100,fp8,,", kModules, ""},
      // Micro-batches of Table 1.
      {"Megatron-LM 2021 (PTD-P),PTD-P 2021,,GPT-18B,A100-SXM4,fp16,,", kCut, "8"},
      {"Megatron-LM 2021 (PTD-P),PTD-P 2021,,GPT-18B,A100-SXM4,fp16,,",
       "framework_options.overlap_grad_reduce", "true"},
      {"Megatron-LM Jan-2021,Jan-2021,,GPT-39B,A100-SXM4,fp16,,", kCut, "4"},
      {"Megatron-LM Jan-2021,Jan-2021,,GPT-530B,A100-SXM4,fp16,,", kCut, "1"},
      {"Megatron-LM Aug-2020,2020,,GPT-1B,A100-SXM4,fp16,,", kCut, ""},
      // The tables of several things join.
      {"Megatron-Bridge,container 26.08,,Nemotron-3-Super-120B,GB200,nvfp4,,",
       "training.bf16_last_layers", "14"},
      {"Megatron-Bridge,container 26.08,,Nemotron-3-Super-120B,GB200,nvfp4,,", kReduce, "false"},
      {"Megatron-Bridge,container 26.08,,Nemotron-3-Super-120B,GB200,nvfp4,,",
       "training.moe_dispatcher", "hybridep"},
      {"Megatron-Bridge,container 26.08,,Nemotron-3-Super-120B,GB200,nvfp4,,", kHead, ""},
      {"Megatron-Bridge,container 26.08,,Nemotron-3-Super-120B,GB200,nvfp4,,",
       "training.moe_delayed_weights", "true"},
      {"NeMo (Megatron-Core),v25.05.05,,Grok-1-314B,GB200,fp8,,", "training.moe_pad_to_capacity",
       "true"},
      {"NeMo (Megatron-Core),v25.05.05,,Llama3-70B,GB200,bf16,,", kHead, "22"},
      // DGX Cloud's and JAX-Toolbox's runs of the same model.
      {"Paxml (JAX),v24.11.1,,GPT3-5B,H100-SXM5,bf16,,", kKeeps, "products"},
      {"Paxml (JAX),v24.11.1,,GPT3-5B,H100-SXM5,bf16,,", "framework_options.copies_units", "true"},
      {"Paxml (JAX),v24.11.1,,GPT3-5B,H100-SXM5,bf16,,", kGather, "false"},
      {"Paxml (JAX),JAX-Toolbox @x,,GPT3-5B,H100-SXM5,bf16,,", kKeeps, "products"},
      {"Paxml (JAX),JAX-Toolbox @x,,GPT3-5B,H100-SXM5,bf16,,", "framework_options.copies_units",
       ""},
      {"Paxml (JAX),JAX-Toolbox @x,,GPT-126M,A100-SXM4,bf16,,", "training.recompute", "none"},
      {"torchtitan,,2024-12,Llama3-8B,H100-SXM5,bf16,,", "framework_options.fused_adam", "false"},
      {"torchtitan,,2025-06,Llama3-8B,H100-SXM5,fp8,,", "framework_options.fused_adam", ""},
      // Power steered by task and number of GPUs.
      {"NeMo (x),v25.02.02,,Llama3-8B,H100-SXM5,,pretrain,32", kVboost, ""},
      {"NeMo (x),v25.02.02,,Llama3-8B,H100-SXM5,,sft,32", kVboost, "true"},
      {"NeMo (x),v25.04.02,,Llama3-8B,H100-SXM5,,pretrain,32", kVboost, "true"},
      {"NeMo (x),v25.04.02,,Grok-1-314B,H100-SXM5,,pretrain,512", kVboost, ""},
      {"NeMo (x),v25.05.05,,Llama3.1-405B,GB200,,pretrain,512", kVboost, ""},
      {"NeMo/Megatron-Core (x),,2024-06,GPT3-175B,H100-SXM5,,pretrain,512", kVboost, "true"},
      {"NeMo/Megatron-Core (x),,2024-06,GPT3-175B,H100-SXM5,,pretrain,5120", kVboost, ""},
      // Containers of Blackwell.
      {"NeMo (x),v25.05.05,,Llama3.1-405B,GB200,fp8,,", kCuda, "12"},
      {"NeMo (x),v25.05.05,,Llama3.1-405B,H100-SXM5,fp8,,", kCuda, ""},
      {"NeMo/Megatron-Core (x),ngc25.04,2025-06,Llama2-70B,GB200,fp8,,", kCuda, "12"},
      {"NeMo/Megatron-Core (x),ngc25.09,2025-11,Llama2-70B,GB200,fp8,,", kCuda, ""},
      {"Megatron-Bridge,v0.1 (container 25.09),,Qwen3-30B-A3B,B200,fp8,,", kCuda, "12"},
      {"Megatron-Bridge,v0.2 (container 25.11),,Qwen3-30B-A3B,B200,fp8,,", kCuda, ""},
      // What NeMo 1 leaves off; DGX Cloud's scripts set fp8_params.
      {"NeMo 24.07 (x),24.07,,Nemotron3-8B,H100-SXM5,fp8,pretrain,", kReduce, "true"},
      {"NeMo 24.07 (x),24.07,,Nemotron3-8B,H100-SXM5,fp8,pretrain,", kGather, "false"},
      {"NeMo 24.07 (x),24.07,,Nemotron3-8B,H100-SXM5,fp8,pretrain,", kFused, ""},
      {"NeMo 24.07 (x),24.07,,Llama2-70B,H100-SXM5,fp8,pretrain,", kReduce, ""},
      {"NeMo 24.07 (x),24.07,,Llama2-70B,H100-SXM5,fp8,pretrain,", kGather, "false"},
      {"NeMo 24.07 (x),24.07,,Llama2-70B,H100-SXM5,fp8,pretrain,", kFused, "false"},
      {"NeMo 24.07 (x),24.07,,Llama2-70B,H100-SXM5,fp8,lora,", kGather, ""},
      {"NeMo 24.07 (x),24.07,,Llama2-70B,H100-SXM5,fp8,lora,", kFused, ""},
      {"NeMo (x),v24.11.1,,GPT3-175B,H100-SXM5,fp8,,", kGather, ""},
      {"NeMo (x),v24.11.1,,GPT3-175B,H100-SXM5,fp8,,", kFused, "false"},
      {"NeMo (x),v25.02.02,,Nemotron4-15B,H100-SXM5,fp8,,", kReduce, "true"},
      {"NeMo (x),v25.05.05,,Nemotron-H-56B,H100-SXM5,fp8,,",
       "framework_options.fused_weight_gradient", "false"},
  };
  for (const Expected& row : rows) {
    EXPECT_EQ(ValueOf(Recipe(row.cells), row.key), row.value) << row.cells << ": " << row.key;
  }
}

// What is no key of a job.
TEST(ReleaseRecipes, KeysOfTheirOwn) {
  const std::string qwen = "Megatron-Bridge,container 25.11,,Qwen3-30B-A3B,GB200,";
  EXPECT_FALSE(Recipe(qwen + "bf16,,").own.Has("cuda_graph_scope"));
  EXPECT_EQ(Recipe(qwen + "mxfp8,,").own.Text("cuda_graph_scope"), "moe_router+moe_preprocess");
  EXPECT_EQ(Recipe(qwen + "mxfp8,,").own.Text("expert_graphs"), "layers");
  EXPECT_EQ(Recipe("Paxml (JAX),v24.11.1,,GPT3-5B,H100-SXM5,bf16,,").own.Integer("shard_hosts"), 1);
}

// torchao's runs on H100, which have no date, compiled layers alone; others go by their date.
TEST(ReleaseRecipes, WhatIsCompiled) {
  const auto keys = [](const std::string& cells) {
    const Release release =
        Recipe("fsdp2," + cells, "framework_family,framework,measured_date,gpu,config_extra");
    return ValueOf(release, "framework_options.torch_layers") + " " +
           ValueOf(release, "framework_options.torch_loss");
  };
  EXPECT_EQ(keys("torchtitan FSDP2 + compile,,H100,"), "compiled ");
  EXPECT_EQ(keys("torchtitan FSDP2 + compile,,B200,"), "compiled false");
  EXPECT_EQ(keys("torchtitan,2025-03,H100,compile"), "compiled ");
  EXPECT_EQ(keys("torchtitan,2025-06,H100,float8+compile"), "compiled false");
  EXPECT_EQ(keys("torchtitan,2025-06,H100,compile+liger"), "fused false");
  EXPECT_EQ(keys("NeMo Automodel,2025-06,H100,compile"), " ");
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
    return Recipe(cells, "framework,framework_version,model,gpu", table);
  };
  constexpr std::string_view kModules = "training.recompute_modules";
  EXPECT_EQ(ValueOf(recipe("Megatron-Bridge,v1 (container 27.02),Qwen4-40B,B200"), kModules),
            "moe_act");
  EXPECT_EQ(ValueOf(recipe("Megatron-Bridge,v1 (container 26.12),Qwen4-40B,B200"), kModules), "");
  const Release llama = recipe("NeMo (x),v25.05.05,Llama3-70B,GB200");
  EXPECT_EQ(ValueOf(llama, "framework_options.deferred_head"), "7");
  EXPECT_EQ(ValueOf(llama, "cluster.device.cuda"), "12");
  const auto error = [&](const std::string& row) { return table.Add(row, "mine.yaml").message(); };
  EXPECT_EQ(error("a: {scripts: nemo, vbost: true, source: s}\n").find("mine.yaml:1:"), 0U);
  EXPECT_NE(error("e: {scripts: nemo, vbost: true, source: s}\n").find("'vboost'"),
            std::string::npos);
  EXPECT_NE(error("b: {from: 24.11, source: s}\n").find("'b' lacks scripts"), std::string::npos);
  EXPECT_NE(error("c: {scripts: nemo, to: May, source: s}\n").find("'May' is no month"),
            std::string::npos);
  EXPECT_NE(error("d: {scripts: nemo, cuda_graph_scope: all, source: s}\n").find("all"),
            std::string::npos);
  EXPECT_EQ(error("g: {scripts: nemo, recompute_modules: core, source: s}\n")
                .find("mine.yaml:1:39: recompute_modules: "),
            0U);
}

TEST(ReleaseRecipes, KeysOfTheModelOfACase) {
  RecipeTable table = RecipeTable::BuiltIn();
  const Status added = table.Add(
      "x: {case: my_case, about: each, model: {vocab: 1000}, description: vocab 1000, source: s}\n",
      "x.yaml");
  ASSERT_TRUE(added.ok()) << added.message();
  const Release release = Recipe("case=my_case_rope_embeddings+x", "config_extra", table);
  EXPECT_EQ(release.model.Integer("vocab"), 1000);
  EXPECT_EQ(release.model.Text("position"), "rotary");
  EXPECT_THAT(release.said, testing::ElementsAre("vocab 1000", "rotary positions"));
  EXPECT_TRUE(Recipe("x+rope_embeddings", "config_extra", table).said.empty());
  EXPECT_THAT(table.Add("z: {case: c, model: {vocabs: 5}, source: s}\n", "x.yaml").message(),
              testing::HasSubstr("'vocab'"));
}

// A condition that is also a key of a job could set nothing.
TEST(ReleaseRecipes, ConditionsAreNoKeysOfAJob) {
  for (const Option& option : RowFilter::Keys().options) {
    for (const OptionTable* section : {&workload::ParallelOptions(), &workload::TrainingOptions(),
                                       &workload::FrameworkOptions()}) {
      EXPECT_EQ(FindOption(section->options, option.name), nullptr) << option.name;
    }
  }
}

TEST(ReleaseRecipes, UnknownScriptsSetNothing) {
  EXPECT_FALSE(Recipe("torchtitan,,2024-12,Llama3.1-405B,H100,fp8,,").job.empty());
  EXPECT_TRUE(Recipe("somebody's,,,Llama3.1-405B,H100,fp8,,").job.empty());
}

}  // namespace
}  // namespace orrery::search
