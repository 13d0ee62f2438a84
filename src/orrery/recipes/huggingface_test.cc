// DeepSpeed's JSON, Accelerate's YAML, the Trainer's and LLaMA-Factory's arguments.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "orrery/job/job.h"
#include "orrery/recipes/import.h"

namespace orrery::recipes {
namespace {

using testing::Contains;
using testing::HasSubstr;

std::string Example(const std::string& name) {
  return std::string(ORRERY_SOURCE_DIR) + "/examples/recipes/" + name;
}

std::string Write(const std::string& name, const std::string& text) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "hf" / name;
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
  return path.string();
}

Options On(std::int64_t gpus, const std::string& cluster = "h100-ib-400g") {
  return {.cluster = cluster, .gpus = gpus};
}

const job::Workload& Work(const Result<Imported>& imported) {
  return imported->job.workloads.front();
}

constexpr const char* kZero3 =
    "{\"train_micro_batch_size_per_gpu\": 2, \"gradient_accumulation_steps\": 4,\n"
    " \"bf16\": {\"enabled\": true}, \"gradient_clipping\": 1.0,\n"
    " \"zero_optimization\": {\"stage\": 3, \"overlap_comm\": true}}\n";

Options Model(Options options, const std::string& model = "llama3-8b") {
  options.model = model;
  options.read.set = {"training.seq_len=4096", "training.recompute=full"};
  return options;
}

std::string Error(const std::string& json, const Options& options) {
  const Result<Imported> imported = Import({Write("ds.json", json)}, options);
  return imported.ok() ? "ok" : imported.status().message();
}

TEST(DeepSpeed, BatchOfAnyTwo) {
  const Result<Imported> micro = Import({Write("ds.json", kZero3)}, Model(On(16)));
  ASSERT_TRUE(micro.ok()) << micro.status().message();
  EXPECT_EQ(micro->dialect, "deepspeed");
  EXPECT_EQ(Work(micro).plan.batch.global_batch, 2 * 4 * 16);
  EXPECT_EQ(Work(micro).plan.memory.sharding, workload::Sharding::kZero3);
  // All three: how many GPUs follows.
  const Result<Imported> all =
      Import({Write("ds.json",
                    "{\"train_batch_size\": 256, \"train_micro_batch_size_per_gpu\": 4,\n"
                    "\"gradient_accumulation_steps\": 2, \"fp16\": {\"enabled\": true},\n"
                    "\"zero_optimization\": {\"stage\": 2}}")},
             Model(On(0)));
  ASSERT_TRUE(all.ok()) << all.status().message();
  EXPECT_EQ(all->job.ranks(), 32u);
  EXPECT_EQ(Work(all).plan.batch.micro_batch, 4);
  // The batch alone: one pass a step.
  const Result<Imported> batch = Import(
      {Write("ds.json", "{\"train_batch_size\": 64, \"zero_optimization\": {\"stage\": 1}}")},
      Model(On(16)));
  ASSERT_TRUE(batch.ok()) << batch.status().message();
  EXPECT_EQ(Work(batch).plan.batch.micro_batch, 4);
  EXPECT_THAT(
      Error("{\"train_batch_size\": 100, \"train_micro_batch_size_per_gpu\": 3}", Model(On(16))),
      HasSubstr("train_batch_size 100 is not train_micro_batch_size_per_gpu 3"));
}

TEST(DeepSpeed, WhatItDoesNotSayIsAskedFor) {
  const std::string error = Error(kZero3, Options{});
  EXPECT_THAT(error, HasSubstr("which model it trains: give its config.json as another FILE"));
  EXPECT_THAT(error, HasSubstr("how long sequences are"));
  EXPECT_THAT(error, HasSubstr("how many GPUs it runs on: give --gpus N or --nodes N"));
  EXPECT_THAT(error, HasSubstr("which cluster it runs on"));
  EXPECT_THAT(
      Error("{\"train_micro_batch_size_per_gpu\": \"auto\", \"bf16\": {\"enabled\": \"auto\"}}",
            Model(On(8))),
      HasSubstr("the precision (fp16 and bf16 are 'auto')"));
}

TEST(DeepSpeed, WhatIsRefusedIsNamed) {
  const auto error = [](const std::string& more) {
    return Error("{\"train_micro_batch_size_per_gpu\": 1, " + more + "}", Model(On(8)));
  };
  EXPECT_THAT(error("\"zero_optimization\": {\"stage\": 3, \"offload_param\": {\"device\": "
                    "\"nvme\"}}"),
              HasSubstr("offload to 'nvme' is not modelled; cpu is"));
  EXPECT_THAT(error("\"zero_optimization\": {\"stge\": 3}"),
              HasSubstr("unknown argument 'zero_optimization.stge'; did you mean "
                        "'zero_optimization.stage'"));
  EXPECT_THAT(error("\"optimizer\": {\"type\": \"OneBitAdam\"}"),
              HasSubstr("'onebitadam' is not modelled; modelled: Adam"));
  EXPECT_THAT(error("\"zero_optimization\": {\"stage\": 3, \"zero_hpz_partition_size\": 8}"),
              HasSubstr("ZeRO++'s second copy of parameters is not modelled"));
  EXPECT_THAT(error("\"sparse_attention\": {\"mode\": \"fixed\"}"),
              HasSubstr("sparse attention is not modelled"));
  EXPECT_THAT(error("\"fp16\": {\"enabled\": true}, \"bf16\": {\"enabled\": true}"),
              HasSubstr("both true"));
}

// torchrun and accelerate launch give a rank one thread (OMP_NUM_THREADS=1), deepspeed's launcher
// all cores.
TEST(DeepSpeed, ThreadsOfAnOffloadedOptimizer) {
  const auto threads = [](const std::string& launcher) {
    Write("offload.json",
          "{\"bf16\": {\"enabled\": true}, \"zero_optimization\": {\"stage\": 2,\n"
          " \"offload_optimizer\": {\"device\": \"cpu\"}}}\n");
    const std::string script = Write(
        "offload.sh", launcher +
                          " train.py --deepspeed offload.json --bf16 True --output_dir x "
                          "--model_name_or_path meta-llama/Llama-2-7b-hf "
                          "--per_device_train_batch_size 1 --gradient_accumulation_steps 8\n");
    const Result<Imported> imported = Import({script}, Model(On(8), "llama2-7b"));
    EXPECT_TRUE(imported.ok()) << imported.status().message();
    return imported.ok() ? Work(imported).plan.memory.offload_threads : -1;
  };
  EXPECT_EQ(threads("torchrun --nproc_per_node 8"), 1);
  EXPECT_EQ(threads("accelerate launch --num_processes 8"), 1);
  EXPECT_EQ(threads("export OMP_NUM_THREADS=6\ntorchrun --nproc_per_node 8"), 6);
  EXPECT_EQ(threads("deepspeed --num_gpus 8"), 0);
}

// Keys that its older releases pass over: bf16 has no loss to scale (LongLoRA's stage2.json).
TEST(DeepSpeed, InertKeysOfBf16) {
  const std::string json =
      "{\"train_micro_batch_size_per_gpu\": 2, \"gradient_accumulation_steps\": 4,\n"
      " \"bf16\": {\"enabled\": true, \"loss_scale\": 0, \"initial_scale_power\": 16,\n"
      "  \"loss_scale_window\": 1000, \"hysteresis\": 2, \"min_loss_scale\": 1},\n"
      " \"zero_optimization\": {\"stage\": 2}}\n";
  EXPECT_EQ(Error(json, Model(On(8))), "ok");
}

TEST(DeepSpeed, OffloadAndParallelism) {
  const Result<Imported> offload = Import(
      {Write("ds.json",
             "{\"train_micro_batch_size_per_gpu\": 1, \"bf16\": {\"enabled\": true},\n"
             "\"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": {\"device\": \"cpu\"},\n"
             "\"offload_param\": {\"device\": \"cpu\", \"pin_memory\": true}}}")},
      Model(On(8)));
  ASSERT_TRUE(offload.ok()) << offload.status().message();
  EXPECT_THAT(offload->job_text, HasSubstr("offload: parameters"));
  const Result<Imported> split =
      Import({Write("ds.json",
                    "{\"train_micro_batch_size_per_gpu\": 1, \"gradient_accumulation_steps\": 8,\n"
                    "\"bf16\": {\"enabled\": true}, \"zero_optimization\": {\"stage\": 1},\n"
                    "\"tensor_parallel\": {\"autotp_size\": 2}}")},
             Model(On(16)));
  ASSERT_TRUE(split.ok()) << split.status().message();
  EXPECT_EQ(Work(split).plan.parallel.tp, 2);
  EXPECT_EQ(Work(split).plan.parallel.dp, 8);
  EXPECT_EQ(Work(split).plan.batch.global_batch, 64);
}

// Shapes from a config.json beside it; the job finds it from its own folder.
TEST(DeepSpeed, ModelFileBesideIt) {
  const std::string config = Write(
      "model/config.json",
      "{\"model_type\": \"llama\", \"hidden_size\": 4096, \"num_hidden_layers\": 32,\n"
      "\"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"intermediate_size\": 14336,\n"
      "\"vocab_size\": 128256, \"max_position_embeddings\": 8192, \"rms_norm_eps\": 1e-5}");
  Options options = Model(On(16), "");
  options.folder = std::filesystem::path(config).parent_path().string();
  const Result<Imported> imported = Import({Write("ds.json", kZero3), config}, options);
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(Work(imported).model.parameters(), 8'030'261'248);
  // A cluster's file as well, and a folder that the job is written to and that is elsewhere.
  options.cluster = Write("my-cluster.yaml", "preset: h100-ib-400g\n");
  options.folder = testing::TempDir();
  const Result<Imported> elsewhere = Import({Write("ds.json", kZero3), config}, options);
  ASSERT_TRUE(elsewhere.ok()) << elsewhere.status().message();
  const Result<job::Job> again =
      job::ReadJobText(elsewhere->job_text, "job.yaml", options.folder, {});
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again->config_hash, elsewhere->job.config_hash);
}

TEST(LlamaFactory, ReadsTheJsonThatItNames) {
  const Result<Imported> imported = Import({Example("llama-factory-qwen2.5-7b.yaml")}, On(16));
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->dialect, "llama-factory");
  const job::Workload& w = Work(imported);
  EXPECT_NEAR(static_cast<double>(w.model.parameters()) / 1e9, 7.62, 0.01);  // its model card
  EXPECT_EQ(w.plan.batch.global_batch, 2 * 4 * 16);
  EXPECT_EQ(w.plan.batch.seq_len, 4096);
  EXPECT_EQ(w.plan.memory.sharding, workload::Sharding::kZero3);
  EXPECT_EQ(w.plan.memory.recompute, workload::Recompute::kFull);  // unless it is disabled
  EXPECT_EQ(w.plan.framework.bucket_elements, 3584 * 3584);
  EXPECT_FALSE(w.plan.framework.repeats_kv);
}

TEST(LlamaFactory, AdaptersAndStages) {
  const std::string head =
      "model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct\ncutoff_len: 2048\n"
      "per_device_train_batch_size: 1\nbf16: true\n";
  const Result<Imported> lora =
      Import({Write("lora.yaml", head + "stage: sft\nfinetuning_type: lora\nlora_rank: 16\n"
                                        "lora_target: q_proj,k_proj,v_proj,o_proj\n")},
             On(8));
  ASSERT_TRUE(lora.ok()) << lora.status().message();
  EXPECT_EQ(Work(lora).plan.lora.rank, 16);
  EXPECT_THAT(lora->job_text, HasSubstr("lora_targets: attention"));
  EXPECT_THAT(lora->job_text, HasSubstr("framework: ddp"));
  const auto error = [&](const std::string& more) {
    const Result<Imported> imported = Import({Write("lora.yaml", head + more)}, On(8));
    return imported.ok() ? "ok" : imported.status().message();
  };
  EXPECT_THAT(error("stage: dpo\n"), HasSubstr("stage: 'dpo' is not modelled; pt and sft are"));
  EXPECT_THAT(error("stage: sft\nlora_target: lm_head\n"),
              HasSubstr("lora_target: adapters are modelled beside linear layers"));
  EXPECT_THAT(
      error("stage: sft\nfinetuning_type: full\nquantization_bit: 4\n"),
      HasSubstr("quantization_bit: quantised weights are not trained; adapters beside them"));
  EXPECT_THAT(error("stage: sft\nfinetuning_type: lora\nlora_target: all\nquantization_bit: 4\n"
                    "quantization_method: hqq\n"),
              HasSubstr("weights quantised by 'hqq' are not modelled; bitsandbytes' are"));
  EXPECT_THAT(error("stage: sft\nper_device_trian_batch_size: 4\n"),
              HasSubstr("did you mean '--per_device_train_batch_size'"));
}

// QLoRA with scales in 8 bits, its default, and bitsandbytes' optimizer.
TEST(LlamaFactory, QuantisedBase) {
  const std::string head =
      "model_name_or_path: Qwen/Qwen2.5-7B\ndo_train: true\nstage: sft\ncutoff_len: 2048\n"
      "finetuning_type: lora\nlora_target: all\nbf16: true\nper_device_train_batch_size: 1\n"
      "gradient_accumulation_steps: 8\n";
  const auto plan = [&](const std::string& more) {
    const Result<Imported> imported = Import({Write("qlora.yaml", head + more)}, On(8));
    EXPECT_TRUE(imported.ok()) << imported.status().message();
    return imported.ok() ? Work(imported).plan : workload::Plan{};
  };
  const workload::Plan four = plan("quantization_bit: 4\noptim: paged_adamw_8bit\n");
  EXPECT_EQ(four.lora.base, workload::BaseWeights::kNf4);
  EXPECT_TRUE(four.lora.double_quantization);
  EXPECT_EQ(four.optimizer_states, workload::OptimizerStates::k8bit);
  EXPECT_FALSE(four.framework.fp32_embedding_states);  // adapters alone are trained
  EXPECT_FALSE(plan("quantization_bit: 4\ndouble_quantization: false\n").lora.double_quantization);
  EXPECT_EQ(plan("quantization_bit: 8\n").lora.base, workload::BaseWeights::kInt8);
}

// The Trainer keeps embeddings' moments in 32 bits beside bitsandbytes' 8.
TEST(LlamaFactory, SmallOptimizerStates) {
  const std::string head =
      "model_name_or_path: Qwen/Qwen2.5-7B\ndo_train: true\nstage: sft\ncutoff_len: 2048\n"
      "finetuning_type: full\nbf16: true\nper_device_train_batch_size: 1\n"
      "gradient_accumulation_steps: 8\noptim: ";
  const auto plan = [&](const std::string& optimizer) {
    const Result<Imported> imported = Import({Write("full.yaml", head + optimizer + "\n")}, On(8));
    EXPECT_TRUE(imported.ok()) << imported.status().message();
    return imported.ok() ? Work(imported).plan : workload::Plan{};
  };
  EXPECT_TRUE(plan("adamw_bnb_8bit").framework.fp32_embedding_states);
  const workload::Plan torchao = plan("adamw_torch_4bit");
  EXPECT_EQ(torchao.optimizer_states, workload::OptimizerStates::k4bit);
  EXPECT_FALSE(torchao.framework.fp32_embedding_states);
  EXPECT_EQ(plan("lion_8bit").optimizer, workload::Optimizer::kLion);
  EXPECT_EQ(plan("paged_adamw_32bit").optimizer_states, workload::OptimizerStates::kFp32);
  EXPECT_FALSE(plan("sgd").momentum);
}

TEST(Accelerate, LaunchesTheTrainer) {
  const Result<Imported> imported =
      Import({Example("llama2-13b-sft.sh")}, On(0, "a100-80g-ib-200g"));
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->dialect, "trainer");
  const job::Workload& w = Work(imported);
  EXPECT_NEAR(static_cast<double>(w.model.parameters()) / 1e9, 13.02, 0.01);
  EXPECT_EQ(imported->job.ranks(), 16u);
  EXPECT_EQ(w.plan.batch.global_batch, 4 * 2 * 16);
  EXPECT_EQ(w.plan.memory.recompute, workload::Recompute::kFull);
  EXPECT_TRUE(w.plan.framework.chunked_loss);
  EXPECT_FALSE(w.plan.framework.grad_reduce_fp32);  // FSDP reduces in what mixed_precision says
  EXPECT_THAT(imported->job_text, HasSubstr("framework: fsdp2"));
}

