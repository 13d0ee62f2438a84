// Public recipes against what their own documents say: GPUs, sequences a step, parameters. The
// files are not kept here; what is below are the settings that matter, in our own words.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "orrery/job/job.h"
#include "orrery/recipes/import.h"

namespace orrery::recipes {
namespace {

struct Documented {
  const char* name;      // of the file, which says its form
  std::string text;      // what the recipe says
  std::int64_t gpus;     // given where the recipe does not say; negative: it does
  std::size_t ranks;     // as documented
  std::int64_t batch;    // as documented
  double billions;       // as documented, to the digits that are printed
  double printed;        // half of the last digit printed
  const char* document;  // who says so
};

std::string Titan(const std::string& flavor, int local, const std::string& more) {
  return fmt::format(
      "[model]\nname = \"llama3\"\nflavor = \"{}\"\n[training]\nlocal_batch_size = {}\n"
      "seq_len = 8192\n{}",
      flavor, local, more);
}

std::string Fsdp(int gpus, int micro, int passes, const std::string& model,
                 const std::string& length) {
  return fmt::format(
      "torchrun --nproc_per_node={} train.py --model_name_or_path {} --bf16 True --output_dir out "
      "--per_device_train_batch_size {} --gradient_accumulation_steps {} "
      "--fsdp \"full_shard auto_wrap\" --fsdp_transformer_layer_cls_to_wrap LlamaDecoderLayer "
      "--tf32 True --gradient_checkpointing True {}",
      gpus, model, micro, passes, length);
}

std::string Mpt(int hidden, int heads, int layers, int batch, int micro) {
  return fmt::format(
      "variables:\n  max_seq_len: 2048\nmax_seq_len: ${{variables.max_seq_len}}\nmodel:\n"
      "  name: mpt_causal_lm\n  d_model: {}\n  n_heads: {}\n  n_layers: {}\n  expansion_ratio: 4\n"
      "  max_seq_len: ${{variables.max_seq_len}}\n  vocab_size: 50368\n  attn_config:\n"
      "    attn_impl: flash\noptimizer:\n  name: decoupled_adamw\nglobal_train_batch_size: {}\n"
      "device_train_microbatch_size: {}\nprecision: amp_bf16\nfsdp_config:\n"
      "  sharding_strategy: FULL_SHARD\n  mixed_precision: PURE\n  activation_checkpointing: "
      "true\n",
      hidden, heads, layers, batch, micro);
}

std::vector<Documented> Recipes() {
  const std::string full = "[activation_checkpoint]\nmode = \"full\"\n";
  const std::string op =
      "[activation_checkpoint]\nmode = \"selective\"\nselective_ac_option = \"op\"\n";
  const std::string tp8 = "[parallelism]\ntensor_parallel_degree = 8\n";
  const std::string pp8 = tp8 + "pipeline_parallel_degree = 8\n";
  const char* titan = "torchtitan benchmarks/llama3_h100_202412_torchtitan.md";
  const char* mpt = "llm-foundry scripts/train/benchmarking/README.md";
  return {
      {"t1.toml", Titan("8B", 2, op), 8, 8, 16, 8.0, 0.05, titan},
      {"t3.toml", Titan("8B", 2, op), 128, 128, 256, 8.0, 0.05, titan},
      {"t4.toml", Titan("70B", 16, tp8 + full), 256, 256, 512, 70.6, 0.05, titan},
      {"t5.toml", Titan("405B", 32, pp8 + full), 512, 512, 256, 405, 1, titan},
      {"vicuna.sh", Fsdp(4, 2, 16, "~/model_weights/llama-7b", "--model_max_length 2048"), 0, 4,
       128, 6.7, 0.05, "FastChat README: 4 x A100, batch 128; LLaMA paper, Table 2"},
      {"zephyr.yaml",
       "model_name_or_path: mistralai/Mistral-7B-v0.1\nattn_implementation: flash_attention_2\n"
       "bf16: true\ngradient_checkpointing: true\nmax_seq_length: 2048\n"
       "per_device_train_batch_size: 16\ngradient_accumulation_steps: 1\n"
       "deepspeed: {zero_optimization: {stage: 3}, bf16: {enabled: auto}}\n",
       8, 8, 128, 7.24, 0.005, "alignment-handbook zephyr-7b-beta; Mistral-7B's model card"},
      {"mpt-13b.yaml", Mpt(5120, 40, 40, 8192, 16), 512, 512, 8192, 12.85395456, 1e-9, mpt},
      {"mpt-30b.yaml", Mpt(7168, 56, 48, 4096, 8), 512, 512, 4096, 29.97521408, 1e-9, mpt},
      {"mpt-70b.yaml", Mpt(8192, 64, 80, 4096, 8), 512, 512, 4096, 64.862437376, 1e-9, mpt},
      {"llama2-70b.yml",
       "base_config: base.yml\nhardware: gpu\nmodel_name: llama2-70b\nper_device_batch_size: 6\n"
       "max_target_length: 4096\nici_fsdp_parallelism: -1\ndcn_fsdp_parallelism: -1\n"
       "dcn_data_parallelism: 1\nuse_iota_embed: true\n",
       64, 64, 384, 69.0, 0.05, "maxtext configs/gpu/models/llama2_70b.yml; Llama 2 model card"},
      {"qwen3.yaml",
       "model_name_or_path: Qwen/Qwen3-4B-Instruct-2507\nstage: sft\nfinetuning_type: full\n"
       "cutoff_len: 2048\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 2\n"
       "bf16: true\ndeepspeed: {zero_optimization: {stage: 3}, bf16: {enabled: auto}}\n",
       8, 8, 16, 4.0, 0.05, "LLaMA-Factory examples/train_full/qwen3_full_sft.yaml; model card"},
  };
}

TEST(LlmFoundry, ExampleAndRefusals) {
  const std::string example =
      std::string(ORRERY_SOURCE_DIR) + "/examples/recipes/llm-foundry-mpt-30b.yaml";
  const Result<Imported> imported = Import({example}, {.cluster = "h100-ib-400g", .gpus = 512});
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->dialect, "llm-foundry");
  EXPECT_EQ(imported->job.workloads.front().plan.batch.seq_len, 2048);  // by way of ${variables}
  EXPECT_TRUE(imported->job.workloads.front().plan.framework.clip_gradients);
  const auto error = [](std::string text, std::int64_t gpus = 64) {
    const std::string path = testing::TempDir() + "mpt.yaml";
    std::ofstream(path) << text;
    const Result<Imported> one = Import({path}, {.cluster = "h100-ib-400g", .gpus = gpus});
    return one.ok() ? "ok" : one.status().message();
  };
  const std::string mpt = Mpt(2048, 16, 24, 512, 4);
  EXPECT_EQ(error(mpt), "ok");
  const std::string target = "  activation_checkpointing_target: ";
  EXPECT_EQ(error(mpt + target + "MPTBlock\n"), "ok");
  EXPECT_THAT(error(mpt + target + "[mptblock, grouped_query_attention]\n"),
              testing::HasSubstr("'grouped_query_attention' runs again and not the whole layer"));
  EXPECT_THAT(error(mpt + target + "{mptblock: first-3}\n"),
              testing::HasSubstr("which layers and which parts of them run again"));
  EXPECT_THAT(error(mpt, 100),
              testing::HasSubstr("global_train_batch_size 512 is no multiple of 100 GPUs"));
  EXPECT_THAT(error(mpt + "algorithms:\n  alibi: {max_sequence_length: 1}\n"),
              testing::HasSubstr("this algorithm of Composer is not modelled"));
  EXPECT_THAT(error(mpt + "max_durration: 1ep\n"),
              testing::HasSubstr("did you mean 'max_duration'"));
}

TEST(Recipes, PublicOnesAsTheirDocumentsSay) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "documents";
  std::filesystem::create_directories(folder);
  for (const Documented& row : Recipes()) {
    const std::string path = (folder / row.name).string();
    std::ofstream(path) << row.text;
    const Result<Imported> imported = Import({path}, {.cluster = "h100-ib-400g", .gpus = row.gpus});
    ASSERT_TRUE(imported.ok()) << row.document << ": " << imported.status().message();
    const job::Workload& w = imported->job.workloads.front();
    EXPECT_EQ(imported->job.ranks(), row.ranks) << row.name;
    EXPECT_EQ(w.plan.batch.global_batch, row.batch) << row.name;
    EXPECT_NEAR(static_cast<double>(w.model.parameters()) / 1e9, row.billions, row.printed)
        << row.name;
  }
}

}  // namespace
}  // namespace orrery::recipes
