// LLaMA-Factory's version 1, VeOmni, Primus on Megatron Bridge, and the files of schedulers that
// wrap a training command. What is expected stands in the documents (examples/v1 of
// hiyouga/LLaMA-Factory, configs/text of ByteDance-Seed/VeOmni, examples/megatron_bridge of
// AMD-AGI/Primus, llm of skypilot-org/skypilot, mcli of mosaicml/llm-foundry).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "orrery/job/job.h"
#include "orrery/recipes/import.h"

namespace orrery::recipes {
namespace {

using testing::HasSubstr;

std::string Lay(const std::string& name, const std::string& text) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "sched" / name;
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
  return path.string();
}

Options Given(std::int64_t gpus, const std::string& cluster = "h100-ib-400g") {
  return {.cluster = cluster, .gpus = gpus};
}

const workload::Plan& PlanIn(const Result<Imported>& imported) {
  return imported->job.workloads.front().plan;
}

constexpr const char* kFactory =
    "model: Qwen/Qwen3-4B\nmodel_class: llm\nkernel_config:\n  name: auto\n"
    "train_dataset: data/v1_sft_demo.yaml\noutput_dir: out\nmicro_batch_size: 1\n"
    "cutoff_len: 2048\nlearning_rate: 1.0e-4\nmax_steps: 10\n";

TEST(LlamaFactoryV1, FullAndAdapters) {
  const Result<Imported> full =
      Import({Lay("full.yaml", std::string(kFactory) + "dist_config:\n  name: fsdp2\n  dcp_path: "
                                                       "null\nglobal_batch_size: 32\n")},
             Given(8));
  ASSERT_TRUE(full.ok()) << full.status().message();
  EXPECT_EQ(full->dialect, "llama-factory-v1");
  EXPECT_EQ(PlanIn(full).batch.global_batch, 32);
  EXPECT_EQ(PlanIn(full).batch.seq_len, 2048);
  EXPECT_EQ(PlanIn(full).memory.sharding, workload::Sharding::kZero3);
  EXPECT_EQ(PlanIn(full).memory.recompute, workload::Recompute::kFull);
  EXPECT_TRUE(PlanIn(full).framework.model_type_states);
  EXPECT_FALSE(PlanIn(full).framework.defer_grad_reduce);
  const Result<Imported> lora =
      Import({Lay("lora.yaml", std::string(kFactory) +
                                   "peft_config:\n  name: lora\n  r: 16\n  target_modules: all\n"
                                   "dist_config:\n  name: fsdp2\n")},
             Given(8));
  ASSERT_TRUE(lora.ok()) << lora.status().message();
  EXPECT_EQ(PlanIn(lora).lora.rank, 16);
  EXPECT_EQ(PlanIn(lora).batch.global_batch, 8);  // DP size times micro-batch
  const Result<Imported> cp =
      Import({Lay("cp.yaml", std::string(kFactory) +
                                 "flash_attn: flash_attention_2\ndist_config:\n  name: fsdp2\n"
                                 "cp_mode: ulysses\ncp_size: 2\n")},
             Given(8));
  ASSERT_TRUE(cp.ok()) << cp.status().message();
  EXPECT_EQ(PlanIn(cp).parallel.cp, 2);
  EXPECT_EQ(PlanIn(cp).parallel.dp, 4);
  // Without dist_config: DDP.
  const Result<Imported> ddp = Import({Lay("ddp.yaml", kFactory)}, Given(8));
  ASSERT_TRUE(ddp.ok()) << ddp.status().message();
  EXPECT_EQ(PlanIn(ddp).framework.reducer, workload::Reducer::kDdp);
  EXPECT_THAT(Import({Lay("freeze.yaml", std::string(kFactory) + "peft_config:\n  name: freeze\n")},
                     Given(8))
                  .status()
                  .message(),
              HasSubstr("'freeze' is not modelled; lora is"));
}

constexpr const char* kVeOmni =
    "model:\n  model_path: Qwen3-30B-A3B-merge\n  ops_implementation:\n"
    "    attn_implementation: flash_attention_2\n    moe_implementation: fused_triton\n"
    "data:\n  train_path: tulu-3-sft-mixture\n  data_type: conversation\n  max_seq_len: 2048\n"
    "train:\n  accelerator:\n    ulysses_size: 2\n    ep_size: 4\n    fsdp_config:\n"
    "      fsdp_mode: fsdp2\n      mixed_precision:\n        enable: true\n"
    "  gradient_checkpointing:\n    enable: true\n  global_batch_size: 8\n  micro_batch_size: 1\n"
    "  optimizer:\n    type: adamw\n    lr: 1.0e-4\n    max_grad_norm: 1.0\n";

TEST(VeOmni, ExpertsOverFsdp) {
  const Result<Imported> imported = Import({Lay("qwen3-moe.yaml", kVeOmni)}, Given(8));
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->dialect, "veomni");
  const workload::Plan& plan = PlanIn(imported);
  EXPECT_EQ(plan.parallel.cp, 2);
  EXPECT_EQ(plan.parallel.ep, 4);
  EXPECT_EQ(plan.parallel.dp, 4);
  EXPECT_EQ(plan.batch.global_batch, 8);
  EXPECT_EQ(plan.memory.sharding, workload::Sharding::kZero3);
  EXPECT_TRUE(plan.framework.chunked_loss);
  EXPECT_TRUE(plan.framework.grad_reduce_fp32);
  EXPECT_NEAR(imported->job.workloads.front().model.parameters() * 1e-9, 30.53, 0.05);
  std::string tp = kVeOmni;
  tp.replace(tp.find("ulysses_size: 2"), 15, "tp_size: 2     ");
  EXPECT_THAT(Import({Lay("tp.yaml", tp)}, Given(8)).status().message(),
              HasSubstr("no tensor parallelism yet"));
}

