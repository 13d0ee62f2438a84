// What a training framework does when nobody says: one row per framework and version.
//
// A row is data, read twice: a job file takes from it what its `framework_options` leave out, and
// the table of measured runs what a record leaves blank (search/validate/frameworks.h). Sources:
// the frameworks' own argument parsers, recipes and code of that version.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "orrery/base/status.h"
#include "orrery/cluster/cluster.h"
#include "orrery/memory/memory.h"
#include "orrery/workload/host_work.h"
#include "orrery/workload/plan.h"

namespace orrery::job {

// kTorch: scaled_dot_product_attention as torchtitan sets it, flash attention 2 and, on Blackwell,
// cuDNN's (its models/attention.py). kLibrary: Transformer Engine's choice on the device, cuDNN's
// fused attention on Hopper and later and flash attention 2 before.
enum class AttentionDefault : std::uint8_t { kUnfused, kFlash1, kFlash2, kTorch, kLibrary };
workload::AttentionBackend AttentionOn(cluster::Arch arch, AttentionDefault attention);
struct FrameworkDefaults;
// The same for a model's heads. cuDNN trains heads of at most 128 on Blackwell, and DeepSeek's 192
// and 128 from Transformer Engine 2.5 on; else Transformer Engine takes flash attention 2, or,
// where queries and values differ in width, PyTorch's operators (TransformerEngine v2.3 and v2.13:
// fused_attn.cpp, nvte_get_fused_attn_backend; dot_product_attention/utils.py).
workload::AttentionBackend AttentionFor(const FrameworkDefaults& defaults, cluster::Arch arch,
                                        const workload::Model& model);

// kEager: Megatron's own operators on fp32 logits; kFused: the same, compiled; kOnline: on 16-bit
// logits, gradients over them; kTorch: PyTorch's own.
enum class LossDefault : std::uint8_t { kEager, kFused, kOnline, kTorch };

// Buffers to which weight-gradient GEMMs add.
enum class WeightGradientFusion : std::uint8_t { kNone, kFp32, kAny };

struct FrameworkDefaults {
  AttentionDefault attention = AttentionDefault::kUnfused;
  bool fused_latent_blackwell = false;  // Transformer Engine 2.5 and later
  bool squared_relu_operators = false;  // squared ReLU as PyTorch's operators, not compiled
  bool dp_overlap = false;              // gradient reduction, and parameter gathering of ZeRO-1
  bool overlap_p2p = true;              // interleaved schedule only
  bool tp_comm_overlap = false;         // with sequence parallelism, where it can; not with nvfp4
  bool grad_reduce_fp32 = true;         // of bf16 runs
  bool fp16_grad_reduce_fp32 = false;
  WeightGradientFusion fused_weight_gradient = WeightGradientFusion::kAny;
  bool converted_gradients = false;   // of bf16 runs
  bool overlap_tp_all_reduce = true;  // without sequence parallelism
  bool scatter_gather_p2p = false;
  workload::CpExchange cp_exchange = workload::CpExchange::kRing;
  bool batch_p2p_sync = false;
  bool batch_sync = false;
  bool recompute_flash = false;  // selective recompute runs fused attention again
  // Of full recompute, and of selective where that is not Megatron's (kEveryOther).
  workload::RecomputeKeeps full_keeps = workload::RecomputeKeeps::kNothing;
  workload::RecomputeKeeps selective_keeps = workload::RecomputeKeeps::kNothing;
  bool align_stages = false;  // stages launch their DP communication together
  bool owns_tensors = false;  // ZeRO-1 by whole tensors: gradients reduced whole, owners broadcast
  bool reduce_whole = false;  // ZeRO-1 of bf16 runs: gradients reduced whole, shards gathered
  std::int64_t bucket_elements = 40'000'000;
  workload::LowPrecision fp8_recipe = workload::LowPrecision::kDelayed;
  bool low_precision_gather = false;  // of fp8 and mxfp8 parameters over data-parallel ranks
  bool flat_parameters = true;        // ZeRO-2 and -3
  bool copies_units = true;           // without flat parameters
  workload::GatherLimit gather_limit = workload::GatherLimit::kOrder;  // ZeRO-3
  bool unit_buffers = false;                                           // Megatron-FSDP's
  bool model_type_states = false;  // FSDP2's shards and Adam's state
  bool hold_units = false;      // units stay gathered without stages, too; of models with experts
  bool list_gathers = false;    // ZeRO-3 of 2021
  bool tensor_buckets = false;  // DeepSpeed: ZeRO-2 keeps parameters and gradients as tensors
  bool ddp = false;             // DistributedDataParallel and torch.optim.AdamW, no clipping
  LossDefault loss = LossDefault::kEager;
  bool flat_step = false;          // torch.optim.AdamW on flat copies
  bool adam_loop = false;          // Adam tensor by tensor, an operator a kernel
  bool loss_metrics = false;       // training metrics over the logits
  bool unpads_attention = false;   // flash-attn's unpad_input around attention
  bool embedding_product = false;  // embeddings by a one-hot product
  bool stacked_layers = false;     // what layers keep lies in stacks
  bool log_every_step = false;     // the host reads the loss after every step
  bool moe_fused_permute = false, moe_fused_router = false, moe_separate_padding = false;
  workload::TorchLayers torch_layers = workload::TorchLayers::kFused;
  bool repeats_kv = false;                            // for their query heads, before attention
  workload::HostEra host = workload::HostEra::kCore;  // its Python beside kernel launches
  memory::Libraries libraries = {};
};

// Layers that pp does not divide.
enum class UnevenStages : std::uint8_t {
  kRefused,
  kSpread,  // the first stages have one more
  kFilled,  // every stage has as many as the largest must, the last what is left
};

// What its published runs set beside that. A job file says these itself (`parallel`, `training`); a
// measured run whose record does not gets them.
struct FrameworkRecipe {
  bool sequence_parallel = false;  // with tensor parallelism
  workload::Recompute recompute = workload::Recompute::kNone;
  workload::Sharding sharding = workload::Sharding::kNone;
  double gpt_dropout = 0.1;  // of GPT-style models; Llama-style ones have none
  bool interleaved = false;  // stages cut into chunks of one layer
  UnevenStages uneven_stages = UnevenStages::kRefused;
  bool limit_all_gathers = false;  // FSDP1's rate limiter is turned on
  // Its records say which of dp_overlap, moe_fused_permute and moe_fused_router were on: flags that
  // are off by default.
  bool says_switches = false;
  std::string_view allocator = {};  // PYTORCH_CUDA_ALLOC_CONF of its launcher
  // What it logs where a record does not name its meter; empty: torch_allocated.
  std::string_view meter = {};
};

struct Framework {
  std::string_view name;         // "megatron@2024.09"
  std::string_view description;  // one sentence
  FrameworkDefaults defaults;
  FrameworkRecipe recipe;
  std::string_view source;   // where its behaviour is written down
  std::string_view assumes;  // what else a run with it takes for granted, for docs/frameworks.md
};

// Newest version of a framework first: a name without version means that one.
std::span<const Framework> Frameworks();
Result<const Framework*> FindFramework(std::string_view name);
// The defaults as the plan has them, for its precision, sharding, the model and the GPU's
// architecture.
void ApplyDefaults(const FrameworkDefaults& defaults, cluster::Arch arch,
                   const workload::Model& model, workload::Plan* plan);
void ApplyLoss(LossDefault loss, workload::Plan* plan);
// What a framework does whatever a record of a run says: how stages send, what gradients are
// reduced from, the optimizer's kernels. REQUIRES: sharding is known, and what DDP decides by
// itself (grad_reduce_fp32, fused_adam) is set and may be set again.
void ApplySwitches(const FrameworkDefaults& defaults, workload::Plan* plan);
// What a recomputed layer keeps, once the plan says what is recomputed.
void ApplyRecompute(const FrameworkDefaults& defaults, workload::Plan* plan);
// How gradients get into their buffer, once the plan's types are known.
void ApplyGradientSums(const FrameworkDefaults& defaults, workload::Plan* plan);
// Whether FSDP2's units stay for the step without stages, once sharding and adapters are known.
bool HoldsUnits(const FrameworkDefaults& defaults, const workload::Model& model,
                const workload::Plan& plan);
// Whether ZeRO-1 reduces gradients whole and owners broadcast, once sharding and types are known.
void ApplyZero1(const FrameworkDefaults& defaults, workload::Plan* plan);
// Whether the framework's sharding takes the plan's optimizer.
Status CheckSharded(const Framework& framework, const workload::Plan& plan);
// docs/frameworks.md's part that follows from the table: a page a family.
std::string FrameworkPages();

}  // namespace orrery::job
