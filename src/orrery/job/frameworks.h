// What a training framework does when nobody says: one row per framework and version
// (data/frameworks.yaml, docs/formats/data.md).
//
// A row is read twice: a job file takes from it what its `framework_options` leave out, and the
// table of measured runs what a record leaves blank (search/validate/names.h).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/cluster/cluster.h"
#include "orrery/formats/rows.h"
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
// fused_attn.cpp, nvte_get_fused_attn_backend; dot_product_attention/utils.py). Learned logits in
// the softmax (sinks) take FlexAttention where layers are plain PyTorch, priced as flash attention
// 2, and else cuDNN's kernel (Transformer Engine 2.8) or none.
workload::AttentionBackend AttentionFor(const FrameworkDefaults& defaults, cluster::Arch arch,
                                        const workload::Model& model);

// kEager: Megatron's own operators on fp32 logits; kFused: the same, compiled; kOnline: on 16-bit
// logits, gradients over them; kTorch: PyTorch's own.
enum class LossDefault : std::uint8_t { kEager, kFused, kOnline, kTorch };

// Buffers to which weight-gradient GEMMs add.
enum class WeightGradientFusion : std::uint8_t { kNone, kFp32, kAny };

struct FrameworkDefaults {
  // The row's framework_options, which hold where they mean something. grad_reduce_fp32 and
  // converted_gradients are of bf16 (16-bit gradients of fp16 are reduced as they are), so is
  // reduce_whole without broadcast_parameters or tensor_buckets; low_precision_gather is of 8 bits.
  workload::FrameworkBehaviour options;
  workload::CpExchange cp_exchange = workload::CpExchange::kRing;
  workload::LowPrecision fp8_recipe = workload::LowPrecision::kDelayed;

  // What depends on the plan, the model or the GPU.
  AttentionDefault attention = AttentionDefault::kUnfused;
  std::optional<AttentionDefault> dense_attention;  // of models without experts, if another
  bool flex_sinks = false;                          // FlexAttention for sinks
  bool fused_latent_blackwell = false;              // Transformer Engine 2.5 and later
  bool squared_relu_operators = false;  // squared ReLU as PyTorch's operators, not compiled
  bool dp_overlap = false;              // gradient reduction, and parameter gathering of ZeRO-1
  WeightGradientFusion fused_weight_gradient = WeightGradientFusion::kAny;
  // Of full recompute, and of selective where that is not Megatron's (kEveryOther).
  workload::RecomputeKeeps full_keeps = workload::RecomputeKeeps::kNothing;
  workload::RecomputeKeeps selective_keeps = workload::RecomputeKeeps::kNothing;
  bool align_stages = false;  // stages launch their DP communication together
  workload::GatherLimit gather_limit = workload::GatherLimit::kOrder;  // ZeRO-3
  bool tensor_buckets = false;  // DeepSpeed: ZeRO-2 keeps parameters and gradients as tensors
  bool ddp = false;             // DistributedDataParallel
  LossDefault loss = LossDefault::kEager;
  workload::HostEra host = workload::HostEra::kCore;  // its Python beside kernel launches
  memory::Libraries libraries = {};
};

struct Framework {
  std::string name;         // "megatron@2024.09"
  std::string description;  // one sentence
  std::string source;       // where its behaviour is written down
  std::string assumes;  // what else a run with it takes for granted, for 'orrery list frameworks'
  std::vector<std::string> meant_by;  // words that name no one framework
  std::vector<std::string> aliases;
  FrameworkDefaults defaults;
  formats::Node row;  // its keys as the files have them

  // Of "recipe.sharding", "defaults.ddp", "framework_options.unit_buffers": what the row says;
  // empty: nothing. `recipe` is what its published runs set beside the rest: a job file says these
  // itself (`parallel`, `training`), a measured run whose record does not gets them.
  std::string_view Said(std::string_view key) const;
};

// Whether rows may have such a key.
bool IsFrameworkKey(std::string_view key);

class FrameworkTable {
 public:
  // data/frameworks.yaml, embedded.
  static const FrameworkTable& BuiltIn();

  // The rows of a file; `file` stands for it in errors. A family's last row is its newest.
  Status Add(std::string_view text, const std::string& file);

  // Families in the order of the files, newest version first.
  std::span<const Framework> rows() const { return frameworks_; }
  // By name, by an alias, or by the family's name alone, which means its newest version.
  Result<const Framework*> Find(std::string_view name) const;

 private:
  formats::DataTable rows_{"framework"};
  std::vector<Framework> frameworks_;
};

std::string_view FamilyOf(const Framework& framework);  // "megatron"

// The defaults as the plan has them, for its precision, sharding, the model and the GPU's
// architecture.
void ApplyDefaults(const FrameworkDefaults& defaults, cluster::Arch arch,
                   const workload::Model& model, workload::Plan* plan);
// Switches of experts mean nothing without them.
void ClearExpertSwitches(const workload::Model& model, workload::Plan* plan);
// What a recomputed layer keeps, once the plan says what is recomputed.
void ApplyRecompute(const FrameworkDefaults& defaults, workload::Plan* plan);
// How gradients get into their buffer, once the plan's types are known.
void ApplyGradientSums(const FrameworkDefaults& defaults, workload::Plan* plan);
// Whether ZeRO-1 reduces gradients whole and owners broadcast, once sharding and types are known.
void ApplyZero1(const FrameworkDefaults& defaults, workload::Plan* plan);
// Whether the framework's sharding takes the plan's optimizer.
Status CheckSharded(std::string_view framework, const FrameworkDefaults& defaults,
                    const workload::Plan& plan);
// What a family of the built-in table is assumed to do, version by version; empty: there is none.
std::string FrameworkPage(std::string_view family);
// docs/frameworks.md's part that follows from the built-in table: the families, and what the words
// of their pages mean.
std::string FrameworkSummary();

}  // namespace orrery::job