TEST(Schedulers, SkyPilotsTask) {
  const Result<Imported> imported = Import(
      {Lay("sky.yaml",
           "resources:\n  accelerators: H100:8\n  disk_tier: best\nnum_nodes: 2\nenvs:\n"
           "  MODEL: meta-llama/Llama-2-7b-hf\nrun: |\n"
           "  MASTER_ADDR=$(echo \"$SKYPILOT_NODE_IPS\" | head -n1)\n"
           "  torchrun --nnodes $SKYPILOT_NUM_NODES --nproc_per_node "
           "$SKYPILOT_NUM_GPUS_PER_NODE \\\n"
           "    --master_addr $MASTER_ADDR train.py --model_name_or_path $MODEL --output_dir out "
           "\\\n"
           "    --bf16 True --per_device_train_batch_size 2 --gradient_accumulation_steps 4 \\\n"
           "    --model_max_length 2048 --fsdp \"full_shard auto_wrap\"\n")},
      Given(0));
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->job.ranks(), 16u);
  EXPECT_EQ(PlanIn(imported).batch.global_batch, 2 * 4 * 16);
}

TEST(Schedulers, KubernetesManifest) {
  const std::string pods =
      "      template:\n        spec:\n          containers:\n            - name: pytorch\n"
      "              image: x\n              command: [torchrun]\n              args:\n"
      "                - train.py\n                - --model_name_or_path\n"
      "                - meta-llama/Llama-2-7b-hf\n                - --output_dir=out\n"
      "                - --bf16\n                - --per_device_train_batch_size=1\n"
      "                - --model_max_length=4096\n                - --fsdp=full_shard\n"
      "              resources:\n                limits:\n                  nvidia.com/gpu: 8\n";
  const Result<Imported> imported =
      Import({Lay("job.yaml",
                  "apiVersion: v1\nkind: ConfigMap\ndata: {}\n---\napiVersion: kubeflow.org/v1\n"
                  "kind: PyTorchJob\nmetadata:\n  name: x\nspec:\n  pytorchReplicaSpecs:\n"
                  "    Master:\n      replicas: 1\n" +
                      pods + "    Worker:\n      replicas: 3\n" + pods)},
             Given(0));
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->job.ranks(), 32u);
  EXPECT_EQ(PlanIn(imported).batch.seq_len, 4096);
}

