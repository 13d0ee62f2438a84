// Commands that name a configuration and set keys of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "orrery/job/job.h"
#include "orrery/recipes/configuration.h"
#include "orrery/recipes/import.h"

namespace orrery::recipes {
namespace {

using testing::HasSubstr;

Result<Imported> ImportCommand(const std::string& text, const Options& options) {
  const std::string path = testing::TempDir() + "commands.sh";
  std::ofstream(path) << "#!/bin/bash\n" << text;
  return Import({path}, options);
}

// MaxText's base.yml is not at hand: its defaults are known.
TEST(Overrides, MaxTextsKeysAndValues) {
  const std::string command =
      "python3 -m MaxText.train MaxText/configs/base.yml hardware=gpu run_name=$RUN "
      "model_name=llama2-7b per_device_batch_size=4 max_target_length=4096 "
      "remat_policy=save_qkv_proj attention=cudnn_flash_te dcn_fsdp_parallelism=8 "
      "dcn_data_parallelism=1 ici_fsdp_parallelism=$ICI ici_data_parallelism=1";
  const Options options = {.cluster = "h100-ib-400g"};
  EXPECT_THAT(ImportCommand(command, options).status().message(),
              HasSubstr("ici_fsdp_parallelism is $ICI, and ICI is not set; give --env ICI=VALUE"));
  const Result<Imported> imported = ImportCommand("ICI=8\n" + command, options);
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->dialect, "maxtext");
  EXPECT_EQ(imported->job.ranks(), 64u);
  const job::Workload& w = imported->job.workloads.front();
  EXPECT_EQ(w.plan.batch.global_batch, 256);
  EXPECT_EQ(w.plan.batch.seq_len, 4096);
}

// torchtitan's run_train.sh hands on what it is started with.
TEST(Overrides, TorchtitansOptions) {
  std::ofstream(testing::TempDir() + "titan.toml")
      << "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nlocal_batch_size = 1\n"
         "seq_len = 8192\n";
  const Result<Imported> imported = ImportCommand(
      "overrides=\"$*\"\ntorchrun --nproc_per_node=8 -m torchtitan.train --job.config_file "
      "titan.toml $overrides\n",
      {.cluster = "h100-ib-400g",
       .variables = {
           {"*", "--parallelism.tensor_parallel_degree 2 --training.local_batch_size=4"}}});
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  const job::Workload& w = imported->job.workloads.front();
  EXPECT_EQ(imported->job.ranks(), 8u);
  EXPECT_EQ(w.plan.parallel.tp, 2);
  EXPECT_EQ(w.plan.batch.micro_batch, 4);
}

// Hydra's names of a file, and an error that names the script's line.
TEST(Overrides, Hydras) {
  std::ofstream(testing::TempDir() + "hydra.yaml")
      << "trainer:\n  devices: 8\n  num_nodes: 1\n  precision: bf16\nexp_manager:\n  name: x\n"
         "model:\n  micro_batch_size: 1\n  global_batch_size: 64\n  encoder_seq_length: 2048\n"
         "  max_position_embeddings: ${.encoder_seq_length}\n  num_layers: 12\n"
         "  hidden_size: 768\n  num_attention_heads: 12\n  vocab_size: 50304\n";
  const auto import = [](const std::string& more) {
    return ImportCommand("torchrun --nproc_per_node=8 megatron_gpt_pretraining.py --config-path=" +
                             testing::TempDir() + " --config-name=hydra trainer.num_nodes=4 " +
                             more,
                         {.cluster = "a100-80g-ib-200g"});
  };
  const Result<Imported> imported =
      import("++model.tensor_model_parallel_size=2 model.encoder_seq_length=4096");
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->job.ranks(), 32u);
  EXPECT_EQ(imported->job.workloads.front().plan.parallel.tp, 2);
  EXPECT_EQ(imported->job.workloads.front().model.max_position, 4096);
  EXPECT_THAT(import("model.global_batch_size=many").status().message(),
              HasSubstr("commands.sh:2: --global-batch-size is 'many'; write a whole number"));
  EXPECT_THAT(import("model.global_batch_size=$N").status().message(),
              HasSubstr("N is not set; give --env N=VALUE"));
}

TEST(Configuration, ExpressionsThatGrowEnd) {
  std::string text = "a0: xxxxxxxxxxxxxxxx\n";
  for (int i = 1; i < 20; ++i) {
    text += "a" + std::to_string(i) + ": \"";
    for (int j = 0; j < 200; ++j) text += "${a" + std::to_string(i - 1) + "}";
    text += "\"\n";
  }
  Result<formats::Document> document = ParseConfiguration({.path = "x.yaml", .text = text});
  ASSERT_TRUE(document.ok());
  ResolveExpressions(&*document);
  std::size_t bytes = 0;
  for (const formats::Field& field : document->root.fields) bytes += field.value.text.size();
  EXPECT_LT(bytes, std::size_t{64} << 20);
}

// Megatron Bridge's recipes in Python, by name: 32 GPUs, 512 sequences a step.
TEST(Overrides, MegatronBridgesRecipes) {
  const std::string command =
      "uv run python -m torch.distributed.run --nproc_per_node=8 --nnodes=4 "
      "scripts/training/run_recipe.py --recipe llama3_70b_pretrain_config ";
  const Options options = {.cluster = "h100-ib-400g"};
  const Result<Imported> imported = ImportCommand(command + "train.train_iters=20\n", options);
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->dialect, "nemo");
  const job::Workload& w = imported->job.workloads.front();
  EXPECT_EQ(imported->job.ranks(), 32u);
  EXPECT_EQ(w.plan.parallel.tp, 4);
  EXPECT_EQ(w.plan.parallel.pp, 4);
  EXPECT_EQ(w.plan.parallel.cp, 2);
  EXPECT_EQ(w.plan.parallel.vpp, 5);
  EXPECT_EQ(w.plan.batch.global_batch, 512);
  EXPECT_EQ(w.plan.batch.seq_len, 8192);
  EXPECT_EQ(w.model.parameters(), 70'553'706'496);
  const Result<Imported> other = ImportCommand(
      command + "-gb 64 --context_parallel_size 1 model.recompute_granularity=selective\n",
      options);
  ASSERT_TRUE(other.ok()) << other.status().message();
  EXPECT_EQ(other->job.workloads.front().plan.batch.global_batch, 64);
  EXPECT_EQ(other->job.workloads.front().plan.parallel.dp, 2);
  EXPECT_THAT(
      ImportCommand("python scripts/training/run_recipe.py --recipe llama3_70b_pretrian_config",
                    options)
          .status()
          .message(),
      HasSubstr("llama3_70b_pretrain_config"));
}

}  // namespace
}  // namespace orrery::recipes
