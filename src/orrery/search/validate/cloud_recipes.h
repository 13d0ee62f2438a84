// What a row of NVIDIA's DGX Cloud benchmarking, of MLPerf or of Megatron's MoE model zoo leaves
// blank: what that release's own scripts set, by framework, model and GPU.
//
// Source: github.com/NVIDIA/dgxc-benchmarking, tags v24.11.1 to v25.05.05: launch.sh, configure.sh
// and the YAML files of each model (NVTE_FUSED_ATTN, activations_checkpoint_granularity,
// moe_pad_expert_input_to_capacity, hidden_dropout, CUDA_GRAPH, RM, ET), MaxText's remat_policy and
// dcn_fsdp_parallelism. Paxml's (CHECKPOINT_POLICY, DCN_MESH_SHAPE) are left out: with them its
// rows, too fast already, are 1 to 6 points faster still, so something else of it is not known.
// github.com/mlcommons/training_results_v5.1: configurations of 8B take in config_common_cg.sh,
// and of 405B TP_PP_DP_MAPPING=True and of both FP8_RECIPE=tensorwise in config_common.sh.
// github.com/yanring/Megatron-MoE-ModelZoo: every one sets
// --expert-tensor-parallel-size 1, --overlap-grad-reduce, --cross-entropy-fusion-impl te.
#pragma once

#include <cstdint>
#include <string_view>

#include "orrery/search/validate/configuration.h"
#include "orrery/workload/plan.h"

namespace orrery::search {

struct CloudRecipe {
  int from = 0, to = 0;             // releases as year and month, 2411
  std::string_view framework;       // begins the row's
  std::string_view model;           // begins the row's
  std::string_view gpus;            // "a|b": one of them begins the row's
  std::string_view precision;       // begins the row's compute type; empty: any
  bool fused_attention = true;      // Transformer Engine may take cuDNN's; else flash attention 2
  std::string_view recompute = {};  // modules of selective recompute; empty: none
  workload::CudaGraphs graphs = workload::CudaGraphs::kNone;
  bool dp_last = false;                 // ranks of a replica side by side (use_tp_pp_dp_mapping)
  bool current = false;                 // fp8 by current scaling
  double gpt_dropout = 0;               // hidden and of attention; 0: the framework's
  int etp = 0;                          // 0: not set
  bool squared_relu_operators = false;  // not compiled
  bool drops = false;                   // every expert padded to its mean (capacity factor 1)
  // Of full recompute; kNothing: the framework's own.
  workload::RecomputeKeeps keeps = workload::RecomputeKeeps::kNothing;
  int shard_hosts = 0;  // FSDP over so many neighbouring hosts; 0: over all
  int shard_from = 0;   // from so many hosts on
  // Gradients reduced and parameters gathered beside the passes, Transformer Engine's cross
  // entropy.
  bool overlaps_and_fuses = false;
};
// The row's recipe; one that sets nothing where none is known.
const CloudRecipe& FindCloudRecipe(const Configuration& row);
// Micro-batches whose weight gradients of the output layer wait for the end of the last stage's
// passes (defer_embedding_wgrad_compute with wgrad_deferral_limit), as the recipes of NeMo, MLPerf
// and Megatron Bridge set them by model; 0: none. Sources: the same YAML files; NVIDIA/NeMo v2.3.1,
// nemo/collections/llm/recipes; training_results_v5.1, llama31_405b's config_common.sh; Megatron
// Bridge v0.1.0rc4, recipes/llama (later releases defer in fine-tuning only).
std::int64_t DeferredHead(const Configuration& row);

}  // namespace orrery::search