// MosaicML's run carries LLM Foundry's configuration.
TEST(Schedulers, MosaicRun) {
  const Result<Imported> imported = Import(
      {Lay("mcli.yaml",
           "integrations:\n- integration_type: git_repo\n  git_repo: mosaicml/llm-foundry\n"
           "command: |\n  cd llm-foundry/scripts\n"
           "  composer train/train.py /mnt/config/parameters.yaml\nimage: x\n"
           "compute:\n  gpus: 16\nparameters:\n  variables:\n    max_seq_len: 2048\n"
           "  max_seq_len: 2048\n  model:\n    name: mpt_causal_lm\n    d_model: 2048\n"
           "    n_heads: 16\n    n_layers: 24\n    expansion_ratio: 4\n    vocab_size: 50368\n"
           "  optimizer:\n    name: decoupled_adamw\n  global_train_batch_size: 512\n"
           "  device_train_microbatch_size: 8\n  precision: amp_bf16\n"
           "  fsdp_config:\n    sharding_strategy: FULL_SHARD\n    mixed_precision: PURE\n")},
      Given(0));
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->job.ranks(), 16u);
  EXPECT_EQ(PlanIn(imported).batch.global_batch, 512);
}

TEST(Primus, OnMegatronBridge) {
  const std::string recipe = Lay(
      "primus/qwen3_32b_lora.yaml",
      "modules:\n  post_trainer:\n    framework: megatron_bridge\n    config: sft_trainer.yaml\n"
      "    model: qwen3_32b.yaml\n    overrides:\n      tensor_model_parallel_size: 2\n"
      "      pipeline_model_parallel_size: 1\n      context_parallel_size: 1\n"
      "      sequence_parallel: false\n      peft: lora\n      packed_sequence: false\n"
      "      global_batch_size: 32\n      micro_batch_size: 2\n      seq_length: 8192\n"
      "      precision_config: bf16_mixed\n      recompute_granularity: full\n"
      "      recompute_method: uniform\n      recompute_num_layers: 1\n");
  const std::string model =
      Lay("primus/qwen3_32b.yaml",
          "recipe: qwen.qwen3\nflavor: qwen3_32b_finetune_config\nhf_path: Qwen/Qwen3-32B\n");
  const std::string trainer =
      Lay("primus/sft_trainer.yaml", "stage: sft\nenable_primus_turbo: true\n");
  const Result<Imported> imported = Import({recipe, model, trainer}, Given(8));
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->dialect, "primus");
  EXPECT_EQ(PlanIn(imported).parallel.tp, 2);
  EXPECT_EQ(PlanIn(imported).batch.global_batch, 32);
  EXPECT_EQ(PlanIn(imported).batch.seq_len, 8192);
  EXPECT_EQ(PlanIn(imported).memory.recompute, workload::Recompute::kFull);
  EXPECT_GT(PlanIn(imported).lora.rank, 0);
  EXPECT_NEAR(imported->job.workloads.front().model.parameters() * 1e-9, 32.76, 0.1);
}

