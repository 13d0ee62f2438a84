#include "orrery/search/validate/training.h"

#include <algorithm>
#include <array>

#include "orrery/base/text.h"
#include "orrery/constants/constants.h"
#include "orrery/memory/allocator_conf.h"
#include "orrery/search/validate/bridge_recipes.h"
#include "orrery/search/validate/cloud_recipes.h"
#include "orrery/search/validate/expert_models.h"
#include "orrery/search/validate/fine_tuning.h"
#include "orrery/search/validate/frameworks.h"
#include "orrery/search/validate/machines.h"
#include "orrery/search/validate/models.h"
#include "orrery/workload/generators/tp_overlap.h"
#include "orrery/workload/plan_features.h"

namespace orrery::search {
namespace {

using workload::AttentionBackend;
using workload::Plan;
using workload::Precision;
using workload::Recompute;
using workload::Schedule;
using workload::Sharding;
using Assumed = std::vector<std::string>;

// What a column must say, if it says anything, for a row to lie in scope.
struct ScopeRule {
  std::string_view column;
  std::string_view accepted;  // "a|b"
  std::string_view refusal;
};
constexpr std::array kScope = {
    ScopeRule{"arch", "dense|moe", "no model of this architecture"},
    ScopeRule{"layer_kind", "dense-attn|mla|dense-attn+sliding-window|mamba2-hybrid|bert|cnn",
              "no model of these layers"},
    ScopeRule{"compute_dtype", "bf16|fp16|fp32|fp8|mxfp8|nvfp4", "this type is not modelled"},
    ScopeRule{"sharding", "none|zero1|zero2|zero3", "this sharding is not modelled"},
    ScopeRule{"task", "pretrain|proxy-pretrain|sft|lora", "this task is not modelled"},
    ScopeRule{"attention_kernel", "unfused|flash|flash2|flash3|flash4|cudnn",
              "no model of this kernel"},
};

bool IsOneOf(std::string_view text, std::string_view choices) {
  while (!choices.empty()) {
    const std::size_t bar = std::min(choices.find('|'), choices.size());
    if (choices.substr(0, bar) == text) return true;
    choices.remove_prefix(std::min(bar + 1, choices.size()));
  }
  return false;
}

bool HasToken(const Configuration& row, std::string_view token) {
  return row.text("config_extra").find(token) != std::string_view::npos;
}

// Megatron Core's own layers, without Transformer Engine.
bool OwnLayers(const Configuration& row) {
  return HasToken(row, "uninstall_te") ||
         (HasToken(row, "case=gpt3_mcore_tp") && !HasToken(row, "_te_"));
}

Status CheckScope(const Configuration& row) {
  for (const ScopeRule& rule : kScope) {
    const std::string_view cell = row.text(rule.column);
    if (cell.empty() || IsOneOf(cell, rule.accepted)) continue;
    return InvalidInput("{}={}: {}", rule.column, Printable(cell, 40), rule.refusal);
  }
  return {};
}

struct Mapping {
  const Configuration& row;
  FrameworkMatch rule;
  Assumed* assumed;
  TrainingCase* out;
  const CloudRecipe& cloud;

