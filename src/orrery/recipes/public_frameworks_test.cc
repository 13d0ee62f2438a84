// GPT-NeoX, nanotron, axolotl, ms-swift, torchtune and Primus: their own global batch, GPUs and
// parameters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "orrery/job/job.h"
#include "orrery/recipes/import.h"

namespace orrery::recipes {
namespace {

using testing::HasSubstr;
using testing::Not;

Result<Imported> ImportText(const std::string& name, const std::string& text,
                            Options options = {}) {
  const std::string path = testing::TempDir() + name;
  std::ofstream(path) << text;
  options.cluster = "h100-ib-400g";
  return Import({path}, options);
}

std::string ErrorOf(const std::string& name, const std::string& text, Options options = {}) {
  const Result<Imported> imported = ImportText(name, text, std::move(options));
  return imported.ok() ? "" : std::string(imported.status().message());
}

// The 20 billion model of Black et al. 2022: 96 GPUs, 1,536 sequences a step, dashes in names as
// its older files have them.
constexpr const char* kNeoX =
    "{\n  \"pipe-parallel-size\": 4,\n  \"model-parallel-size\": 2,\n  \"num-layers\": 44,\n"
    "  \"hidden-size\": 6144,\n  \"num-attention-heads\": 64,\n  \"seq-length\": 2048,\n"
    "  \"max-position-embeddings\": 2048,\n  \"pos-emb\": \"rotary\", \"rotary-pct\": 0.25,\n"
    "  \"no-weight-tying\": true, # the head has weights of its own\n"
    "  \"gpt-j-residual\": true,\n  \"scaled-upper-triang-masked-softmax-fusion\": true,\n"
    "  \"bias-gelu-fusion\": true,\n  \"vocab-file\": \"20B_tokenizer.json\",\n"
    "  \"tokenizer-type\": \"HFTokenizer\",\n"
    "  \"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 0.97e-4}},\n"
    "  \"zero_optimization\": {\"stage\": 1, \"overlap_comm\": True},\n"
    "  \"train_micro_batch_size_per_gpu\": 4,\n  \"gradient_accumulation_steps\": 32,\n"
    "  \"fp16\": {\"enabled\": true},\n  \"wall_clock_breakdown\": true,\n"
    "  \"checkpoint-activations\": true,\n}\n";

TEST(GptNeox, TwentyBillion) {
  const Result<Imported> imported = ImportText("20B.yml", kNeoX, {.gpus = 96});
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->dialect, "gpt-neox");
  const job::Workload& workload = imported->job.workloads.front();
  EXPECT_EQ(workload.plan.parallel.dp, 12);
  EXPECT_EQ(workload.plan.parallel.pp, 4);
  EXPECT_EQ(workload.plan.batch.global_batch, 1536);
  EXPECT_EQ(workload.model.vocab, 50432);
  EXPECT_EQ(workload.model.parameters(), 20'554'567'680);
  EXPECT_THAT(imported->job_text, HasSubstr("wall_clock_breakdown"));  // said, not refused
}

// Pythia's files: `gas` in place of gradient_accumulation_steps, checkpoints split over one
// tensor-parallel rank, a name with a dot.
TEST(GptNeox, PythiasOwnWords) {
  std::string text = kNeoX;
  text.replace(text.find("\"gradient_accumulation_steps\": 32"), 33, "\"gas\": 2");
  text.replace(text.find("\"model-parallel-size\": 2"), 24, "\"model-parallel-size\": 1");
  text.insert(text.rfind('}'), "  \"partition-activations\": true,\n");
  const Result<Imported> imported = ImportText("pythia-2.8b.yml", text, {.gpus = 16});
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->job.workloads.front().plan.batch.global_batch, 4 * 4 * 2);
  EXPECT_EQ(imported->job.workloads.front().model.name, "pythia-2.8b");
}

TEST(GptNeox, FilesAreLaidOverEachOther) {
  const std::string base = testing::TempDir() + "base.yml", over = testing::TempDir() + "over.yml";
  std::ofstream(base) << kNeoX;
  std::ofstream(over) << "{\"pipe_parallel_size\": 2, \"attention_config\": [[[\"flash\"], 44]],\n"
                         " \"hostfile\": \"/mnt/hosts\"}\n";
  const Result<Imported> imported = Import({base, over}, {.cluster = "h100-ib-400g", .gpus = 96});
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->job.workloads.front().plan.parallel.dp, 24);
  EXPECT_THAT(imported->job_text, HasSubstr("attention: flash2"));
}