constexpr const char* kOlmo =
    "from functools import partial\nfrom olmo_core.internal.experiment import CommonComponents\n"
    "SEQUENCE_LENGTH = 8192\nGLOBAL_BATCH_SIZE = 4 * 1024 * 1024\n\n"
    "def build_model_config(common: CommonComponents) -> TransformerConfig:\n"
    "    config = TransformerConfig.olmo3_7B(\n"
    "        vocab_size=common.tokenizer.padded_vocab_size(),\n"
    "        attn_backend=AttentionBackendName.flash_2,\n    )\n    return config\n\n"
    "def build_train_module_config(common: CommonComponents) -> TransformerTrainModuleConfig:\n"
    "    rank_microbatch_size = common.max_sequence_length\n"
    "    return TransformerTrainModuleConfig(\n"
    "        rank_microbatch_size=2 * rank_microbatch_size,\n"
    "        max_sequence_length=common.max_sequence_length,\n"
    "        optim=SkipStepAdamWConfig(lr=3e-4, betas=(0.9, 0.95)),\n"
    "        compile_model=True,\n        dp_config=TransformerDataParallelConfig(\n"
    "            name=DataParallelType.hsdp,\n            param_dtype=DType.bfloat16,\n"
    "            reduce_dtype=DType.float32,\n"
    "            wrapping_strategy=TransformerDataParallelWrappingStrategy.blocks,\n        ),\n"
    "        ac_config=TransformerActivationCheckpointingConfig(\n"
    "            TransformerActivationCheckpointingMode.full\n        ),\n"
    "        z_loss_multiplier=1e-5,\n        max_grad_norm=1.0,\n"
    "        scheduler=CosWithWarmup(warmup_steps=2000),\n    )\n\n"
    "if __name__ == \"__main__\":\n    config_builder = partial(\n        build_config,\n"
    "        global_batch_size=GLOBAL_BATCH_SIZE,\n        max_sequence_length=SEQUENCE_LENGTH,\n"
    "        model_config_builder=build_model_config,\n    )\n";

// src/scripts/train/OLMo3/OLMo3-7B.py of OLMo-core: 4 Mi tokens a step, shards over a host.
TEST(OlmoCore, ScriptOfDataclasses) {
  const Result<Imported> imported = Import({Lay("OLMo3-7B.py", kOlmo)}, Given(64));
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->dialect, "olmo-core");
  const workload::Plan& plan = PlanIn(imported);
  EXPECT_EQ(plan.batch.seq_len, 8192);
  EXPECT_EQ(plan.batch.micro_batch, 2);
  EXPECT_EQ(plan.batch.global_batch, 512);
  EXPECT_EQ(plan.memory.shard_group, 8);
  EXPECT_EQ(plan.memory.recompute, workload::Recompute::kFull);
  EXPECT_TRUE(plan.framework.defer_all_reduce);
  EXPECT_NEAR(imported->job.workloads.front().model.parameters() * 1e-9, 7.30, 0.02);
}

constexpr const char* kTrl =
    "import torch\nfrom trl import SFTConfig, SFTTrainer\nmodel_id = \"meta-llama/Llama-2-7b-hf\"\n"
    "max_len = 2048\n\ndef main():\n    bnb = BitsAndBytesConfig(load_in_4bit=True,\n"
    "        bnb_4bit_quant_type=\"nf4\", bnb_4bit_use_double_quant=True)\n"
    "    model = AutoModelForCausalLM.from_pretrained(model_id, quantization_config=bnb,\n"
    "        attn_implementation=\"flash_attention_2\", torch_dtype=torch.bfloat16)\n"
    "    tokenizer = AutoTokenizer.from_pretrained(model_id)\n"
    "    peft_config = LoraConfig(r=64, lora_alpha=16, lora_dropout=0.05, bias=\"none\",\n"
    "        task_type=\"CAUSAL_LM\", target_modules=[\"q_proj\", \"k_proj\", \"v_proj\", "
    "\"o_proj\"])\n"
    "    args = SFTConfig(output_dir=\"out\", per_device_train_batch_size=4,\n"
    "        gradient_accumulation_steps=2, gradient_checkpointing=True, bf16=True,\n"
    "        optim=\"paged_adamw_8bit\", max_length=max_len, num_train_epochs=1)\n"
    "    SFTTrainer(model=model, args=args, peft_config=peft_config).train()\n";

