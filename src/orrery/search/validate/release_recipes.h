// What a row of measured runs leaves blank, as the scripts of its own release set it: by whose
// scripts they are, release, model, GPU and precision.
//
// Sources, by Scripts:
//   kNemo, kMaxText: github.com/NVIDIA/dgxc-benchmarking, tags v24.11.1 to v25.05.05: launch.sh,
//     configure.sh and the YAML files of each model (NVTE_FUSED_ATTN,
//     activations_checkpoint_granularity, moe_pad_expert_input_to_capacity, hidden_dropout,
//     CUDA_GRAPH, RM, ET, defer_embedding_wgrad_compute with wgrad_deferral_limit), MaxText's
//     remat_policy and dcn_fsdp_parallelism; NVIDIA/NeMo v2.3.1, nemo/collections/llm/recipes, and
//     its scripts/performance/llm at the commits that v25.05.05 installs
//     (MegatronTokenDropCallback; collections/llm/gpt/model/ssm.py, whose SSMConfig leaves
//     gradient_accumulation_fusion off). enable_vboost=True: llama3/finetuning of v25.02.02, all of
//     NeMo 2 in v25.04.02 (Llama, Nemotron; Grok there is NeMo 1) and in v25.05.05's commits of
//     NeMo. FW_VERSION there is NeMo's container 25.04.01 (CUDA 12).
//     NeMo 2's recipes of LoRA turn cross_entropy_loss_fusion off, as Megatron Bridge's before v0.4
//     and MLPerf's do; GPT-3's and Grok's YAML files of NeMo 1 leave it off, Nemotron4-15B's
//     of v25.02 grad_sync_dtype (then fp32: NeMo r2.0.0rc1, megatron_gpt_model.py).
//   kLauncher: github.com/NVIDIA/NeMo-Framework-Launcher, tag 24.07, examples/training/*/h100/
//     *_fp8.sh and launcher_scripts/conf/training: none sets fp8_params (those of examples/peft
//     do), Nemotron's leave grad_sync_dtype out, Llama 2's and GPT-3's cross_entropy_loss_fusion
//     off; gpt3/5b.yaml has dropout. GPT3-175B's row has another plan than gpt3/175b.yaml, whose
//     dropout is not taken to hold for it.
//   kPaxml: dgxc-benchmarking's paxml/configure.sh and paxml_mod_configs.py (CHECKPOINT_POLICY,
//     DCN_MESH_SHAPE, xla_gpu_enable_while_loop_double_buffering=false, ENABLE_TE). Transformer
//     Engine 1.4, jax/flax/module.py, adds biases apart from its products, whose outputs are kept
//     as they are (SAVE_DOT_ONLY); 175B keeps them with their bias, an epilogue in 8 bits. It casts
//     weights that have been gathered.
//   kJaxToolbox: google/paxml, contrib/gpu/scripts_gpu/configs.py (CHECKPOINT_POLICY; layers that
//     are not repeated are neither scanned nor recomputed); "(TE)" in `precision` is Transformer
//     Engine, the other row is XLA's own kernels, which add biases where they read.
//   kTorchtitan: rows without a version are torchao's (docs/source/workflows/training.md). On H100
//     those ran torchtitan 0.0.2 with torchao of February 2025 (890e0ac): pytorch/torchtitan
//     d1f62be to bbb1b61, 20 February to 2 April 2025, compile layers, not the loss
//     (components/loss.py). Others go by measured_date; before 6e49885 (24 February 2025) AdamW was
//     not fused.
//   kSc21: NVIDIA/Megatron-LM, examples/sc21/run_table_1.sh (August 2021: MBS, DDP), the runs of
//     Narayanan et al.'s Table 1. Its README of January 2021 has the same models on as many GPUs
//     with the same batches and no scripts: taken to have had the same micro-batches.
//   kMlperf: github.com/mlcommons/training_results_v5.1: configurations of 8B take in
//     config_common_cg.sh, and of 405B TP_PP_DP_MAPPING=True and of both FP8_RECIPE=tensorwise in
//     config_common.sh, which also defers but where config_common_cg.sh says not (Blackwell's
//     405B). LoRA's graphs reach over the iteration unless told
//     (megatron_gpt_peft_tuning_config.yaml; a layer in v5.0's). Neither logs each step:
//     LOG_EVERY_N_STEPS=32 (8B), log_every_n_steps=0 (LoRA's train.py, v5.0 and v5.1). Cisco's 8B
//     on H100 has an older config_common.sh, with neither, and MCORE_CUDA_GRAPH=False. VBOOST_VALUE
//     of v4.0 and v4.1: 1 in NVIDIA's GPT-3 on 512 H100 (config_DGXH100_64x8x128x4x8_mbs2.sh and
//     NVIDIA's blog on v4.0), else 0 or not set.
//   kModelZoo: github.com/yanring/Megatron-MoE-ModelZoo: every one sets
//     --expert-tensor-parallel-size 1, --overlap-grad-reduce, --cross-entropy-fusion-impl te.
//   kBridge: github.com/NVIDIA-NeMo/Megatron-Bridge, scripts/performance (run_script.py and the
//     YAML files of v0.1.0rc4 for container 25.09, workload_base_configs.py of v0.2.0 for 25.11),
//     later src/megatron/bridge/perf_recipes (v0.5.0 and v0.6.0 for 26.06 and 26.08);
//     configs/nemotronh/te_quant.cfg (v0.4.0 and later), which also has mxfp8 for Mamba's
//     projection out; gpt_oss_llm_pretrain.py; moe_flex_dispatcher_backend of v0.2.0, v0.3.0,
//     v0.3.1, v0.4.0, v0.5.1 and v0.6.0; recipes/llama of v0.1.0rc4, which defers (later
//     releases in fine-tuning only). All of them reduce gradients in 16 bits.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "orrery/search/validate/configuration.h"
#include "orrery/workload/plan.h"