TEST(Accelerate, StrategiesOfFsdp) {
  const auto job = [](const std::string& more) {
    const std::string yaml =
        Write("fsdp.yaml",
              "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 16\n"
              "num_machines: 2\nfsdp_config:\n" +
                  more);
    Options options = Model(On(0));
    options.read.set.push_back("training.global_batch=16");
    const std::string arguments =
        Write("args.json", "{\"per_device_train_batch_size\": 1, \"output_dir\": \"x\"}");
    const Result<Imported> imported = Import({yaml, arguments}, options);
    return imported.ok() ? imported->job_text : imported.status().message();
  };
  EXPECT_THAT(job("  fsdp_sharding_strategy: 1\n"), HasSubstr("sharding: zero3"));
  EXPECT_THAT(job("  fsdp_sharding_strategy: SHARD_GRAD_OP\n"), HasSubstr("sharding: zero2"));
  EXPECT_THAT(job("  fsdp_sharding_strategy: HYBRID_SHARD\n"), HasSubstr("shard_group: 8"));
  EXPECT_THAT(job("  fsdp_sharding_strategy: FULL\n"),
              HasSubstr("'full' is no sharding strategy; valid: FULL_SHARD"));
  EXPECT_THAT(job("  fsdp_version: 2\n  fsdp_offload_params: true\n"),
              HasSubstr("offload: parameters"));
  EXPECT_THAT(job("  fsdp_backward_prefetch: BACKWARD_POST\n"),
              HasSubstr("BACKWARD_PRE and NO_PREFETCH are"));
}