TEST(TrainerPython, CallsThatMakeAConfiguration) {
  const Result<Imported> imported = Import({Lay("sft.py", kTrl)}, Given(1));
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->dialect, "trainer-python");
  const workload::Plan& plan = PlanIn(imported);
  EXPECT_EQ(plan.lora.rank, 64);
  EXPECT_EQ(plan.lora.base, workload::BaseWeights::kNf4);
  EXPECT_TRUE(plan.lora.double_quantization);
  EXPECT_EQ(plan.batch.global_batch, 8);
  EXPECT_EQ(plan.batch.seq_len, 2048);
  EXPECT_EQ(plan.memory.recompute, workload::Recompute::kFull);
  std::string dpo = kTrl;
  dpo.replace(dpo.find("args = SFTConfig("), 17, "args = DPOConfig(");
  EXPECT_THAT(Import({Lay("dpo.py", dpo)}, Given(1)).status().message(),
              HasSubstr("training by preferences or rewards is not modelled"));
}

// Unsloth: one GPU, 4 bits, checkpoints that leave for the host.
TEST(TrainerPython, UnslothsNotebook) {
  const Result<Imported> imported = Import(
      {Lay(
          "llama.ipynb",
          "{\"cells\": [{\"cell_type\": \"markdown\", \"source\": [\"# x\"]},\n"
          "{\"cell_type\": \"code\", \"source\": [\"%%capture\\n\", \"!pip install unsloth\"]},\n"
          "{\"cell_type\": \"code\", \"source\": [\"max_seq_length = 2048\\n\",\n"
          "\"model, tokenizer = FastLanguageModel.from_pretrained(\\n\",\n"
          "\"    model_name = \\\"unsloth/Meta-Llama-3.1-8B-bnb-4bit\\\",\\n\",\n"
          "\"    max_seq_length = max_seq_length,\\n\", \"    load_in_4bit = True,\\n\", \")\"]},\n"
          "{\"cell_type\": \"code\", \"source\": [\"model = "
          "FastLanguageModel.get_peft_model(\\n\",\n"
          "\"    model,\\n\", \"    r = 16, # Choose any number > 0 !\\n\",\n"
          "\"    target_modules = [\\\"q_proj\\\", \\\"k_proj\\\", \\\"v_proj\\\", "
          "\\\"o_proj\\\",\\n\",\n"
          "\"                      \\\"gate_proj\\\", \\\"up_proj\\\", \\\"down_proj\\\",],\\n\",\n"
          "\"    use_gradient_checkpointing = \\\"unsloth\\\",\\n\", \")\"]},\n"
          "{\"cell_type\": \"code\", \"source\": [\"trainer = SFTTrainer(\\n\",\n"
          "\"    model = model, args = SFTConfig(\\n\",\n"
          "\"        per_device_train_batch_size = 2,\\n\", \"        gradient_accumulation_steps "
          "= 4,\\n\",\n"
          "\"        optim = \\\"adamw_8bit\\\", output_dir = \\\"outputs\\\",\\n\", \"    "
          "),\\n\", \")\"]}]}\n")},
      Given(0));
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->job.ranks(), 1u);
  const workload::Plan& plan = PlanIn(imported);
  EXPECT_EQ(plan.lora.rank, 16);
  EXPECT_EQ(plan.lora.base, workload::BaseWeights::kNf4);
  EXPECT_EQ(plan.batch.global_batch, 8);
  EXPECT_TRUE(plan.memory.offload_activations);
}