// Llama's feed-forward: half of two thirds of the width that the file names.
TEST(GptNeox, GatedWidth) {
  const Result<Imported> imported = ImportText(
      "7B.yml",
      "pipe_parallel_size: 1\nmodel_parallel_size: 1\nnum_layers: 32\nhidden_size: 4096\n"
      "num_attention_heads: 32\nseq_length: 2048\nmlp_multiple_of: 256\n"
      "intermediate_size: 32768\nactivation: swiglu\nnorm: rmsnorm\npos_emb: rotary\n"
      "no_weight_tying: true\nuse_bias_in_attn_linear: false\nuse_bias_in_mlp: false\n"
      "padded_vocab_size: 32000\ntrain_batch_size: 512\ntrain_micro_batch_size_per_gpu: 4\n"
      "gradient_accumulation_steps: 2\nbf16: {enabled: true}\n");
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  const job::Workload& workload = imported->job.workloads.front();
  EXPECT_EQ(workload.model.parameters(), 6'738'415'616);
  EXPECT_EQ(workload.plan.parallel.dp, 64);
}

TEST(GptNeox, WhatIsRefusedIsNamed) {
  EXPECT_THAT(ErrorOf("a.yml", std::string(kNeoX) + "", {.gpus = 12}),
              HasSubstr("no multiple of a replica's 8"));
  std::string mamba = kNeoX;
  mamba.insert(mamba.rfind('}'), " \"attention_config\": [[[\"mamba\"], 44]]\n");
  EXPECT_THAT(ErrorOf("b.yml", mamba, {.gpus = 96}), HasSubstr("layers of mamba are not modelled"));
  std::string odd = kNeoX;
  odd.insert(odd.rfind('}'), " \"num_layer\": 12\n");
  EXPECT_THAT(ErrorOf("c.yml", odd, {.gpus = 96}), HasSubstr("did you mean 'num_layers'"));
}

// SmolLM3: 384 GPUs in pairs, 2.36 million tokens a step, 3.08 billion parameters.
TEST(Nanotron, SmolLm3) {
  const std::string text =
      "general:\n  project: smollm3\nmodel:\n  dtype: bfloat16\n  make_vocab_size_divisible_by: 1\n"
      "  model_config:\n    hidden_act: silu\n    hidden_size: 2048\n    intermediate_size: 11008\n"
      "    is_qwen2_config: true\n    num_attention_heads: 16\n    num_hidden_layers: 36\n"
      "    num_key_value_heads: 4\n    tie_word_embeddings: true\n    vocab_size: 128256\n"
      "    _attn_implementation: flash_attention_2\noptimizer:\n  accumulate_grad_in_fp32: true\n"
      "  clip_grad: 1.0\n  zero_stage: 0\nparallelism:\n  dp: 192\n  pp: 1\n  tp: 2\n"
      "  tp_mode: REDUCE_SCATTER\n  pp_engine: 1f1b\ntokens:\n"
      "  batch_accumulation_per_replica: 1\n  micro_batch_size: 3\n  sequence_length: 4096\n";
  const Result<Imported> imported = ImportText("smollm3.yaml", text);
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  const job::Workload& workload = imported->job.workloads.front();
  EXPECT_EQ(workload.plan.parallel.dp * workload.plan.parallel.tp, 384);
  EXPECT_EQ(workload.plan.batch.global_batch * workload.plan.batch.seq_len, 2'359'296);
  EXPECT_EQ(workload.model.parameters(), 3'075'098'624);
  EXPECT_THAT(ErrorOf("a.yaml", text + "  micro_batch: 2\n"), testing::IsEmpty());  // tokens.*
  std::string star = text;
  star.replace(star.find("is_qwen2_config"), 15, "is_starcoder2_config");
  EXPECT_THAT(ErrorOf("b.yaml", star), HasSubstr("this architecture is not read"));
}

constexpr const char* kAxolotl =
    "base_model: NousResearch/Meta-Llama-3-8B\nsequence_len: 8192\nmicro_batch_size: 1\n"
    "gradient_accumulation_steps: 8\noptimizer: adamw_torch_fused\nbf16: auto\ntf32: false\n"
    "gradient_checkpointing: true\nattn_implementation: flash_attention_2\n"
    "datasets:\n  - path: tatsu-lab/alpaca\n    type: alpaca\n";

TEST(Axolotl, WholeModelUnderFsdp) {
  const Result<Imported> imported = ImportText(
      "fft.yml",
      std::string(kAxolotl) +
          "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n  offload_params: false\n",
      {.gpus = 8});
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->dialect, "axolotl");
  const job::Workload& workload = imported->job.workloads.front();
  EXPECT_EQ(workload.plan.batch.global_batch, 64);
  EXPECT_EQ(workload.plan.memory.sharding, workload::Sharding::kZero3);
  EXPECT_EQ(workload.model.parameters(), 8'030'261'248);
  EXPECT_THAT(imported->job_text, HasSubstr("framework: fsdp2"));
  EXPECT_TRUE(workload.plan.defers_reductions());  // the Trainer's no_sync
}

// utils/schemas/validation.py, check_gradient_checkpointing_w_offload.
TEST(Axolotl, CheckpointsThatLeaveForTheHost) {
  std::string text = kAxolotl;
  text.replace(text.find("checkpointing: true"), 19, "checkpointing: offload");
  const Result<Imported> imported = ImportText("offload.yml", text, {.gpus = 1});
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->job.workloads.front().plan.memory.recompute, workload::Recompute::kFull);
  EXPECT_TRUE(imported->job.workloads.front().plan.memory.offload_activations);
  text.replace(text.find("checkpointing: offload"), 22, "checkpointing: offload_disk");
  EXPECT_THAT(ErrorOf("disk.yml", text), HasSubstr("true, false and offload are"));
}

// How long packed samples are is not in the file: said under `assume`, unless the user says it.
TEST(Axolotl, PackedSamplesAreAssumed) {
  const std::string packed = std::string(kAxolotl) + "sample_packing: true\n";
  const Result<Imported> imported = ImportText("packed.yml", packed, {.gpus = 1});
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_THAT(imported->job_text, HasSubstr("assume:"));
  EXPECT_THAT(imported->job_text, HasSubstr("--set training.packed_len=N says otherwise"));
  Options said{.gpus = 1};
  said.read.set = {"training.packed_len=512"};
  const Result<Imported> shorter = ImportText("packed.yml", packed, said);
  ASSERT_TRUE(shorter.ok()) << shorter.status().message();
  EXPECT_THAT(shorter->job_text, Not(HasSubstr("says otherwise")));
  EXPECT_EQ(shorter->job.workloads.front().plan.batch.packed_len, 512);
  const Result<Imported> off =
      ImportText("packed.yml", std::string(kAxolotl) + "sample_packing: false\n", {.gpus = 1});
  ASSERT_TRUE(off.ok()) << off.status().message();
  EXPECT_THAT(off->job_text, Not(HasSubstr("packed_len")));
}

TEST(Axolotl, AdaptersAndWhatIsRefused) {
  const std::string lora = std::string(kAxolotl) +
                           "adapter: lora\nlora_r: 32\nlora_target_linear: true\n"
                           "liger_rms_norm: true\nplugins:\n"
                           "  - axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin\n";
  const Result<Imported> imported = ImportText("lora.yml", lora, {.gpus = 2});
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_THAT(imported->job_text, HasSubstr("lora_rank: 32"));
  EXPECT_THAT(imported->job_text, HasSubstr("chunked_loss: true"));
  const std::string error =
      ErrorOf("rl.yml", lora + "gptq: true\nrl: dpo\nsequence_lenght: 1\n", {.gpus = 2});
  EXPECT_THAT(error, HasSubstr("gptq"));
  EXPECT_THAT(error, HasSubstr("rl dpo: training by preferences or rewards is not modelled"));
  EXPECT_THAT(error, HasSubstr("did you mean 'sequence_len'"));
}

// Names of the hub say the model; what stands beside its text model is named.
TEST(Axolotl, NamesOfTheHub) {
  const auto import = [](const std::string& name) {
    return ImportText("hub.yaml",
                      "base_model: " + name +
                          "\nsequence_len: 2048\nmicro_batch_size: 1\n"
                          "gradient_accumulation_steps: 1\nbf16: true\nfsdp_config:\n"
                          "  fsdp_version: 2\n",
                      {.gpus = 64});
  };
  const std::pair<const char*, double> published[] = {{"Qwen/Qwen2.5-VL-7B-Instruct", 7.616e9},
                                                      {"allenai/Llama-3.1-Tulu-3-8B-SFT", 8.030e9},
                                                      {"google/gemma-3-27b-it", 27.009e9},
                                                      {"Qwen/Qwen3.5-35B-A3B", 34.661e9},
                                                      {"mistralai/Magistral-Small-2506", 23.572e9},
                                                      {"MiniMaxAI/MiniMax-M2", 228.690e9},
                                                      {"stepfun-ai/step3", 316.3e9},
                                                      {"bigcode/starcoder2-15b", 15.958e9}};
  for (const auto& [name, parameters] : published) {
    const Result<Imported> imported = import(name);
    ASSERT_TRUE(imported.ok()) << name << ": " << imported.status().message();
    const auto count = static_cast<double>(imported->job.workloads.front().model.parameters());
    EXPECT_NEAR(count / parameters, 1, 1e-3) << name;
  }
  EXPECT_THAT(import("Qwen/Qwen2.5-VL-7B-Instruct")->job_text,
              HasSubstr("an encoder of images beside it is not counted"));
}

// axolotl quantises scales, too, unless told.
TEST(Axolotl, QuantisedBase) {
  const std::string qlora = std::string(kAxolotl) +
                            "adapter: qlora\nload_in_4bit: true\nlora_r: 32\n"
                            "lora_target_linear: true\n";
  const auto plan = [](const std::string& text) {
    const Result<Imported> imported = ImportText("qlora.yml", text, {.gpus = 2});
    EXPECT_TRUE(imported.ok()) << imported.status().message();
    return imported.ok() ? imported->job.workloads.front().plan : workload::Plan{};
  };
  const workload::Plan four = plan(qlora);
  EXPECT_EQ(four.lora.base, workload::BaseWeights::kNf4);
  EXPECT_TRUE(four.lora.double_quantization);
  const workload::Plan told = plan(qlora +
                                   "bnb_config_kwargs:\n  bnb_4bit_use_double_quant: false\n"
                                   "  bnb_4bit_quant_type: fp4\n");
  EXPECT_EQ(told.lora.base, workload::BaseWeights::kFp4);
  EXPECT_FALSE(told.lora.double_quantization);
}

TEST(MsSwift, ProcessesStandInTheEnvironment) {
  const Result<Imported> imported = ImportText(
      "sft.sh",
      "nproc_per_node=4\nCUDA_VISIBLE_DEVICES=0,1,2,3 \\\nNPROC_PER_NODE=$nproc_per_node \\\n"
      "swift sft \\\n  --model Qwen/Qwen2.5-7B-Instruct \\\n  --tuner_type full \\\n"
      "  --dataset 'a#500' 'b#500' \\\n  --torch_dtype bfloat16 \\\n  --max_length 2048 \\\n"
      "  --per_device_train_batch_size 1 \\\n  --deepspeed zero3 \\\n"
      "  --gradient_accumulation_steps $(expr 32 / $nproc_per_node)\n");
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->dialect, "ms-swift");
  const job::Workload& workload = imported->job.workloads.front();
  EXPECT_EQ(workload.plan.parallel.dp, 4);
  EXPECT_EQ(workload.plan.batch.global_batch, 32);
  EXPECT_EQ(workload.plan.memory.sharding, workload::Sharding::kZero3);
  EXPECT_EQ(workload.model.parameters(), 7'615'616'512);
  EXPECT_THAT(imported->job_text, HasSubstr("recompute: full"));  // unless it is told
  // Adapters beside all projections, and 16 sequences a step, unless it is told.
  const Result<Imported> lora = ImportText(
      "lora.sh", "CUDA_VISIBLE_DEVICES=0 swift sft --model Qwen/Qwen2.5-7B --max_length 2048\n");
  ASSERT_TRUE(lora.ok()) << lora.status().message();
  EXPECT_EQ(lora->job.workloads.front().plan.batch.global_batch, 16);
  EXPECT_THAT(lora->job_text, HasSubstr("lora_rank: 8"));
  EXPECT_THAT(ErrorOf("a.sh", "swift rlhf --rlhf_type dpo --model Qwen/Qwen2.5-7B --max_length 9\n",
                      {.gpus = 1}),
              HasSubstr("--rlhf_type dpo: training by preferences or rewards is not modelled"));
}

TEST(MsSwift, OnMegatron) {
  const Result<Imported> imported =
      ImportText("megatron.sh",
                 "NPROC_PER_NODE=8 NNODES=2 megatron sft --model Qwen/Qwen3-30B-A3B \\\n"
                 " --tensor_model_parallel_size 2 --sequence_parallel true --packing true \\\n"
                 " --expert_model_parallel_size 8 --moe_permute_fusion true --max_length 8192 \\\n"
                 " --micro_batch_size 1 --global_batch_size 32 --recompute_granularity full \\\n"
                 " --recompute_method uniform --recompute_num_layers 1\n");
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->dialect, "ms-swift-megatron");
  const job::Workload& workload = imported->job.workloads.front();
  EXPECT_EQ(workload.plan.parallel.tp, 2);
  EXPECT_EQ(workload.plan.parallel.ep, 8);
  EXPECT_EQ(workload.plan.parallel.dp, 8);
  EXPECT_EQ(workload.plan.batch.global_batch, 32);
  EXPECT_EQ(workload.model.experts.count, 128);
  EXPECT_NEAR(static_cast<double>(workload.model.parameters()) / 1e9, 30.53, 0.01);
  EXPECT_THAT(ErrorOf("b.sh",
                      "NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen3-30B-A3B "
                      "--tensor_model_paralel_size 2 --max_length 8192\n"),
              HasSubstr("did you mean '--tensor_model_parallel_size'"));
}

