// Experts and quantised models under plain DDP, and what launchers of one host say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "orrery/job/job.h"
#include "orrery/recipes/import.h"

namespace orrery::recipes {
namespace {

using testing::HasSubstr;

std::string Put(const std::string& name, const std::string& text) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "modules" / name;
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
  return path.string();
}

Options Of(std::int64_t gpus, std::vector<std::string> set = {}) {
  Options options{.cluster = "h200-ib-400g", .gpus = gpus};
  options.read.set = std::move(set);
  return options;
}

constexpr const char* kTrains =
    " train.py --bf16 True --output_dir out --per_device_train_batch_size 1 "
    "--gradient_accumulation_steps 8 --gradient_checkpointing True --model_name_or_path ";

Result<Imported> Script(const std::string& launcher, const std::string& more,
                        const Options& options) {
  return Import({Put("train.sh", launcher + kTrains + more + "\n")}, options);
}

const workload::Plan& PlanOf(const Result<Imported>& imported) {
  return imported->job.workloads.front().plan;
}

// A Trainer's job with experts on one GPU and under torchrun: every rank holds all experts.
TEST(HubModules, ExpertsUnderDdp) {
  for (const std::string model :
       {"allenai/OLMoE-1B-7B-0924", "Qwen/Qwen3-30B-A3B", "mistralai/Mixtral-8x7B-v0.1"}) {
    for (const std::int64_t gpus : {1, 8}) {
      const Result<Imported> imported = Script("torchrun --nproc_per_node " + std::to_string(gpus),
                                               model + " --max_length 2048", Of(0));
      ASSERT_TRUE(imported.ok()) << model << ": " << imported.status().message();
      EXPECT_EQ(imported->job.ranks(), static_cast<std::uint64_t>(gpus));
      EXPECT_EQ(PlanOf(imported).framework.reducer, workload::Reducer::kDdp);
      EXPECT_EQ(PlanOf(imported).parallel.ep, 1);
      EXPECT_FALSE(PlanOf(imported).framework.expert_loop);
      EXPECT_THAT(imported->job_text, HasSubstr("experts are grouped products"));
    }
  }
}

// Arguments that transformers 5 has not: its models loop over experts.
TEST(HubModules, ExpertsOfOlderReleasesLoop) {
  const std::string model = "Qwen/Qwen3-30B-A3B --max_length 2048 ";
  const auto loops = [&](const std::string& more) {
    const Result<Imported> imported = Script("torchrun --nproc_per_node 8", model + more, Of(0));
    EXPECT_TRUE(imported.ok()) << imported.status().message();
    return imported.ok() && PlanOf(imported).framework.expert_loop;
  };
  EXPECT_FALSE(loops(""));
  EXPECT_TRUE(loops("--evaluation_strategy no"));
  EXPECT_TRUE(loops("--experts_implementation eager"));
  EXPECT_FALSE(loops("--evaluation_strategy no --experts_implementation grouped_mm"));
  const Result<Imported> batched =
      Script("torchrun --nproc_per_node 8", model + "--experts_implementation batched_mm", Of(0));
  EXPECT_THAT(batched.status().message(), HasSubstr("experts by 'batched_mm' are not modelled"));
}

// TRL raised a quantised model's other parameters to fp32 until 0.26 (max_seq_length was removed in
// 0.20); axolotl turns them back, xtuner and open-instruct do not.
TEST(HubModules, PreparedBaseByRelease) {
  const auto prepared = [](const std::string& more) {
    const Result<Imported> imported = Script(
        "accelerate launch --num_processes 1",
        "meta-llama/Llama-2-7b-hf --use_peft --load_in_4bit --lora_target_modules all-linear " +
            more,
        Of(0));
    EXPECT_TRUE(imported.ok()) << imported.status().message();
    return imported.ok() && PlanOf(imported).framework.prepared_base;
  };
  EXPECT_TRUE(prepared("--max_seq_length 2048"));
  EXPECT_FALSE(prepared("--max_length 2048"));
  const Result<Imported> axolotl =
      Import({Put("qlora.yaml",
                  "base_model: NousResearch/Llama-2-7b-hf\nadapter: qlora\nload_in_4bit: true\n"
                  "lora_r: 16\nlora_target_linear: true\nsequence_len: 2048\nmicro_batch_size: 2\n"
                  "gradient_accumulation_steps: 4\nbf16: true\noptimizer: adamw_torch_fused\n"
                  "gradient_checkpointing: true\n")},
             Of(1));
  ASSERT_TRUE(axolotl.ok()) << axolotl.status().message();
  EXPECT_FALSE(PlanOf(axolotl).framework.prepared_base);
  const Result<Imported> instruct = Import(
      {Put("finetune.sh",
           "accelerate launch --num_processes 1 open_instruct/finetune.py --use_qlora --use_lora "
           "--lora_rank 16 --model_name_or_path meta-llama/Llama-2-7b-hf --max_seq_length 2048 "
           "--per_device_train_batch_size 1 --gradient_accumulation_steps 8 --output_dir out\n")},
      Of(1));
  ASSERT_TRUE(instruct.ok()) << instruct.status().message();
  EXPECT_TRUE(PlanOf(instruct).framework.prepared_base);
}

// GPUs of one host are nobody's question.
TEST(HubModules, LaunchersOfOneHost) {
  const auto gpus = [](const std::string& launcher) -> std::int64_t {
    const Result<Imported> imported =
        Script(launcher, "meta-llama/Llama-2-7b-hf --max_length 2048", Of(0));
    if (!imported.ok()) {
      EXPECT_THAT(imported.status().message(), HasSubstr("how many GPUs it runs on"));
      return -1;
    }
    return static_cast<std::int64_t>(imported->job.ranks());
  };
  EXPECT_EQ(gpus("deepspeed --num_gpus 4"), 4);
  EXPECT_EQ(gpus("deepspeed --num_gpus=4"), 4);
  EXPECT_EQ(gpus("deepspeed"), 8);  // all that the host has
  EXPECT_EQ(gpus("deepspeed --include localhost:0,2,3"), 3);
  EXPECT_EQ(gpus("deepspeed --include=worker-0@worker-1"), 16);
  EXPECT_EQ(gpus("deepspeed --num_nodes 2 --num_gpus 8"), 16);
  EXPECT_EQ(gpus("deepspeed --hostfile hosts --num_gpus 8"), -1);
  EXPECT_EQ(gpus("torchrun --nproc-per-node=4"), 4);
  EXPECT_EQ(gpus("torchrun --nproc_per_node=gpu"), 8);
  EXPECT_EQ(gpus("torchrun --nnodes 2 --nproc_per_node=gpu"), 16);
  EXPECT_EQ(gpus("accelerate launch --num_processes 4"), 4);
  EXPECT_EQ(gpus("accelerate launch --num_processes 16 --num_machines 2"), 16);
  EXPECT_EQ(gpus("CUDA_VISIBLE_DEVICES=3 python"), 1);
  EXPECT_EQ(gpus("export CUDA_VISIBLE_DEVICES=0\npython"), 1);
  EXPECT_EQ(gpus("python"), -1);
  EXPECT_EQ(gpus(": \"${GPUS:=4}\"\ntorchrun --nproc_per_node $GPUS"), 4);  // set where it is not
}

}  // namespace
}  // namespace orrery::recipes