namespace orrery::search {

// A member counts where the row's columns do not say; as it stands here, the release sets nothing
// and the framework's default holds.
struct ReleaseRecipe {
  // Passes.
  std::string_view recompute = {};  // modules of selective recompute
  // Of full recompute; kNothing: the framework's own.
  workload::RecomputeKeeps keeps = workload::RecomputeKeeps::kNothing;
  bool recomputes = true;     // false: layers keep everything
  bool scans = true;          // JAX: layers are a loop
  bool bias_kernels = false;  // biases of products are kernels of their own
  // JAX: what a loop's pipelined collectives carry to the next layer is copied.
  bool copies_carried = false;
  bool fused_attention = true;  // Transformer Engine may take cuDNN's; else flash attention 2
  workload::CudaGraphs graphs = workload::CudaGraphs::kNone;
  bool quiet_loop = false;              // workload::Plan::quiet_loop
  bool whole_graphs = false;            // graphs whose reach is not said are of the iteration
  bool squared_relu_operators = false;  // not compiled
  bool adds_weight_gradients = false;   // by kernels of their own: gradient_accumulation_fusion off
  bool compiles_loss = true;            // where layers are compiled
  bool plain_loss = false;              // cross_entropy_loss_fusion left off
  bool adam_operators = false;          // torch.optim.AdamW's foreach, an operator a kernel
  double gpt_dropout = 0;               // hidden and of attention
  // Gradients reduced and parameters gathered beside the passes, Transformer Engine's cross
  // entropy.
  bool overlaps_and_fuses = false;
  // Micro-batches whose weight gradients of the output layer wait for the end of the last stage's
  // passes.
  std::int64_t deferred_head = 0;

  // The machine.
  bool vboost = false;  // power steered to the SMs (enable_vboost, VBOOST_VALUE)
  int cuda = 0;         // major version of its container's CUDA; 0: not known

  std::int64_t micro_batch = 0;
  bool torch_ddp = false;  // gradients reduced beside the last backward pass (--DDP-impl torch)

  // Ranks.
  bool dp_last = false;  // ranks of a replica side by side (use_tp_pp_dp_mapping)
  int shard_hosts = 0;   // FSDP over so many neighbouring hosts; 0: over all
  int shard_from = 0;    // from so many hosts on

  // Experts.
  int etp = 0;
  bool drops = false;  // every expert padded to its mean (capacity factor 1)
  std::optional<workload::Dispatcher> dispatcher = {};
  bool router_operators = false;  // moe_router_fusion left off
  bool fused_mlp = false;         // experts' activation and casts in their GEMMs
  // Where cuda_graphs and ep_overlap are both blank: graphs of parts, and exchanges beside another
  // micro-batch.
  workload::CudaGraphs expert_graphs = workload::CudaGraphs::kNone;
  bool ep_overlap = false;
  bool delays_weights = false;  // with ep_overlap (delay_wgrad_compute)
  std::uint8_t graph_scope = workload::kGraphAll;

  // Precision.
  std::optional<bool> reduces_fp32 = {};  // gradients
  bool gathers_16_bits = false;           // parameters, beside fp8
  bool current = false;                   // fp8 by current scaling
  bool fp8_attention = false, fp8_output_layer = false;
  std::int64_t bf16_last_layers = 0;
  std::uint8_t bf16_modules = 0;  // bits of workload::Bf16Module
};

// What the row's release sets; the members' defaults where none is known.
ReleaseRecipe FindReleaseRecipe(const Configuration& row);

}  // namespace orrery::search