// torchtune's Llama 3.1 8B: everything of bf16, a fused loss in parts; its batch over two GPUs.
TEST(Torchtune, WholeModelAndAdapters) {
  const std::string text =
      "model:\n  _component_: torchtune.models.llama3_1.llama3_1_8b\n"
      "tokenizer:\n  _component_: torchtune.models.llama3.llama3_tokenizer\n"
      "  max_seq_len: 8192\nbatch_size: 2\ngradient_accumulation_steps: 8\n"
      "optimizer:\n  _component_: torch.optim.AdamW\n  fused: True\n  lr: 2e-5\n"
      "loss:\n  _component_: torchtune.modules.loss.LinearCrossEntropyLoss\n"
      "clip_grad_norm: null\ncompile: False\ndtype: bf16\n"
      "enable_activation_checkpointing: True\nenable_activation_offloading: False\n"
      "batch_size_val: ${batch_size}\n";
  const Result<Imported> whole = ImportText("8B_full.yaml", text, {.gpus = 2});
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  EXPECT_EQ(whole->dialect, "torchtune");
  EXPECT_EQ(whole->job.workloads.front().plan.batch.global_batch, 32);
  EXPECT_EQ(whole->job.workloads.front().model.parameters(), 8'030'261'248);
  EXPECT_THAT(whole->job_text, HasSubstr("model_type_states: true"));
  EXPECT_THAT(whole->job_text, HasSubstr("clip_gradients: false"));
  // On the command line a component's name alone says it.
  const Result<Imported> told = ImportText(
      "tune.sh",
      "tune run --nproc_per_node 2 full_finetune_distributed --config 8B_full.yaml batch_size=1 "
      "optimizer=bitsandbytes.optim.AdamW8bit\n");
  ASSERT_TRUE(told.ok()) << told.status().message();
  EXPECT_EQ(told->job.workloads.front().plan.batch.global_batch, 16);
  EXPECT_EQ(told->job.workloads.front().plan.optimizer_states, workload::OptimizerStates::k8bit);
  std::string lora = text;
  lora.replace(lora.find("llama3_1_8b"), 11,
               "lora_llama3_1_8b\n  lora_attn_modules: ['q_proj', 'v_proj', 'output_proj']\n"
               "  apply_lora_to_mlp: True\n  lora_rank: 8\n  lora_alpha: 16");
  // A recipe for one GPU carries it in its name.
  const Result<Imported> one = ImportText("8B_lora_single_device.yaml", lora);
  ASSERT_TRUE(one.ok()) << one.status().message();
  EXPECT_EQ(one->job.workloads.front().plan.batch.global_batch, 16);
  EXPECT_THAT(one->job_text, HasSubstr("lora_rank: 8"));
  // "qlora_": torchao's tensors; bitsandbytes' optimizers keep fp32, or 8 bits.
  std::string small = lora;
  small.replace(small.find("lora_llama3_1_8b"), 16, "qlora_llama3_1_8b");
  small.replace(small.find("torch.optim.AdamW"), 17, "bitsandbytes.optim.PagedAdamW8bit");
  const Result<Imported> packed = ImportText("8B_qlora_single_device.yaml", small);
  ASSERT_TRUE(packed.ok()) << packed.status().message();
  const workload::Plan& plan = packed->job.workloads.front().plan;
  EXPECT_EQ(plan.lora.base, workload::BaseWeights::kNf4);
  EXPECT_TRUE(plan.framework.nf4_tensor);
  EXPECT_EQ(plan.optimizer_states, workload::OptimizerStates::k8bit);
  EXPECT_TRUE(plan.updates_in_place());
  EXPECT_THAT(ErrorOf("kd.yaml", text + "kd_ratio: 0.5\nbatch_sise: 2\n", {.gpus = 2}),
              testing::AllOf(HasSubstr("knowledge distillation runs a second model"),
                             HasSubstr("did you mean 'batch_size'")));
}

// Files that lie over each other: defaults, a model that extends another, overrides.
TEST(Primus, FilesOverFiles) {
  namespace fs = std::filesystem;
  const fs::path root = fs::path(testing::TempDir()) / "primus_copy";
  const auto write = [&](const std::string& name, const std::string& text) {
    fs::create_directories((root / name).parent_path());
    std::ofstream(root / name) << text;
    return (root / name).string();
  };
  write("primus/configs/modules/megatron/pre_trainer.yaml",
        "use_distributed_optimizer: true\nglobal_batch_size: 16\nstderr_sink_level: INFO\n");
  write("primus/configs/models/megatron/llama_base.yaml",
        "swiglu: true\nnormalization: RMSNorm\nposition_embedding_type: rope\n"
        "add_bias_linear: false\nhidden_dropout: 0.0\nattention_dropout: 0.0\n"
        "untie_embeddings_and_output_weights: true\n");
  write("primus/configs/models/megatron/llama3.1_8B.yaml",
        "extends:\n  - llama_base.yaml\nnum_layers: 32\nhidden_size: 4096\n"
        "ffn_hidden_size: 14336\nnum_attention_heads: 32\ngroup_query_attention: true\n"
        "num_query_groups: 8\nvocab_size: 128256\nmax_position_embeddings: 131072\n");
  const std::string head =
      "work_group: amd\nmodules:\n  pre_trainer:\n    framework: megatron\n"
      "    config: pre_trainer.yaml\n    model: ${PRIMUS_MODEL:llama3.1_8B}.yaml\n"
      "    overrides:\n      micro_batch_size: 2\n      global_batch_size: 128\n"
      "      seq_length: 8192\n      bf16: true\n      enable_primus_turbo: true\n"
      "      use_turbo_attention: true\n";
  const std::string recipe = write("examples/megatron/configs/MI300X/llama.yaml", head);
  const Result<Imported> imported = Import({recipe}, {.cluster = "h100-ib-400g", .gpus = 8});
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->dialect, "primus");
  const job::Workload& workload = imported->job.workloads.front();
  EXPECT_EQ(workload.model.parameters(), 8'030'261'248);
  EXPECT_EQ(workload.plan.batch.global_batch, 128);
  EXPECT_EQ(workload.plan.memory.sharding, workload::Sharding::kZero1);
  EXPECT_THAT(imported->job_text, HasSubstr("attention: flash2"));
  const Result<Imported> other =
      Import({recipe},
             {.cluster = "h100-ib-400g", .gpus = 8, .variables = {{"PRIMUS_MODEL", "grok9_1T"}}});
  ASSERT_FALSE(other.ok());
  EXPECT_THAT(other.status().message(),
              HasSubstr("what 'primus/configs/models/megatron/grok9_1T.yaml' holds"));
  const std::string lost = write("examples/megatron/configs/MI300X/odd.yaml",
                                 head + "      use_turbo_atention: true\n      hc_mult: 4\n");
  const Result<Imported> refused = Import({lost}, {.cluster = "h100-ib-400g", .gpus = 8});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.status().message(), HasSubstr("did you mean 'use_turbo_attention'"));
  EXPECT_THAT(refused.status().message(), HasSubstr("hyper-connections are not modelled"));
}