// marimo's notebooks, as unslothai/notebooks has them in molab: a cell is a function.
TEST(TrainerPython, MarimosNotebook) {
  const Result<Imported> imported = Import(
      {Lay("gemma.py",
           "import marimo\napp = marimo.App()\n\n\n@app.cell(hide_code=True)\ndef _(mo):\n"
           "    mo.md(r\"\"\"\n    ### Unsloth\n    \"\"\")\n    return\n\n\n"
           "@app.cell\ndef _():\n    from unsloth import FastLanguageModel\n"
           "    max_seq_length = 2048  # Choose any!\n"
           "    model, tokenizer = FastLanguageModel.from_pretrained(\n"
           "        model_name=\"unsloth/Meta-Llama-3.1-8B\",\n"
           "        max_seq_length=max_seq_length,\n        load_in_4bit=True,\n    )\n"
           "    return (\n        max_seq_length,\n        model,\n    )\n\n\n"
           "@app.cell\ndef _(FastLanguageModel, model):\n"
           "    model_1 = FastLanguageModel.get_peft_model(\n        model,\n        r=16,\n"
           "        target_modules=[\"q_proj\", \"k_proj\", \"v_proj\", \"o_proj\"],\n    )\n"
           "    return (model_1,)\n\n\n@app.cell\ndef _(\n    max_seq_length,\n    model_1,\n):\n"
           "    trainer = SFTTrainer(\n        model=model_1,\n"
           "        max_seq_length=max_seq_length,\n        args=SFTConfig(\n"
           "            per_device_train_batch_size=2,\n"
           "            gradient_accumulation_steps=4,\n        ),\n    )\n    return\n")},
      Given(0));
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(PlanIn(imported).batch.seq_len, 2048);
  EXPECT_EQ(PlanIn(imported).batch.global_batch, 8);
  EXPECT_EQ(PlanIn(imported).lora.rank, 16);
}

// examples/scripts/train_sft.sh of OpenRLHF, whose command is a here document.
TEST(OpenRlhf, TrainSft) {
  const std::string script =
      "set -x\nread -r -d '' training_commands <<EOF\nopenrlhf.cli.train_sft \\\n"
      "   --data.max_len 2048 \\\n   --data.dataset Open-Orca/OpenOrca \\\n"
      "   --train.batch_size 256 \\\n   --train.micro_batch_size 2 \\\n"
      "   --model.model_name_or_path meta-llama/Meta-Llama-3-8B \\\n"
      "   --ckpt.output_dir ./checkpoint/llama3-8b-sft \\\n   --ds.zero_stage 2 \\\n"
      "   --ds.param_dtype bf16 \\\n   --ds.attn_implementation flash_attention_2 \\\n"
      "   --adam.lr 5e-6 \\\n   --ckpt.load_enable \\\n   --ds.packing_samples \\\n"
      "   --model.gradient_checkpointing_enable\nEOF\n"
      "if [[ ${1} != \"slurm\" ]]; then\n    deepspeed --module $training_commands\nfi\n";
  const Result<Imported> imported = Import({Lay("train_sft.sh", script)}, Given(0));
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->dialect, "openrlhf");
  EXPECT_EQ(imported->job.ranks(), 8u);  // all of a host
  EXPECT_EQ(PlanIn(imported).batch.global_batch, 256);
  EXPECT_EQ(PlanIn(imported).batch.micro_batch, 2);
  EXPECT_EQ(PlanIn(imported).memory.sharding, workload::Sharding::kZero2);
  EXPECT_EQ(PlanIn(imported).memory.recompute, workload::Recompute::kFull);
}

// scripts/run-qwen3-4B.sh of slime: an update of the actor.
TEST(Slime, AnUpdateOfItsActor) {
  const std::string script =
      "MODEL_ARGS=(--swiglu --num-layers 36 --hidden-size 2560 --ffn-hidden-size 9728 "
      "--num-attention-heads 32 --group-query-attention --num-query-groups 8 --kv-channels 128 "
      "--use-rotary-position-embeddings --disable-bias-linear --normalization RMSNorm "
      "--qk-layernorm --vocab-size 151936)\n"
      "ROLLOUT_ARGS=(--rollout-batch-size 32 --n-samples-per-prompt 8 "
      "--rollout-max-response-len 8192 --global-batch-size 256 --balance-data)\n"
      "PERF_ARGS=(--tensor-model-parallel-size 2 --sequence-parallel "
      "--use-dynamic-batch-size --max-tokens-per-gpu 16384)\n"
      "SGLANG_ARGS=(--rollout-num-gpus-per-engine 2 --sglang-mem-fraction-static 0.7)\n"
      "ray job submit --address=\"http://127.0.0.1:8265\" -- python3 train.py "
      "--actor-num-nodes 1 --actor-num-gpus-per-node 8 --colocate ${MODEL_ARGS[@]} "
      "${ROLLOUT_ARGS[@]} ${PERF_ARGS[@]} ${SGLANG_ARGS[@]} --attention-dropout 0.0 "
      "--hidden-dropout 0.0 --attention-backend flash\n";
  const Result<Imported> imported = Import({Lay("run-qwen3-4B.sh", script)}, Given(0));
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->dialect, "slime");
  EXPECT_EQ(imported->job.ranks(), 8u);
  EXPECT_EQ(PlanIn(imported).batch.global_batch, 256);
  EXPECT_EQ(PlanIn(imported).batch.seq_len, 8192);
  EXPECT_EQ(PlanIn(imported).batch.micro_batch, 2);  // 16,384 tokens
}