  const job::FrameworkDefaults& defaults() const { return rule.framework->defaults; }
  const job::FrameworkRecipe& recipe() const { return rule.framework->recipe; }
  template <class... Args>
  void Assume(fmt::format_string<Args...> format, Args&&... args) const {
    assumed->push_back(fmt::format(format, std::forward<Args>(args)...));
  }
  void AssumeDefault(std::string_view column, std::string_view value) const {
    Assume("{}={} (blank: {}'s default)", column, value, rule.label);
  }
};

Result<int> Degree(const Mapping& m, std::string_view column) {
  ORRERY_ASSIGN_OR_RETURN(const std::int64_t degree, m.row.Needed(column, 1, 1 << 20));
  return static_cast<int>(degree);
}

Status MapDegrees(const Mapping& m) {
  Plan& plan = m.out->plan;
  ORRERY_ASSIGN_OR_RETURN(plan.tp, Degree(m, "tp"));
  ORRERY_ASSIGN_OR_RETURN(plan.pp, Degree(m, "pp"));
  ORRERY_ASSIGN_OR_RETURN(const std::int64_t gpus, m.row.Needed("gpus", 1, 1 << 22));
  ORRERY_ASSIGN_OR_RETURN(const auto dp, m.row.Whole("dp", 1, 1 << 22));
  ORRERY_ASSIGN_OR_RETURN(const auto vpp, m.row.Whole("vpp", 1, 1024));
  ORRERY_ASSIGN_OR_RETURN(const auto cp, m.row.Whole("cp", 1, 4096));
  plan.cp = static_cast<int>(cp.value_or(1));
  MapCpExchange(m.row, &plan, m.assumed);
  const std::int64_t model_ranks = static_cast<std::int64_t>(plan.tp) * plan.pp * plan.cp;
  plan.dp = static_cast<int>(dp.value_or(std::max<std::int64_t>(1, gpus / model_ranks)));
  if (!dp) m.Assume("dp={} (blank: gpus / (tp·pp·cp))", plan.dp);
  if (model_ranks * plan.dp != gpus) {
    return InvalidInput("gpus={}: tp·pp·cp·dp = {}·{}·{}·{} is another number", gpus, plan.tp,
                        plan.pp, plan.cp, plan.dp);
  }
  if (m.cloud.dp_last || HasToken(m.row, "dp_last") || HasToken(m.row, "dplast")) {
    plan.rank_order = workload::RankOrder::kPpDp;
  }
  plan.vpp = static_cast<int>(vpp.value_or(1));
  return {};
}

Status MapBatch(const Mapping& m) {
  constexpr std::int64_t kMost = 1 << 30;
  Plan& plan = m.out->plan;
  if (m.row.text("layer_kind") == "cnn") {
    plan.seq_len = 1;  // an image is one token
  } else {
    ORRERY_ASSIGN_OR_RETURN(plan.seq_len, m.row.Needed("seq_len", 1, 1 << 24));
  }
  ORRERY_ASSIGN_OR_RETURN(const auto micro, m.row.Whole("micro_batch", 1, kMost));
  ORRERY_ASSIGN_OR_RETURN(const auto global, m.row.Whole("global_batch", 1, kMost));
  ORRERY_ASSIGN_OR_RETURN(const auto steps, m.row.Whole("grad_accum", 1, kMost));
  plan.micro_batch = micro.value_or(1);
  if (!micro && global && steps && *global % (plan.dp * *steps) == 0) {
    plan.micro_batch = *global / (plan.dp * *steps);
    m.Assume("micro_batch={} (blank: global_batch / (dp·grad_accum))", plan.micro_batch);
  } else if (!micro) {
    m.Assume("micro_batch=1 (blank)");
  }
  if (!global && !steps) {
    return InvalidInput("global_batch is blank: the run cannot be set up without it");
  }
  plan.global_batch = global ? *global : plan.micro_batch * plan.dp * *steps;
  if (!global) m.Assume("global_batch={} (blank: micro_batch·dp·grad_accum)", plan.global_batch);
  if (global && steps && plan.micro_batch * plan.dp * *steps != *global) {
    m.Assume("grad_accum={} contradicts global_batch; the batch sizes hold", *steps);
  }
  return {};
}

// Chunks a stage where vpp is blank: as few as interleaving takes where a run says no more than
// that it interleaved, one a layer where the framework's recipes do, else one.
void AssumeChunks(const Mapping& m) {
  Plan& plan = m.out->plan;
  const std::int64_t layers = m.out->model.layers;
  const bool fits = layers % plan.pp == 0 && plan.microbatches() % plan.pp == 0;
  const int a_stage = fits ? static_cast<int>(layers / plan.pp) : 1;
  if (HasToken(m.row, "interleaved_if_possible")) {
    // Megatron interleaves over more than two stages unless sends overlap.
    while (plan.pp > 2 && plan.vpp < a_stage && (plan.vpp == 1 || a_stage % plan.vpp != 0)) {
      ++plan.vpp;
    }
    m.Assume("vpp={} (config_extra=interleaved_if_possible, degree not stated)", plan.vpp);
    return;
  }
  if (m.recipe().interleaved) plan.vpp = a_stage;
  m.AssumeDefault("vpp", std::to_string(plan.vpp));
}

// Uneven stages, not stated: the ends, which have embedding and loss besides, have as many layers
// fewer as lets the middle share the rest evenly (--decoder-first-pipeline-num-layers, -last-).
void SpareEnds(const Mapping& m) {
  Plan& plan = m.out->plan;
  const std::int64_t layers = m.out->model.layers;
  for (std::int64_t end = layers / plan.pp - 1; plan.pp > 2 && plan.vpp == 1 && end > 0; --end) {
    if ((layers - 2 * end) % (plan.pp - 2) != 0) continue;
    const auto middle = static_cast<int>((layers - 2 * end) / (plan.pp - 2));
    plan.layers_per_stage.assign(static_cast<std::size_t>(plan.pp), middle);
    plan.layers_per_stage.front() = plan.layers_per_stage.back() = static_cast<int>(end);
    return m.Assume("config_extra: uneven stages not stated, taken as {} at the ends, {} between",
                    end, middle);
  }
  m.Assume("config_extra: uneven stages not stated, taken as even");
}

// After degrees and batch, which say what interleaving they allow.
void MapSchedule(const Mapping& m) {
  Plan& plan = m.out->plan;
  if (!m.row.has("vpp") && plan.pp > 1) AssumeChunks(m);
  if (plan.pp == 1) plan.vpp = 1;
  const std::int64_t layers = m.out->model.layers;
  if (m.recipe().uneven_stages && layers % plan.pp != 0 && layers > plan.pp) {
    const auto stages = static_cast<std::int64_t>(plan.pp);
    for (std::int64_t s = 0; s < stages; ++s) {
      plan.layers_per_stage.push_back(static_cast<int>(layers / stages + (s < layers % stages)));
    }
    m.Assume("layers per stage {} to {}: {} balances what pp does not divide", layers / stages,
             layers / stages + 1, m.rule.label);
  }
  if (HasToken(m.row, "uneven")) SpareEnds(m);
  plan.schedule = plan.vpp > 1 ? Schedule::k1f1bInterleaved : Schedule::k1f1b;
  if (plan.vpp == 1) return;
  // Groups of pp micro-batches do not always divide them; a run that exists chose one that fits.
  const std::int64_t microbatches = plan.microbatches();
  for (std::int64_t group = plan.pp; group <= microbatches; ++group) {
    const std::int64_t rest = microbatches % group;
    if (rest != 0 && rest < plan.pp) continue;
    if (group == plan.pp) return;
    plan.microbatch_group = static_cast<int>(group);
    return m.Assume("micro-batch groups of {}: pp leaves too small a rest of {}", group,
                    microbatches);
  }
}

// fp8 without more is one scale a tensor: which kind, config_extra or the framework says.
void MapRecipe(const Mapping& m, std::string_view dtype) {
  using workload::LowPrecision;
  Plan& plan = m.out->plan;
  const job::FrameworkDefaults& d = m.defaults();
  if (dtype == "mxfp8" || dtype == "nvfp4") {
    plan.low_precision = dtype == "mxfp8" ? LowPrecision::kMxfp8 : LowPrecision::kNvfp4;
  } else if (HasToken(m.row, "fp8-cs") || HasToken(m.row, "current_scaling") ||
             HasToken(m.row, "tensorwise") || m.cloud.current) {
    plan.low_precision = LowPrecision::kCurrent;
  } else if (HasToken(m.row, "rowwise")) {
    plan.low_precision = LowPrecision::kCurrent;
    m.Assume("prec=rowwise: a scale a row, priced as current scaling");
  } else {
    plan.low_precision = d.fp8_recipe;
    m.AssumeDefault("fp8 recipe", d.fp8_recipe == LowPrecision::kDelayed ? "delayed" : "current");
  }
  plan.low_precision_gather = dtype != "nvfp4" && d.low_precision_gather;
  if (HasToken(m.row, "fp8_allgather")) plan.low_precision_gather = true;
  if (HasToken(m.row, "bf16_allgather")) plan.low_precision_gather = false;
  m.Assume("parameters gathered in {}", plan.low_precision_gather ? dtype : "bf16");
  if (const BridgeBf16* kept = FindBridgeBf16(m.row); kept != nullptr) {
    plan.bf16_last_layers = kept->last_layers;
    plan.bf16_modules = kept->modules;
    m.Assume("in bf16, as Megatron Bridge's recipes have it: the last {} layers; modules: {}",
             kept->last_layers, workload::Bf16ModulesText(kept->modules));
  }
  plan.fp8_attention = HasToken(m.row, "fp8_attention");
  // torchtitan converts linear layers and grouped products apart.
  if (m.row.text("arch") == "moe" && HasToken(m.row, "prec=linears")) {
    plan.bf16_modules |= workload::kBf16Experts;
  }
  if (HasToken(m.row, "prec=grouped_GEMM")) {
    plan.bf16_modules |= workload::kBf16Attention | workload::kBf16Mlp;
  }
}

Status MapPrecision(const Mapping& m) {
  Plan& plan = m.out->plan;
  std::string_view dtype = m.row.text("compute_dtype");
  if (dtype.empty()) {
    const std::string_view text = m.row.text("precision");
    for (const std::string_view known : {"bf16", "fp16", "fp32", "fp8", "mxfp8", "nvfp4"}) {
      if (text.starts_with(known)) dtype = known;
    }
    if (dtype.empty() && !text.empty()) {
      return InvalidInput("precision={}: must begin with bf16, fp16, fp32, fp8, mxfp8 or nvfp4",
                          Printable(text, 40));
    }
    if (dtype.empty()) return InvalidInput("compute_dtype is blank: name it");
    m.Assume("compute_dtype={} (blank: from precision)", dtype);
  }
  plan.precision = dtype == "fp16"   ? Precision::kFp16
                   : dtype == "fp32" ? Precision::kFp32
                                     : Precision::kBf16;
  if (IsOneOf(dtype, "fp8|mxfp8|nvfp4")) MapRecipe(m, dtype);
  const std::string_view reduce = m.row.text("reduce_dtype");
  const job::FrameworkDefaults& d = m.defaults();
  plan.grad_reduce_fp32 =
      plan.precision == Precision::kFp16 ? d.fp16_grad_reduce_fp32 : d.grad_reduce_fp32;
  if (plan.precision == Precision::kFp32) plan.grad_reduce_fp32 = true;
  if (reduce.empty() && BridgeRelease(m.row) > 0) {
    plan.grad_reduce_fp32 = false;
    m.Assume("reduce_dtype=bf16 (blank: the release's recipes)");
  } else if (reduce.empty()) {
    m.AssumeDefault("reduce_dtype", plan.grad_reduce_fp32                ? "fp32"
                                    : plan.precision == Precision::kFp16 ? "fp16"
                                                                         : "bf16");
  } else if (IsOneOf(reduce, "fp32|bf16|fp16")) {
    plan.grad_reduce_fp32 = reduce == "fp32";
  } else {
    return InvalidInput("reduce_dtype={}: must be fp32, bf16 or fp16", Printable(reduce, 40));
  }
  job::ApplyGradientSums(d, &plan);
  return {};
}

Status MapSharding(const Mapping& m) {
  Plan& plan = m.out->plan;
  ORRERY_ASSIGN_OR_RETURN(auto group, m.row.Whole("zero_group", 1, 1 << 22));
  const int per_host = m.out->cluster.gpus_per_node;
  if (!group && m.cloud.shard_hosts > 0 && plan.ranks() >= m.cloud.shard_from * per_host) {
    group = std::min(m.cloud.shard_hosts * per_host, plan.replicas());
    m.Assume("zero_group={} (blank: the release's scripts)", *group);
  }
  const std::string_view sharding = m.row.text("sharding");
  constexpr std::array<std::string_view, 4> kNames = {"none", "zero1", "zero2", "zero3"};
  plan.sharding = m.recipe().sharding;
  const auto at = std::find(kNames.begin(), kNames.end(), sharding);
  if (at != kNames.end()) plan.sharding = static_cast<Sharding>(at - kNames.begin());
  if (sharding.empty()) {
    m.AssumeDefault("sharding", kNames[static_cast<std::size_t>(plan.sharding)]);
  }
  if (plan.sharding == Sharding::kZero2 && m.defaults().tensor_buckets) {
    plan.reducer = workload::Reducer::kDeepSpeed;
  }
  job::ApplyZero1(m.defaults(), &plan);
  if (plan.sharding != Sharding::kNone && group && *group != plan.dp && *group < plan.replicas()) {
    plan.shard_group = static_cast<int>(*group);
    m.Assume("zero_group={}: shards in groups of neighbouring ranks, gradients {}", *group,
             plan.reduce_whole ? "all-reduced over all" : "reduced in the group, then between");
  }
  if (plan.gathers_units()) {
    m.Assume("parameters sharded over {} data-parallel ranks, a layer a unit", plan.shard_ranks());
    plan.flat_parameters = m.defaults().flat_parameters;
    plan.copies_units = m.defaults().copies_units;
    plan.unit_buffers = m.defaults().unit_buffers && HasToken(m.row, "megatron_fsdp");
    plan.list_gathers = m.defaults().list_gathers && plan.sharding == Sharding::kZero3;
    plan.gather_limit =
        m.recipe().limit_all_gathers ? workload::GatherLimit::kHost : m.defaults().gather_limit;
    if (plan.keeps_units() && plan.sharding == Sharding::kZero3) {
      plan.reshard = workload::kKeepGathered;
    }
  }
  if (plan.replicas() == 1) {
    plan.sharding = Sharding::kNone;
    plan.reducer = workload::Reducer::kBuffer;
  }
  return {};
}

Status MapRecompute(const Mapping& m) {
  Plan& plan = m.out->plan;
  constexpr std::array<std::string_view, 3> kNames = {"none", "selective", "full"};
  const std::string_view cell = m.row.text("recompute");
  const std::string modules = RecomputeModules(m.row);
  if (!modules.empty() && cell != "full") {
    plan.recompute = Recompute::kSelective;
    ORRERY_ASSIGN_OR_RETURN(plan.recompute_modules, workload::ParseRecomputeModules(modules));
    plan.recompute_flash = m.defaults().recompute_flash;
    return {};
  }
  const BridgeRecipe* bridge = FindBridgeRecipe(m.row);
  const std::string_view recipe = bridge != nullptr ? bridge->recompute : m.cloud.recompute;
  if (cell.empty() && !recipe.empty() &&
      m.row.text("config_extra").find("recompute=") == std::string_view::npos) {
    plan.recompute = Recompute::kSelective;
    ORRERY_ASSIGN_OR_RETURN(plan.recompute_modules, workload::ParseRecomputeModules(recipe));
    plan.recompute_flash = m.defaults().recompute_flash;
    m.Assume("recompute={} (blank: the release's recipes)", recipe);
    return {};
  }
  if (cell.empty()) {
    plan.recompute = m.recipe().recompute;
    m.AssumeDefault("recompute", kNames[static_cast<std::size_t>(plan.recompute)]);
  } else {
    const auto at = std::find(kNames.begin(), kNames.end(), cell);
    if (at == kNames.end()) {
      return InvalidInput("recompute={}: must be none, selective or full", Printable(cell, 40));
    }
    plan.recompute = static_cast<Recompute>(at - kNames.begin());
  }
  job::ApplyRecompute(m.defaults(), &plan);
  if (m.cloud.keeps != workload::RecomputeKeeps::kNothing && plan.recompute == Recompute::kFull) {
    plan.recompute_keeps = m.cloud.keeps;
    m.Assume("recompute keeps what the release's scripts say");
  }
  return {};
}

Status MapOffload(const Mapping& m) {
  Plan& plan = m.out->plan;
  const std::string_view cell = m.row.text("offload");
  plan.ranks_per_host = std::min(m.out->cluster.gpus_per_node, plan.ranks());
  if (cell.empty() || cell == "none") return {};
  if (cell == "optimizer-cpu") {
    plan.offload_optimizer = true;
    m.Assume("offload=optimizer-cpu: Adam on the CPU, {} GPUs a host", plan.ranks_per_host);
    return {};
  }
  if (!cell.starts_with("activation")) {
    return InvalidInput("offload={}: must be none, optimizer-cpu or activation",
                        Printable(cell, 40));
  }
  plan.offload_activations = true;
  m.Assume("offload=activation: all that a layer keeps, copied beside the next layer");
  return {};
}

// How far graphs reach stands in config_extra.
void MapGraphs(const Mapping& m, bool graphs, bool whole) {
  Plan& plan = m.out->plan;
  if (!graphs) {
    m.out->host = m.defaults().host;
    return;
  }
  if (plan.gathers_units()) {
    m.Assume("cuda_graphs=1: no host work beside the launch of kernels, one by one");
    return;
  }
  plan.cuda_graphs = whole ? workload::CudaGraphs::kIteration : workload::CudaGraphs::kLayers;
  plan.graph_scope = whole ? std::uint8_t{workload::kGraphAll} : GraphScope(m.row);
  m.out->host = m.defaults().host;
  m.Assume("cuda_graphs=1: {}",
           whole ? "the iteration is one graph"
                 : "a graph a layer and pass of " + workload::GraphScopeText(plan.graph_scope));
}

void MapAttention(const Mapping& m) {
  using job::AttentionDefault;
  const cluster::Arch arch = m.out->cluster.device.arch;
  AttentionBackend* attention = &m.out->plan.attention;
  const std::string_view cell = m.row.text("attention_kernel");
  // Megatron's own layers, without Transformer Engine, know no fused attention.
  const bool own_layers = OwnLayers(m.row);
  const AttentionDefault preset = m.defaults().attention;
  if (cell == "unfused" || (cell.empty() && own_layers)) {
    if (own_layers) m.Assume("attention_kernel=unfused (config_extra: no Transformer Engine)");
    *attention = AttentionBackend::kUnfused;
  } else if (cell == "flash") {
    const bool first = preset == AttentionDefault::kFlash1;
    *attention = first ? AttentionBackend::kFlash1 : AttentionBackend::kFlash2;
    m.Assume("attention_kernel=flash{} (version not stated: {}'s)", first ? 1 : 2, m.rule.label);
  } else if (cell == "flash2") {
    *attention = AttentionBackend::kFlash2;
  } else if (cell == "flash3") {
    *attention = AttentionBackend::kFlash3;
  } else if (cell == "flash4") {
    *attention = AttentionBackend::kFlash4;
  } else if (cell == "cudnn") {
    *attention = job::AttentionOn(arch, AttentionDefault::kLibrary);
    if (arch < cluster::Arch::kHopper) m.Assume("cuDNN's fused attention priced as flash 2");
  } else if (!m.cloud.fused_attention) {
    *attention = AttentionBackend::kFlash2;
    m.Assume("attention_kernel=flash2 (blank: the release's scripts set NVTE_FUSED_ATTN=0)");
  } else {
    *attention = job::AttentionFor(m.defaults(), arch, m.out->model);
    // Megatron Bridge brought GPT-OSS with cuDNN's kernel for sinks (Transformer Engine 2.8).
    if (m.out->model.sinks && *attention != AttentionBackend::kCudnn) {
      *attention = AttentionBackend::kUnfused;
      return m.Assume("attention_kernel=unfused (blank: this fused kernel knows no sinks)");
    }
    m.AssumeDefault("attention_kernel", *attention == AttentionBackend::kUnfused  ? "unfused"
                                        : *attention == AttentionBackend::kFlash1 ? "flash1"
                                        : *attention == AttentionBackend::kCudnn  ? "cudnn"
                                                                                  : "flash2");
  }
}

Status MapOverlap(const Mapping& m) {
  Plan& plan = m.out->plan;
  const job::FrameworkDefaults& d = m.defaults();
  ORRERY_ASSIGN_OR_RETURN(const auto overlap, m.row.Flag("dp_overlap"));
  ORRERY_ASSIGN_OR_RETURN(const auto sequence, m.row.Flag("seq_parallel"));
  ORRERY_ASSIGN_OR_RETURN(const auto tp_overlap, m.row.Flag("tp_comm_overlap"));
  ORRERY_ASSIGN_OR_RETURN(const auto graphs, m.row.Flag("cuda_graphs"));
  // Megatron-FSDP's own default is to overlap both (megatron_fsdp/fully_shard.py).
  const bool dp_overlap =
      overlap.value_or(m.cloud.overlaps_and_fuses || HasToken(m.row, "megatron_fsdp") ||
                       (d.dp_overlap && !m.recipe().says_switches));
  if (!overlap && plan.dp > 1) m.AssumeDefault("dp_overlap", dp_overlap ? "1" : "0");
  plan.overlap_grad_reduce = dp_overlap;
  plan.overlap_param_gather = dp_overlap && plan.sharding == Sharding::kZero1;
  const bool with_tp = m.recipe().sequence_parallel && plan.tp > 1;
  // Overlap of tensor-parallel communication needs it.
  const bool splits = with_tp || (tp_overlap.value_or(false) && plan.tp > 1);
  plan.sequence_parallel = sequence.value_or(splits) && plan.tp > 1;
  if (!sequence && plan.tp > 1) m.AssumeDefault("seq_parallel", splits ? "1" : "0");
  // Recipes leave it off with nvfp4.
  const bool recipe = d.tp_comm_overlap && plan.low_precision != workload::LowPrecision::kNvfp4;
  plan.tp_comm_overlap = tp_overlap.value_or(recipe) && plan.sequence_parallel;
  if (!tp_overlap && plan.sequence_parallel) {
    m.AssumeDefault("tp_comm_overlap", plan.tp_comm_overlap ? "1" : "0");
  }
  using workload::CudaGraphs;
  const bool whole = HasToken(m.row, "full_cuda_graph") || HasToken(m.row, "full_iteration") ||
                     (!graphs && m.cloud.graphs == CudaGraphs::kIteration);
  MapGraphs(m, graphs.value_or(m.cloud.graphs != CudaGraphs::kNone), whole);
  if (HasToken(m.row, "sharp")) m.Assume("config_extra=sharp is not modelled: rings and trees");
  plan.host = workload::HostOf(m.out->host, plan.cuda_graphs, constants::Set());
  plan.prefetch = dp_overlap;
  plan.overlap_p2p = d.overlap_p2p && plan.vpp > 1;
  plan.overlap_tp_all_reduce = d.overlap_tp_all_reduce;
  plan.scatter_gather_p2p = d.scatter_gather_p2p;
  plan.batch_p2p_sync = d.batch_p2p_sync;
  plan.batch_sync = d.batch_sync;
  plan.align_grad_reduce = plan.align_param_gather = d.align_stages;
  plan.bucket_elements = d.bucket_elements;
  plan.contiguous_gradients = plan.gathers_units() && d.tensor_buckets;
  if (plan.reducer == workload::Reducer::kDeepSpeed || plan.contiguous_gradients) {
    plan.bucket_elements = 500'000'000;
  }
  job::ApplyStep(d, &plan);
  if (!d.ddp) return {};
  plan.reducer = workload::Reducer::kDdp;
  plan.fused_adam = plan.fused_softmax = plan.clip_gradients = false;
  plan.grad_reduce_fp32 = true;
  return {};
}

// torch.compile makes PyTorch's own loss one that works in place, as Megatron's does.
void MapLoss(const Mapping& m) {
  using job::LossDefault;
  Plan& plan = m.out->plan;
  plan.chunked_loss = HasToken(m.row, "liger") && plan.tp == 1;
  LossDefault loss = m.defaults().loss;
  if (m.cloud.overlaps_and_fuses) loss = LossDefault::kOnline;
  if (HasToken(m.row, "cross_entropy_loss_fusion")) loss = LossDefault::kFused;
  if (loss == LossDefault::kTorch && HasToken(m.row, "compile")) loss = LossDefault::kEager;
  if (!plan.chunked_loss) job::ApplyLoss(loss, &plan);
}

// What libraries and layers keep on the device.
Status MapLibraries(const Mapping& m) {
  memory::Libraries* libraries = &m.out->libraries;
  *libraries = m.defaults().libraries;
  const bool own_layers = libraries->transformer_engine && OwnLayers(m.row);
  if (own_layers) libraries->transformer_engine = false;
  libraries->deterministic = HasToken(m.row, "+deterministic");
  m.out->plan.keeps_scores = own_layers;
  if (HasToken(m.row, "uninstall_te")) m.out->plan.fused_softmax = false;
  m.out->plan.in_place_kernels = HasToken(m.row, "liger");
  if ((m.defaults().squared_relu_operators || m.cloud.squared_relu_operators) &&
      m.out->model.activation == workload::Activation::kSquaredRelu) {
    m.out->plan.fused_bias_activation = false;
    m.Assume("squared ReLU as PyTorch's operators, not compiled (NeMo 2)");
  }
  MapLoss(m);
  ORRERY_ASSIGN_OR_RETURN(m.out->allocator, memory::ParseAllocatorConf(m.recipe().allocator));
  if (!m.recipe().allocator.empty()) m.AssumeDefault("allocator", m.recipe().allocator);
  m.out->meter = m.recipe().meter;
  return {};
}

// Where tensor-parallel communication cannot run in pieces it stands alone.
void MapUserbuffers(const Mapping& m) {
  Plan& plan = m.out->plan;
  const bool layers = m.out->libraries.transformer_engine;
  if (plan.tp_comm_overlap && (!layers || !CheckTpOverlap(m.out->model, plan).ok())) {
    plan.tp_comm_overlap = false;
    m.Assume(
        "tp_comm_overlap=1: not with these layers, tensor-parallel communication stands alone");
  }
  m.out->libraries.userbuffers = plan.tp_comm_overlap;
}

// What recipes keep in bf16 or run in 8 bits, without the parts that this row's run lacks.
void KeepToWhatIsThere(const Mapping& m) {
  Plan& plan = m.out->plan;
  const workload::Model& model = m.out->model;
  const auto drop = [&](workload::Bf16Module part, bool there) {
    if (!there) plan.bf16_modules &= static_cast<std::uint8_t>(~part);
  };
  drop(workload::kBf16Mtp, model.mtp_layers > 0);
  drop(workload::kBf16ExpertLatent, model.experts.latent > 0);
  drop(workload::kBf16Experts, model.experts.count > 0);
  const bool has = plan.attention == workload::AttentionBackend::kCudnn ||
                   plan.attention == workload::AttentionBackend::kFlash3;
  if (!plan.fp8_attention || (has && plan.cp_exchange != workload::CpExchange::kAllGather)) return;
  plan.fp8_attention = false;
  m.Assume("attention in 8 bits: not with this kernel or exchange, bf16 attention");
}

}  // namespace

Result<TrainingCase> MapTraining(const Configuration& row, Assumed* assumed) {
  ORRERY_RETURN_IF_ERROR(CheckScope(row));
  ORRERY_ASSIGN_OR_RETURN(const FrameworkMatch rule, MatchFramework(row));
  TrainingCase out;
  const Mapping m{row, rule, assumed, &out, FindCloudRecipe(row)};
  ORRERY_RETURN_IF_ERROR(MapDegrees(m));
  ORRERY_RETURN_IF_ERROR(MapBatch(m));
  ORRERY_RETURN_IF_ERROR(MapPrecision(m));
  job::FrameworkRecipe recipe = m.recipe();
  if (m.cloud.gpt_dropout > 0) recipe.gpt_dropout = m.cloud.gpt_dropout;
  ORRERY_ASSIGN_OR_RETURN(out.model, MapModel(row, recipe, assumed));
  ORRERY_ASSIGN_OR_RETURN(out.cluster, MapTrainingMachine(row, assumed));
  out.plan.nvlink_ranks = out.cluster.gpus_per_nvlink_domain;
  MapSchedule(m);
  ORRERY_RETURN_IF_ERROR(MapSharding(m));
  ORRERY_RETURN_IF_ERROR(MapRecompute(m));
  MapAttention(m);
  ORRERY_RETURN_IF_ERROR(MapOverlap(m));
  ORRERY_RETURN_IF_ERROR(MapLibraries(m));
  if (HasExperts(row)) {
    ORRERY_RETURN_IF_ERROR(MapExperts(row, rule, out.model, &out.plan, assumed));
  }
  MapTask(m.row, m.rule, &m.out->plan, m.assumed);
  if (out.plan.pp > 1 && out.plan.lora_rank == 0) out.plan.deferred_head = DeferredHead(row);
  if (out.plan.deferred_head > 0) {
    m.Assume("deferred_head={} (blank: the release's recipes)", out.plan.deferred_head);
  }
  ORRERY_RETURN_IF_ERROR(MapOffload(m));
  if (out.plan.moe_comm_overlap && out.plan.offload_activations) {
    out.plan.moe_comm_overlap = false;
    m.Assume("ep_overlap=1: not built with offloading, dispatch and combine stand alone");
  }
  if (out.model.mtp_layers > 0 && (out.plan.offload_activations || out.plan.gathers_units())) {
    out.model.mtp_layers = 0;
    m.Assume("prediction of further tokens: not built with this plan, left out");
  }
  KeepToWhatIsThere(m);
  MapUserbuffers(m);
  ORRERY_RETURN_IF_ERROR(workload::Validate(out.model, out.plan));
  out.libraries.userbuffer_bytes = workload::UserbufferBytes(out.model, out.plan);
  return out;
}

std::string_view TrainingStratum(const Configuration& row) {
  if (row.text("arch") == "moe") return "moe";
  const std::string_view sharding = row.text("sharding");
  const std::string_view family = row.text("framework_family");
  if (sharding == "zero2" || sharding == "zero3" || IsOneOf(family, "fsdp1|fsdp2|jax-fsdp")) {
    return "fsdp/zero3";
  }
  const auto gpus = row.Whole("gpus", 1, 1 << 22);
  if (gpus.ok() && gpus->has_value() && **gpus <= 8) return "one node, small";
  const std::string_view gpu = row.text("gpu");
  if (gpu.starts_with("A100") || gpu.starts_with("A800")) return "dense A100";
  for (const std::string_view later : {"H100", "H200", "H800", "B200", "B300", "GB"}) {
    if (gpu.starts_with(later)) return "dense Hopper+";
  }
  return "dense, other GPUs";
}

std::string MemoryStratum(const Configuration& row) {
  const std::string_view kind = row.text("mem_kind");
  return fmt::format("memory {}", kind.empty() ? "unknown" : kind);
}

}  // namespace orrery::search