// The Trainer and Accelerate leave reductions to a step's last micro-batch (no_sync), unless
// sync_each_batch; DeepSpeed's stages 2 and 3 reduce each.
TEST(Accelerate, GradientsUnderAccumulation) {
  const auto plan = [](const std::string& type, const std::string& more) {
    const std::string yaml = Write(
        "sync.yaml", "distributed_type: " + type +
                         "\nmixed_precision: bf16\nnum_processes: 8\nnum_machines: 1\n" +
                         (type == "FSDP" ? "fsdp_config: {fsdp_sharding_strategy: FULL_SHARD}\n"
                                         : "deepspeed_config: {zero_stage: 3}\n"));
    const std::string arguments =
        Write("sync.json",
              "{\"per_device_train_batch_size\": 1, \"output_dir\": \"x\", "
              "\"gradient_accumulation_steps\": 4" +
                  more + "}");
    const Result<Imported> imported = Import({yaml, arguments}, Model(On(0)));
    EXPECT_TRUE(imported.ok()) << imported.status().message();
    return Work(imported).plan;
  };
  EXPECT_TRUE(plan("FSDP", "").defers_reductions());
  EXPECT_FALSE(plan("FSDP",
                    ", \"accelerator_config\": {\"gradient_accumulation_kwargs\": "
                    "{\"sync_each_batch\": true}}")
                   .defers_reductions());
  EXPECT_FALSE(plan("DEEPSPEED", "").defers_reductions());
}

TEST(Trainer, DefaultsAreItsOwn) {
  const Result<Imported> imported =
      Import({Write("train.sh",
                    "torchrun --nproc_per_node 8 --nnodes 2 run_clm.py --bf16 "
                    "--model_name_or_path openai-community/gpt2-xl --block_size 1024 "
                    "--output_dir /tmp/out --do_train\n")},
             {.dialect = "trainer", .cluster = "a100-80g-ib-200g"});
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(Work(imported).plan.batch.global_batch, 8 * 16);
  EXPECT_EQ(imported->job.ranks(), 16u);
  EXPECT_THAT(imported->job.assumed,
              Contains(HasSubstr("per_device_train_batch_size: 8, the Trainer's default")));
  EXPECT_THAT(imported->job_text, HasSubstr("framework: ddp"));
}

}  // namespace
}  // namespace orrery::recipes
