// xtuner's configurations in Python.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "orrery/job/job.h"
#include "orrery/recipes/import.h"

namespace orrery::recipes {
namespace {

using testing::HasSubstr;

Result<Imported> ImportXtuner(const std::string& text, const std::string& name = "sft.py",
                              std::map<std::string, std::string> variables = {}) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / name;
  std::ofstream(path) << text;
  return Import({path.string()},
                {.cluster = "a100-80g-ib-200g", .gpus = 8, .variables = std::move(variables)});
}

std::string Configuration(const std::string& llm, const std::string& model,
                          const std::string& parallel = "sequence_parallel_size = 1\n") {
  return "from xtuner.model import SupervisedFinetune\n"
         "pretrained_model_name_or_path = \"internlm/internlm2-chat-7b\"\nmax_length = 2048\n" +
         parallel +
         "batch_size = 1  # per_device\naccumulative_counts = 16\n"
         "accumulative_counts *= sequence_parallel_size\noptim_type = AdamW\nmax_norm = 1\n"
         "model = dict(\n    type=SupervisedFinetune,\n    use_varlen_attn=False,\n    llm=dict(\n"
         "        type=AutoModelForCausalLM.from_pretrained,\n"
         "        pretrained_model_name_or_path=pretrained_model_name_or_path,\n"
         "        trust_remote_code=True,\n" +
         llm + "    ),\n" + model +
         ")\ntrain_dataset = dict(\n    type=process_hf_dataset,\n    max_length=max_length,\n"
         "    pack_to_max_length=True,\n)\ntrain_dataloader = dict(\n    batch_size=batch_size,\n"
         "    num_workers=0,\n    dataset=train_dataset,\n)\noptim_wrapper = dict(\n"
         "    type=AmpOptimWrapper,\n    optimizer=dict(type=optim_type, lr=2e-4),\n"
         "    clip_grad=dict(max_norm=max_norm, error_if_nonfinite=False),\n"
         "    accumulative_counts=accumulative_counts,\n    loss_scale=\"dynamic\",\n"
         "    dtype=\"float16\",\n)\n";
}

constexpr const char* kFourBits =
    "        torch_dtype=torch.float16,\n        quantization_config=dict(\n"
    "            type=BitsAndBytesConfig,\n            load_in_4bit=True,\n"
    "            load_in_8bit=False,\n            bnb_4bit_use_double_quant=True,\n"
    "            bnb_4bit_quant_type=\"nf4\",\n        ),\n";
constexpr const char* kAdapters =
    "    lora=dict(type=LoraConfig, r=64, lora_alpha=16, lora_dropout=0.1, bias=\"none\"),\n";

// internlm2_chat_7b_qlora_oasst1_e3.py: 16 passes of one packed sequence on each GPU; InternLM2 7B
// has 7,737,708,544 parameters.
TEST(Xtuner, AdaptersOnFourBits) {
  const Result<Imported> imported = ImportXtuner(Configuration(kFourBits, kAdapters));
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->dialect, "xtuner");
  const job::Workload& w = imported->job.workloads.front();
  EXPECT_EQ(w.model.parameters(), 7'737'708'544);
  EXPECT_EQ(w.plan.batch.global_batch, 16 * 8);
  EXPECT_EQ(w.plan.batch.seq_len, 2048);
  EXPECT_EQ(w.plan.memory.recompute, workload::Recompute::kFull);
  EXPECT_EQ(w.plan.lora.rank, 64);
  EXPECT_THAT(imported->job_text, HasSubstr("base_quantization: nf4"));
  EXPECT_THAT(imported->job_text, HasSubstr("precision: fp16"));
  EXPECT_THAT(imported->job_text, HasSubstr("framework: ddp"));
}

// `*=` counts: four GPUs share a sequence, and 64 passes of two replicas are as many sequences.
TEST(Xtuner, SequenceParallelUnderItsOwnDeepSpeed) {
  const std::string text = Configuration("", "", "sequence_parallel_size = 4\n");
  const std::string script =
      "#!/bin/bash\nNPROC_PER_NODE=8 xtuner train sp4.py --deepspeed deepspeed_zero2\n";
  const Result<Imported> without = ImportXtuner(text, "sp4.py");
  ASSERT_FALSE(without.ok());
  EXPECT_THAT(without.status().message(), HasSubstr("--env DEEPSPEED=deepspeed_zero2"));
  const Result<Imported> imported = ImportXtuner(script, "train.sh");
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  const job::Workload& w = imported->job.workloads.front();
  EXPECT_EQ(w.plan.parallel.cp, 4);
  EXPECT_EQ(w.plan.parallel.dp, 2);
  EXPECT_EQ(w.plan.batch.global_batch, 64 * 2);
  EXPECT_EQ(w.plan.memory.sharding, workload::Sharding::kZero2);
  EXPECT_THAT(imported->job_text, HasSubstr("precision: bf16"));
  EXPECT_THAT(imported->job_text, HasSubstr("framework: deepspeed"));
}

TEST(Xtuner, WhatIsNotReadIsSaid) {
  const auto wrong = [](const std::string& model) {
    const Result<Imported> imported = ImportXtuner(Configuration("", model));
    return imported.ok() ? std::string() : std::string(imported.status().message());
  };
  EXPECT_THAT(wrong("    use_activation_checkpointin=True,\n"),
              HasSubstr("did you mean 'model.use_activation_checkpointing'?"));
  EXPECT_THAT(wrong("    lora=dict(type=IA3Config),\n"), HasSubstr("modelled: LoraConfig"));
  std::string images = Configuration("", "");
  images.replace(images.find("type=SupervisedFinetune"), 23, "type=LLaVAModel");
  const Result<Imported> imported = ImportXtuner(images);
  ASSERT_FALSE(imported.ok());
  EXPECT_THAT(imported.status().message(), HasSubstr("model.type LLaVAModel"));
}

}  // namespace
}  // namespace orrery::recipes
