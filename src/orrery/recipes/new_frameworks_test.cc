// LitGPT, OLMo, Automodel, verl, nanoGPT, InternEvo and torchtitan's Python: their own global
// batch, GPUs and parameters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "orrery/job/job.h"
#include "orrery/recipes/import.h"

namespace orrery::recipes {
namespace {

using testing::HasSubstr;

Result<Imported> ImportNew(const std::string& name, const std::string& text, Options options = {}) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / name;
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
  options.cluster = "h100-ib-400g";
  return Import({path.string()}, options);
}

std::string WrongNew(const std::string& name, const std::string& text, Options options = {}) {
  const Result<Imported> imported = ImportNew(name, text, std::move(options));
  return imported.ok() ? "" : std::string(imported.status().message());
}

constexpr const char* kTinyLlama =
    "model_name: tiny-llama-1.1b\nmodel_config:\nout_dir: out/pretrain\nprecision: bf16-mixed\n"
    "data: TinyLlama\ntrain:\n  global_batch_size: 512\n  micro_batch_size: 4\n"
    "  max_seq_length: 2048\n  max_norm: 1.0\n  max_tokens: 3000000000000\noptimizer:\n"
    "  class_path: torch.optim.AdamW\n  init_args:\n    lr: 4e-4\ndevices: auto\nnum_nodes: 1\n";

// config_hub/pretrain/tinyllama.yaml: 512 sequences of 2,048 tokens; TinyLlama has 1.1 billion
// parameters (1,100,048,384 in its model card).
TEST(Litgpt, TinyLlama) {
  const Result<Imported> imported = ImportNew("tinyllama.yaml", kTinyLlama, {.gpus = 64});
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->dialect, "litgpt");
  const job::Workload& workload = imported->job.workloads.front();
  EXPECT_EQ(workload.model.parameters(), 1'100'048'384);
  EXPECT_EQ(workload.plan.batch.global_batch, 512);
  EXPECT_EQ(workload.plan.batch.seq_len, 2048);
  EXPECT_EQ(workload.plan.memory.shard_group, 8);  // HYBRID_SHARD over eight hosts
  EXPECT_EQ(workload.plan.memory.recompute, workload::Recompute::kNone);
}

// config_hub/finetune/llama-2-7b/full.yaml: four GPUs, 64 sequences.
TEST(Litgpt, FullFineTuningOfLlama2) {
  const Result<Imported> imported = ImportNew(
      "full.yaml",
      "checkpoint_dir: checkpoints/meta-llama/Llama-2-7b-hf\nprecision: bf16-true\ndevices: 4\n"
      "num_nodes: 1\ndata:\n  class_path: litgpt.data.Alpaca2k\ntrain:\n  global_batch_size: 64\n"
      "  micro_batch_size: 4\n  max_seq_length: 512\n");
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  const job::Workload& workload = imported->job.workloads.front();
  EXPECT_EQ(workload.model.parameters(), 6'738'415'616);
  EXPECT_EQ(workload.plan.parallel.dp, 4);
  EXPECT_EQ(workload.plan.batch.global_batch, 64);
  EXPECT_EQ(workload.plan.memory.recompute, workload::Recompute::kFull);
}

TEST(Litgpt, ACommandSaysTheRest) {
  const Result<Imported> imported = ImportNew(
      "lora.sh",
      "#!/bin/bash\nlitgpt finetune_lora checkpoints/meta-llama/Meta-Llama-3-8B --devices 8 \\\n"
      "  --train.global_batch_size 64 --train.micro_batch_size 2 --train.max_seq_length 1024 \\\n"
      "  --lora_r 16 --lora_key true --lora_projection true\n");
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  const job::Workload& workload = imported->job.workloads.front();
  EXPECT_EQ(workload.plan.parallel.dp, 8);
  EXPECT_EQ(workload.plan.batch.global_batch, 64);
  EXPECT_EQ(workload.plan.lora.rank, 16);
}

// configs/official-1124/OLMo2-7B-stage1.yaml: OLMo 2 7B has 7,298,617,344 parameters
// (allenai/OLMo-2-1124-7B) and takes 4 million tokens a step.
constexpr const char* kOlmo2 =
    "run_name: OLMo2-7B\nmodel:\n  d_model: 4096\n  n_heads: 32\n  n_layers: 32\n"
    "  mlp_hidden_size: 22016\n  weight_tying: false\n  rope: true\n  flash_attention: true\n"
    "  attention_dropout: 0.0\n  attention_layer_norm: true\n  include_bias: false\n"
    "  block_type: sequential\n  layer_norm_type: rms\n  layer_norm_with_affine: true\n"
    "  activation_type: swiglu\n  residual_dropout: 0.0\n  embedding_dropout: 0.0\n"
    "  max_sequence_length: 4096\n  vocab_size: 100278\n  embedding_size: 100352\n"
    "  norm_after: true\ncompile: null\noptimizer:\n  name: adamw\n  learning_rate: 3.0e-4\n"
    "global_train_batch_size: 1024\ndevice_train_microbatch_size: 2\nprecision: amp_bf16\n"
    "fsdp:\n  wrapping_strategy: null\n  precision: mixed\nfused_loss: true\n"
    "activation_checkpointing: one_in_four\nmax_grad_norm: 1.0\n";

TEST(Olmo, Olmo2OfSevenBillion) {
  const Result<Imported> imported = ImportNew("OLMo2-7B.yaml", kOlmo2, {.gpus = 512});
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->dialect, "olmo");
  const job::Workload& workload = imported->job.workloads.front();
  EXPECT_EQ(workload.model.parameters(), 7'298'617'344);
  EXPECT_EQ(workload.plan.batch.global_batch * workload.plan.batch.seq_len, 4'194'304);
  EXPECT_EQ(workload.plan.memory.recompute_method, workload::RecomputeMethod::kEvery);
  EXPECT_EQ(workload.plan.memory.sharding, workload::Sharding::kZero3);
}

TEST(Olmo, WhatIsRefusedIsNamed) {
  std::string text = kOlmo2;
  text += "model_typo: 1\n";
  EXPECT_THAT(WrongNew("odd.yaml", text, {.gpus = 512}),
              HasSubstr("unknown argument 'model_typo'"));
  EXPECT_THAT(WrongNew("odd2.yaml", kOlmo2, {.gpus = 600}), HasSubstr("no multiple of 600 GPUs"));
}

// examples/llm_benchmark/deepseek/deepseek_v3_te_deepep.yaml: 32 hosts of eight.
constexpr const char* kAutomodel =
    "recipe: BenchmarkingRecipeForNextTokenPrediction\nseed: 1234\nbenchmark:\n"
    "  warmup_steps: 2\n  num_nodes: 32\nstep_scheduler:\n  global_batch_size: 256\n"
    "  local_batch_size: 4\n  max_steps: 12\ndistributed:\n  strategy: fsdp2\n  tp_size: 1\n"
    "  cp_size: 1\n  pp_size: 4\n  ep_size: 64\n  sequence_parallel: false\n"
    "  activation_checkpointing: true\n  pipeline:\n    pp_schedule: interleaved1f1b\n"
    "    pp_microbatch_size: 1\n    round_virtual_stages_to_pp_multiple: down\n"
    "    layers_per_stage: 2\n  moe:\n    reshard_after_forward: false\nmodel:\n"
    "  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_config\n  config:\n"
    "    _target_: transformers.AutoConfig.from_pretrained\n"
    "    pretrained_model_name_or_path: deepseek-ai/DeepSeek-V3\n  backend:\n"
    "    _target_: nemo_automodel.components.models.common.BackendConfig\n    attn: te\n"
    "    linear: te\n    dispatcher: hybridep\n    fake_balanced_gate: true\nloss_fn:\n"
    "  _target_: nemo_automodel.components.loss.masked_ce.MaskedCrossEntropy\ndataset:\n"
    "  _target_: nemo_automodel.components.datasets.llm.mock_iterable_dataset.Mock\n"
    "  seq_len: 4096\noptimizer:\n  _target_: torch.optim.Adam\n  lr: 0.0001\n";

TEST(Automodel, DeepSeekV3) {
  const Result<Imported> imported = ImportNew("deepseek.yaml", kAutomodel);
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->dialect, "automodel");
  const job::Workload& workload = imported->job.workloads.front();
  EXPECT_EQ(imported->job.ranks(), 256);
  EXPECT_EQ(workload.plan.parallel.dp, 64);
  EXPECT_EQ(workload.plan.parallel.ep, 64);
  EXPECT_EQ(workload.plan.parallel.vpp, 7);  // 31 chunks of two layers, rounded down to 28
  EXPECT_EQ(workload.plan.batch.micro_batch, 1);
  EXPECT_EQ(workload.plan.experts.dispatcher, workload::Dispatcher::kHybridEp);
  EXPECT_EQ(workload.plan.experts.routing, workload::Routing::kRoundRobin);
}

TEST(Automodel, AdaptersOfADenseModel) {
  const Result<Imported> imported = ImportNew(
      "peft.yaml",
      "recipe: TrainFinetuneRecipeForNextTokenPrediction\nstep_scheduler:\n"
      "  global_batch_size: 32\n  local_batch_size: 4\nmodel:\n"
      "  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained\n"
      "  pretrained_model_name_or_path: meta-llama/Llama-3.1-8B\npeft:\n"
      "  _target_: nemo_automodel.components._peft.lora.PeftConfig\n"
      "  target_modules: '*_proj'\n  dim: 16\n  alpha: 32\ndistributed:\n  strategy: fsdp2\n"
      "  dp_size: none\n  tp_size: 1\n  cp_size: 1\npacked_sequence:\n"
      "  packed_sequence_size: 4096\noptimizer:\n  _target_: torch.optim.AdamW\n",
      {.gpus = 8});
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  const job::Workload& workload = imported->job.workloads.front();
  EXPECT_EQ(workload.plan.lora.rank, 16);
  EXPECT_EQ(workload.plan.batch.seq_len, 4096);
  EXPECT_FALSE(workload.plan.framework.hold_units);
}

// examples/grpo_trainer/run_qwen2-7b.sh: 256 prompts of five answers an update.
TEST(Verl, AnUpdateOfTheActor) {
  const Result<Imported> imported = ImportNew(
      "run_qwen2-7b.sh",
      "#!/bin/bash\npython3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo \\\n"
      "  data.train_batch_size=1024 data.max_prompt_length=512 data.max_response_length=1024 \\\n"
      "  actor_rollout_ref.model.path=Qwen/Qwen2-7B-Instruct \\\n"
      "  actor_rollout_ref.actor.ppo_mini_batch_size=256 \\\n"
      "  actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=40 \\\n"
      "  actor_rollout_ref.model.enable_gradient_checkpointing=True \\\n"
      "  actor_rollout_ref.rollout.n=5 trainer.n_gpus_per_node=8 trainer.nnodes=1 $@\n");
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->dialect, "verl");
  const job::Workload& workload = imported->job.workloads.front();
  EXPECT_EQ(imported->job.ranks(), 8);
  EXPECT_EQ(workload.plan.batch.global_batch, 1280);
  EXPECT_EQ(workload.plan.batch.micro_batch, 40);
  EXPECT_EQ(workload.plan.batch.seq_len, 1536);
  EXPECT_EQ(workload.model.parameters(), 7'615'616'512);
  EXPECT_THAT(imported->job_text, HasSubstr("generation"));
}

// config/train_gpt2.py: 491,520 tokens an iteration; model.py counts 123.59 million parameters
// without the positions' 786,432.
TEST(NanoGpt, Gpt2) {
  const Result<Imported> imported = ImportNew(
      "train_gpt2.py",
      "# config for training GPT-2 (124M)\nwandb_log = True\nwandb_project = 'owt'\n\n"
      "# 12 batch size * 1024 block size * 5 gradaccum * 8 GPUs = 491,520\nbatch_size = 12\n"
      "block_size = 1024\ngradient_accumulation_steps = 5 * 8\n\nmax_iters = 600000\n"
      "weight_decay = 1e-1\n",
      {.gpus = 8});
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  const job::Workload& workload = imported->job.workloads.front();
  EXPECT_EQ(workload.plan.batch.global_batch * workload.plan.batch.seq_len, 491'520);
  EXPECT_NEAR(double(workload.model.parameters() - 786'432), 123.59e6, 0.05e6);
}

// configs/7B_internlm2.py: InternLM2 7B has 7,737,708,544 parameters (internlm/internlm2-7b).
TEST(InternEvo, InternLm2) {
  const Result<Imported> imported = ImportNew(
      "7B_internlm2.py",
      "JOB_NAME = \"7b\"\nmodel_type=\"INTERNLM2_PUBLIC\"\nVOCAB_SIZE = 92544\nSEQ_LEN = 2048\n"
      "HIDDEN_SIZE = 4096\nMLP_RATIO = 3.5\nckpt = dict(\n    enable_save_ckpt=False,  # no\n)\n"
      "data = dict(\n    seq_len=SEQ_LEN,\n    micro_num=4,\n    micro_bsz=2,\n)\n"
      "model = dict(\n    checkpoint=False,\n    num_chunks=1,\n    num_attention_heads=32,\n"
      "    vocab_size=VOCAB_SIZE,\n    hidden_size=HIDDEN_SIZE,\n    num_layers=32,\n"
      "    no_bias=True,\n    mlp_ratio=MLP_RATIO,\n    dtype=\"torch.bfloat16\",\n"
      "    norm_type=\"rmsnorm\",\n    num_kv_attention_heads=8,\n)\n\"\"\"\nzero1 "
      "parallel\n\"\"\"\n"
      "parallel = dict(\n    zero1=dict(size=8),\n    tensor=dict(size=1, mode=\"mtp\"),\n"
      "    pipeline=dict(size=1, interleaved_overlap=True),\n    weight=dict(size=1),\n)\n",
      {.gpus = 64});
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  const job::Workload& workload = imported->job.workloads.front();
  EXPECT_EQ(workload.model.parameters(), 7'737'708'544);
  EXPECT_EQ(workload.plan.batch.global_batch, 512);
  EXPECT_EQ(workload.plan.memory.shard_group, 8);
}

constexpr const char* kRegistry =
    "from torchtitan.config import ParallelismConfig, TrainingConfig\n"
    "from torchtitan.trainer import Trainer\n\n\ndef llama3_8b() -> Trainer.Config:\n"
    "    \"\"\"Eight billion.\"\"\"\n    model_spec = model_registry(\"8B\")\n"
    "    return Trainer.Config(\n        model_spec=model_spec,\n"
    "        optimizer=default_adamw(lr=3e-4),\n        training=TrainingConfig(\n"
    "            num_tokens_per_microbatch_per_dp_rank=1 * 8192,\n"
    "            max_context_length=8192,\n            steps=1000,\n        ),\n"
    "        activation_checkpoint=SelectiveAC.Config(),\n    )\n\n\n"
    "def llama3_8b_tp() -> Trainer.Config:\n    config = llama3_8b()\n"
    "    config.parallelism = ParallelismConfig(tensor_parallel_degree=8)\n"
    "    config.activation_checkpoint = FullAC.Config()\n    return config\n";

// models/llama3/config_registry.py of August 2026.
TEST(TorchtitanPython, AConfigurationByName) {
  const std::string path = "llama3/config_registry.py";
  const Result<Imported> plain =
      ImportNew(path, kRegistry, {.gpus = 64, .variables = {{"CONFIG", "llama3_8b"}}});
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  const job::Workload& workload = plain->job.workloads.front();
  EXPECT_EQ(workload.model.parameters(), 8'030'261'248);
  EXPECT_EQ(workload.plan.batch.seq_len, 8192);
  EXPECT_EQ(workload.plan.batch.global_batch, 64);
  const Result<Imported> tensor =
      ImportNew(path, kRegistry, {.gpus = 64, .variables = {{"CONFIG", "llama3_8b_tp"}}});
  ASSERT_TRUE(tensor.ok()) << tensor.status().message();
  EXPECT_EQ(tensor->job.workloads.front().plan.parallel.tp, 8);
  EXPECT_EQ(tensor->job.workloads.front().plan.memory.recompute, workload::Recompute::kFull);
  EXPECT_THAT(WrongNew(path, kRegistry, {.gpus = 64}),
              HasSubstr("2 configurations: llama3_8b, llama3_8b_tp; give --env CONFIG=NAME"));
}

// A value that no model takes is told by the file that says it.
TEST(Reading, AWrongValueIsToldByItsOwnLine) {
  const std::string text =
      "#!/bin/bash\ntorchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 2 \\\n"
      "  --hidden-size abc --num-attention-heads 4 --seq-length 128 --micro-batch-size 1 \\\n"
      "  --vocab-size 1024 --max-position-embeddings 128\n";
  EXPECT_THAT(WrongNew("abc.sh", text), HasSubstr("abc.sh:3: --hidden-size: model.hidden: "));
}

}  // namespace
}  // namespace orrery::recipes