TEST(Primus, OnTorchtitan) {
  const std::string defaults = testing::TempDir() + "titan_defaults.yaml";
  const std::string model = testing::TempDir() + "titan_8B.yaml";
  std::ofstream(defaults) << "training:\n  local_batch_size: 8\noptimizer:\n  name: AdamW\n";
  std::ofstream(model) << "model:\n  name: llama3\n  flavor: 8B\n  converters: [primus_turbo]\n";
  const std::string recipe = testing::TempDir() + "titan_recipe.yaml";
  std::ofstream(recipe) << "modules:\n  pre_trainer:\n    framework: torchtitan\n"
                           "    config: titan_defaults.yaml\n    model: titan_8B.yaml\n"
                           "    overrides:\n      training:\n        local_batch_size: 4\n"
                           "        seq_len: 8192\n      activation_checkpoint:\n"
                           "        mode: none\n";
  const Result<Imported> imported =
      Import({recipe, defaults, model}, {.cluster = "h100-ib-400g", .gpus = 8});
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->job.workloads.front().plan.batch.global_batch, 32);
  EXPECT_NEAR(static_cast<double>(imported->job.workloads.front().model.parameters()) / 1e9, 8.03,
              0.01);
}

// Defaults, model and overrides in MaxText's own keys.
TEST(Primus, OnMaxText) {
  const std::string defaults = testing::TempDir() + "maxtext_defaults.yaml";
  const std::string model = testing::TempDir() + "maxtext_8B.yaml";
  std::ofstream(defaults) << "trainable: true\nbase_config: base.yml\nhardware: gpu\n"
                             "dtype: bfloat16\nweight_dtype: bfloat16\nremat_policy: full\n";
  std::ofstream(model) << "model_name: llama3-8b\nattention: cudnn_flash_te\n";
  const std::string recipe = testing::TempDir() + "maxtext_recipe.yaml";
  std::ofstream(recipe) << "modules:\n  pre_trainer:\n    framework: maxtext\n"
                           "    config: maxtext_defaults.yaml\n    model: maxtext_8B.yaml\n"
                           "    overrides:\n      ici_fsdp_parallelism: -1\n"
                           "      dcn_data_parallelism: -1\n      max_target_length: 8192\n"
                           "      per_device_batch_size: 4\n";
  const Result<Imported> imported =
      Import({recipe, defaults, model}, {.cluster = "h100-ib-400g", .gpus = 8});
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  const job::Workload& workload = imported->job.workloads.front();
  EXPECT_EQ(workload.plan.batch.global_batch, 32);
  EXPECT_EQ(workload.plan.batch.seq_len, 8192);
  EXPECT_TRUE(workload.plan.framework.model_type_states);
  EXPECT_EQ(workload.plan.memory.recompute, workload::Recompute::kFull);
  EXPECT_EQ(workload.model.parameters(), 8'030'261'248);
}

// What no recipe reads says what it looks like and what is known.
TEST(NotRead, IsNamedBySight) {
  const std::string arctic = ErrorOf("arctic.yaml", "type: sft\nmodel:\n  x: 1\ndata:\n  y: 2\n");
  EXPECT_THAT(arctic, HasSubstr("is no recipe that is known"));
  EXPECT_THAT(arctic, HasSubstr("ArcticTraining"));
  EXPECT_THAT(arctic, HasSubstr("known: nemo"));
  // Its tags are not what is wrong with it.
  EXPECT_THAT(
      ErrorOf("gpt2.yaml", "data: !include data.yaml\nmodel:\n  type: gpt2\ntrainer:\n  mp: f32\n"),
      HasSubstr("framework: levanter"));
}

}  // namespace
}  // namespace orrery::recipes