TEST(HyperPod, FineTuningRecipe) {
  const Result<Imported> imported = Import(
      {Lay("llmft.yaml",
           "display_name: x\ninstance_types:\n- ml.p5.48xlarge\nrun:\n"
           "  model_type: llm_finetuning_aws\n  name: llama-3-1-8b-instruct\ntrainer:\n"
           "  devices: 8\n  num_nodes: 1\ntraining_config:\n  model_config:\n"
           "    attn_implementation: sdpa\n"
           "    model_name_or_path: meta-llama/Llama-3.1-8B-Instruct\n    peft_config: null\n"
           "  training_args:\n    gradient_checkpointing: true\n    gradient_clipping: true\n"
           "    max_len: 4096\n    micro_train_batch_size: 1\n    strategy:\n      fsdp_config:\n"
           "        auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
           "        backward_prefetch: BACKWARD_PRE\n        cpu_offload: false\n"
           "        sharding_strategy: FULL_SHARD\n    train_batch_size: 8\n    trainer_type: "
           "sft\n")},
      Given(0));
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->dialect, "hyperpod");
  EXPECT_EQ(imported->job.ranks(), 8u);
  EXPECT_EQ(PlanIn(imported).batch.global_batch, 8);
  EXPECT_EQ(PlanIn(imported).memory.sharding, workload::Sharding::kZero3);
  EXPECT_EQ(PlanIn(imported).memory.recompute, workload::Recompute::kFull);
}

// 3.test_cases/pytorch/FSDP of AWS's awsome-distributed-training: Mixtral in a Slurm script.
TEST(AwsFsdp, SlurmScript) {
  const Result<Imported> imported = Import(
      {Lay("mixtral.sbatch",
           "#!/bin/bash\n#SBATCH --nodes=4\nGPUS_PER_NODE=8\n"
           "declare -a TORCHRUN_ARGS=(\n    --nproc_per_node=$GPUS_PER_NODE\n"
           "    --nnodes=$SLURM_JOB_NUM_NODES\n    --rdzv_endpoint=$(hostname)\n)\n"
           "export TRAIN_SCRIPT=${TRAIN_SCRIPT:=../src/train.py}\n"
           "declare -a TRAINING_ARGS=(\n    --train_batch_size=1 \\\n    --max_context_width=8192\n"
           "    --num_key_value_heads=8\n    --vocab_size=32000\n    --hidden_width=4096\n"
           "    --intermediate_size=14336\n    --num_layers=32\n    --num_heads=32\n"
           "    --model_type=mixtral\n    --limit_all_gathers=1\n    --sharding_strategy=full\n)\n"
           "srun -l torchrun \"${TORCHRUN_ARGS[@]}\" $TRAIN_SCRIPT \"${TRAINING_ARGS[@]}\"\n")},
      Given(32));
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->dialect, "aws-fsdp");
  EXPECT_EQ(PlanIn(imported).batch.global_batch, 32);
  EXPECT_EQ(PlanIn(imported).memory.sharding, workload::Sharding::kZero3);
  EXPECT_NEAR(imported->job.workloads.front().model.parameters() * 1e-9, 46.7, 0.1);
}

}  // namespace
}  // namespace orrery::recipes
