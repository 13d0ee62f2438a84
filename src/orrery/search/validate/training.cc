#include "orrery/search/validate/training.h"

#include <algorithm>
#include <array>

#include "orrery/base/text.h"
#include "orrery/job/plan_keys.h"
#include "orrery/search/validate/config_extra.h"
#include "orrery/search/validate/expert_models.h"
#include "orrery/search/validate/fine_tuning.h"
#include "orrery/search/validate/machines.h"
#include "orrery/search/validate/mapping.h"
#include "orrery/search/validate/models.h"
#include "orrery/search/validate/precision.h"
#include "orrery/search/validate/software.h"
#include "orrery/search/validate/torch_native.h"

namespace orrery::search {
namespace {

using workload::Plan;
using workload::Recompute;
using workload::Schedule;
using workload::Sharding;
using Assumed = std::vector<std::string>;

Result<int> Degree(const Mapping& m, std::string_view column) {
  ORRERY_ASSIGN_OR_RETURN(const std::int64_t degree, m.row.Needed(column, 1, 1 << 20));
  return static_cast<int>(degree);
}

Status MapDegrees(const Mapping& m) {
  Plan& plan = m.out->plan;
  ORRERY_ASSIGN_OR_RETURN(plan.parallel.tp, Degree(m, "tp"));
  ORRERY_ASSIGN_OR_RETURN(plan.parallel.pp, Degree(m, "pp"));
  ORRERY_ASSIGN_OR_RETURN(const std::int64_t gpus, m.row.Needed("gpus", 1, 1 << 22));
  ORRERY_ASSIGN_OR_RETURN(const auto dp, m.row.Whole("dp", 1, 1 << 22));
  ORRERY_ASSIGN_OR_RETURN(const auto vpp, m.row.Whole("vpp", 1, 1024));
  ORRERY_ASSIGN_OR_RETURN(const auto cp, m.row.Whole("cp", 1, 4096));
  plan.parallel.cp = static_cast<int>(cp.value_or(1));
  MapCpExchange(m);
  const std::int64_t model_ranks =
      static_cast<std::int64_t>(plan.parallel.tp) * plan.parallel.pp * plan.parallel.cp;
  if (gpus % model_ranks != 0) {
    return InvalidInput("gpus={}: not a multiple of tp·pp·cp = {}·{}·{}", gpus, plan.parallel.tp,
                        plan.parallel.pp, plan.parallel.cp);
  }
  plan.parallel.dp = static_cast<int>(gpus / model_ranks);
  if (dp != plan.parallel.dp) {  // what the others leave
    m.Assume("dp={} ({}: gpus / (tp·pp·cp))", plan.parallel.dp,
             dp ? fmt::format("{} contradicts gpus", *dp) : "blank");
  }
  if ((m.release.Has("rank_order") && m.release.Text("rank_order") == "tp-cp-pp-dp") ||
      HasToken(m.row, "dp_last") || HasToken(m.row, "dplast")) {
    plan.parallel.rank_order = workload::RankOrder::kPpDp;
  }
  plan.parallel.vpp = static_cast<int>(vpp.value_or(1));
  return {};
}

Status MapBatch(const Mapping& m, std::int64_t open_micro_batch) {
  constexpr std::int64_t kMost = 1 << 30;
  Plan& plan = m.out->plan;
  if (m.row.text("layer_kind") == "cnn") {
    plan.batch.seq_len = 1;  // an image is one token
  } else {
    ORRERY_ASSIGN_OR_RETURN(plan.batch.seq_len, m.row.Needed("seq_len", 1, 1 << 24));
  }
  ORRERY_ASSIGN_OR_RETURN(const auto micro, m.row.Whole("micro_batch", 1, kMost));
  ORRERY_ASSIGN_OR_RETURN(const auto global, m.row.Whole("global_batch", 1, kMost));
  ORRERY_ASSIGN_OR_RETURN(const auto steps, m.row.Whole("grad_accum", 1, kMost));
  plan.batch.micro_batch = micro.value_or(1);
  if (!micro && global && steps && *global % (plan.parallel.dp * *steps) == 0) {
    plan.batch.micro_batch = *global / (plan.parallel.dp * *steps);
    m.Assume("micro_batch={} (blank: global_batch / (dp·grad_accum))", plan.batch.micro_batch);
  } else if (!micro && m.release.Integer("micro_batch") > 0) {
    plan.batch.micro_batch = m.release.Integer("micro_batch");
    m.Assume("micro_batch={} (blank: the release's scripts)", plan.batch.micro_batch);
  } else if (!micro && m.release.Integer("packed_len") > 0) {
    m.Assume("micro_batch=1 (blank: the release packs samples into one sequence)");
  } else if (!micro && global) {
    plan.batch.micro_batch = open_micro_batch;
    m.out->open_micro_batch = true;
  } else if (!micro) {
    m.Assume("micro_batch=1 (blank)");
  }
  if (!global && !steps) {
    return InvalidInput("global_batch is blank: the run cannot be set up without it");
  }
  plan.batch.global_batch = global ? *global : plan.batch.micro_batch * plan.parallel.dp * *steps;
  if (!global)
    m.Assume("global_batch={} (blank: micro_batch·dp·grad_accum)", plan.batch.global_batch);
  CutLocalBatch(m, steps.value_or(1));
  if (global && steps && plan.batch.micro_batch * plan.parallel.dp * *steps != *global) {
    m.Assume("grad_accum={} contradicts global_batch; the batch sizes hold", *steps);
  }
  return {};
}

// Chunks a stage where vpp is blank: as few as interleaving takes where a run says no more than
// that it interleaved, one a layer where the framework's recipes do, else one.
void AssumeChunks(const Mapping& m) {
  Plan& plan = m.out->plan;
  const std::int64_t layers = m.out->model.layers;
  const bool fits = layers % plan.parallel.pp == 0 && plan.microbatches() % plan.parallel.pp == 0;
  const int a_stage = fits ? static_cast<int>(layers / plan.parallel.pp) : 1;
  if (HasToken(m.row, "interleaved_if_possible")) {
    // Megatron interleaves over more than two stages unless sends overlap.
    while (plan.parallel.pp > 2 && plan.parallel.vpp < a_stage &&
           (plan.parallel.vpp == 1 || a_stage % plan.parallel.vpp != 0)) {
      ++plan.parallel.vpp;
    }
    m.Assume("vpp={} (config_extra=interleaved_if_possible, degree not stated)", plan.parallel.vpp);
    return;
  }
  if (m.recipe().interleaved) plan.parallel.vpp = a_stage;
  m.AssumeDefault("vpp", std::to_string(plan.parallel.vpp));
}

// Uneven stages, not stated: the ends, which have embedding and loss besides, have as many layers
// fewer as lets the middle share the rest evenly (--decoder-first-pipeline-num-layers, -last-).
void SpareEnds(const Mapping& m) {
  Plan& plan = m.out->plan;
  const std::int64_t layers = m.out->model.layers;
  for (std::int64_t end = layers / plan.parallel.pp - 1;
       plan.parallel.pp > 2 && plan.parallel.vpp == 1 && end > 0; --end) {
    if ((layers - 2 * end) % (plan.parallel.pp - 2) != 0) continue;
    const auto middle = static_cast<int>((layers - 2 * end) / (plan.parallel.pp - 2));
    plan.parallel.layers_per_stage.assign(static_cast<std::size_t>(plan.parallel.pp), middle);
    plan.parallel.layers_per_stage.front() = plan.parallel.layers_per_stage.back() =
        static_cast<int>(end);
    return m.Assume("config_extra: uneven stages not stated, taken as {} at the ends, {} between",
                    end, middle);
  }
  m.Assume("config_extra: uneven stages not stated, taken as even");
}

// Layers that pp does not divide. PipelineModule's type:transformer of DeepSpeed before 0.12.5
// probes a bound from the first stage on (runtime/utils.py, _lprobe), so that the last has what is
// left; where embedding and head make it divide, type:transformer|embedding counts them.
void SplitUnevenly(const Mapping& m) {
  Plan& plan = m.out->plan;
  const std::int64_t layers = m.out->model.layers;
  const auto stages = static_cast<std::int64_t>(plan.parallel.pp);
  const job::UnevenStages how = m.recipe().uneven_stages;
  if (how == job::UnevenStages::kRefused) return;
  if (how == job::UnevenStages::kFilled && (layers + 2) % stages == 0) {
    m.Assume("embedding and loss counted as a layer each: {} divides {} so", plan.parallel.pp,
             layers + 2);
    return;  // which LayersPerChunk does by itself
  }
  const std::int64_t most = (layers + stages - 1) / stages;
  for (std::int64_t s = 0; s < stages; ++s) {
    const std::int64_t spread = layers / stages + (s < layers % stages ? 1 : 0);
    const std::int64_t left = std::clamp<std::int64_t>(layers - s * most, 0, most);
    plan.parallel.layers_per_stage.push_back(
        static_cast<int>(how == job::UnevenStages::kFilled ? left : spread));
  }
  m.Assume("layers per stage {} to {}: {} balances what pp does not divide",
           plan.parallel.layers_per_stage.back(), most, m.rule.label);
}

// After degrees and batch, which say what interleaving they allow.
void MapSchedule(const Mapping& m) {
  Plan& plan = m.out->plan;
  if (!m.row.has("vpp") && plan.parallel.pp > 1) AssumeChunks(m);
  if (plan.parallel.pp == 1) plan.parallel.vpp = 1;
  const std::int64_t layers = m.out->model.layers;
  if (layers % plan.parallel.pp != 0 && layers > plan.parallel.pp) SplitUnevenly(m);
  if (HasToken(m.row, "uneven")) SpareEnds(m);
  CutStages(m);
  plan.parallel.schedule = plan.parallel.vpp > 1 ? Schedule::k1f1bInterleaved : Schedule::k1f1b;
  if (plan.parallel.vpp == 1) return;
  // Groups of pp micro-batches do not always divide them; a run that exists chose one that fits.
  const std::int64_t microbatches = plan.microbatches();
  for (std::int64_t group = plan.parallel.pp; group <= microbatches; ++group) {
    const std::int64_t rest = microbatches % group;
    if (rest != 0 && rest < plan.parallel.pp) continue;
    if (group == plan.parallel.pp) return;
    plan.parallel.microbatch_group = static_cast<int>(group);
    return m.Assume("micro-batch groups of {}: pp leaves too small a rest of {}", group,
                    microbatches);
  }
}

Status MapSharding(const Mapping& m) {
  Plan& plan = m.out->plan;
  ORRERY_ASSIGN_OR_RETURN(auto group, m.row.Whole("zero_group", 1, 1 << 22));
  const int per_host = m.out->cluster.gpus_per_node;
  const std::int64_t hosts = m.release.Integer("shard_hosts");
  if (!group && hosts > 0 && plan.ranks() >= m.release.Integer("shard_from_hosts") * per_host) {
    group = std::min<std::int64_t>(hosts * per_host, plan.replicas());
    m.Assume("zero_group={} (blank: the release's scripts)", *group);
  }
  const std::string_view sharding = m.row.text("sharding");
  plan.memory.sharding = job::Find(job::kShardings, sharding).value_or(m.recipe().sharding);
  if (sharding == "hsdp") {
    plan.memory.sharding = Sharding::kZero3;
    if (!group) group = std::min(per_host, plan.replicas());
    m.Assume("sharding=hsdp: zero3 in groups of {}", *group);
  }
  if (sharding.empty()) {
    m.AssumeDefault("sharding", job::NameOf(job::kShardings, plan.memory.sharding));
  }
  if (plan.memory.sharding == Sharding::kZero2 && m.defaults().tensor_buckets) {
    plan.framework.reducer = workload::Reducer::kDeepSpeed;
  }
  job::ApplyZero1(m.defaults(), &plan);
  if (plan.memory.sharding != Sharding::kNone && group && *group != plan.parallel.dp &&
      *group < plan.replicas()) {
    plan.memory.shard_group = static_cast<int>(*group);
    m.Assume("zero_group={}: shards in groups of neighbouring ranks, gradients {}", *group,
             plan.framework.reduce_whole ? "all-reduced over all"
                                         : "reduced in the group, then between");
  }
  if (plan.gathers_units()) {
    m.Assume("parameters sharded over {} data-parallel ranks, a layer a unit", plan.shard_ranks());
    plan.framework.flat_parameters = m.defaults().options.flat_parameters;
    plan.framework.copies_units =
        m.defaults().options.copies_units || m.release.Bool("copies_units");
    plan.framework.unit_buffers =
        m.defaults().options.unit_buffers && HasToken(m.row, "megatron_fsdp");
    plan.framework.hold_units =
        m.row.text("task") != "lora" && job::HoldsUnits(m.defaults(), m.out->model, plan);
    plan.framework.model_type_states = m.defaults().options.model_type_states;
    plan.framework.list_gathers =
        m.defaults().options.list_gathers && plan.memory.sharding == Sharding::kZero3;
    plan.framework.gather_limit =
        m.recipe().limit_all_gathers ? workload::GatherLimit::kHost : m.defaults().gather_limit;
    if (plan.keeps_units() && plan.memory.sharding == Sharding::kZero3) {
      plan.memory.reshard = workload::kKeepGathered;
    }
  }
  if (plan.replicas() == 1) {
    plan.memory.sharding = Sharding::kNone;
    plan.framework.reducer = workload::Reducer::kBuffer;
  }
  return {};
}

Status MapRecompute(const Mapping& m) {
  Plan& plan = m.out->plan;
  const std::string_view cell = m.row.text("recompute");
  const std::string modules = RecomputeModules(m.row);
  if (!modules.empty() && cell != "full") {
    plan.memory.recompute = Recompute::kSelective;
    ORRERY_ASSIGN_OR_RETURN(plan.memory.recompute_modules,
                            workload::ParseRecomputeModules(modules));
    plan.framework.recompute_flash = m.defaults().options.recompute_flash;
    return {};
  }
  const std::string recipe = formats::TextOf(m.release, "recompute_modules");
  if (cell.empty() && !recipe.empty() && !HasToken(m.row, "recompute=")) {
    plan.memory.recompute = Recompute::kSelective;
    ORRERY_ASSIGN_OR_RETURN(plan.memory.recompute_modules, workload::ParseRecomputeModules(recipe));
    plan.framework.recompute_flash = m.defaults().options.recompute_flash;
    m.Assume("recompute={} (blank: the release's recipes)", recipe);
    return {};
  }
  if (cell.empty() && m.release.Has("recompute")) {
    plan.memory.recompute = Recompute::kNone;
    m.Assume("recompute=none (blank: the release's scripts)");
  } else if (cell.empty()) {
    plan.memory.recompute = m.recipe().recompute;
    m.AssumeDefault("recompute", job::NameOf(job::kRecomputes, plan.memory.recompute));
  } else {
    const auto stated = job::Find(job::kRecomputes, cell);
    if (!stated) {
      return InvalidInput("recompute={}: must be none, selective or full", Printable(cell, 40));
    }
    plan.memory.recompute = *stated;
  }
  job::ApplyRecompute(m.defaults(), &plan);
  if (m.release.Has("recompute_keeps") && plan.memory.recompute == Recompute::kFull) {
    plan.framework.recompute_keeps =
        job::Choose(job::kRecomputeKeeps, m.release.Text("recompute_keeps"));
    m.Assume("recompute keeps what the release's scripts say");
  }
  return {};
}

// "10 layers", "activations of 10 layers": ten.
std::optional<std::int64_t> LayersIn(std::string_view cell) {
  const std::size_t from = cell.find_first_of("0123456789");
  if (from == std::string_view::npos || cell.find("layer", from) == std::string_view::npos) {
    return {};
  }
  const std::size_t to = std::min(cell.find_first_not_of("0123456789", from), cell.size());
  const auto layers = ParseInteger(cell.substr(from, to - from));
  if (!layers.ok() || *layers < 1) return {};
  return *layers;
}

Status MapOffload(const Mapping& m) {
  Plan& plan = m.out->plan;
  const std::string_view cell = m.row.text("offload");
  plan.parallel.ranks_per_host = std::min(m.out->cluster.gpus_per_node, plan.ranks());
  if (cell.empty() || cell == "none") return {};
  if (cell == "optimizer-cpu") {
    plan.memory.offload_optimizer = true;
    m.Assume("offload=optimizer-cpu: Adam on the CPU, {} GPUs a host",
             plan.parallel.ranks_per_host);
    return {};
  }
  const std::optional<std::int64_t> layers = LayersIn(cell);
  if (!cell.starts_with("activation") && !layers) {
    return InvalidInput("offload={}: must be none, optimizer-cpu, activation or 'N layers'",
                        Printable(cell, 40));
  }
  plan.memory.offload_activations = true;
  if (layers && *layers < m.out->model.layers) {
    plan.memory.offload_layers = *layers;
    m.Assume("offload={}: activations of the first {} layers, as Transformer Engine's", cell,
             *layers);
  } else {
    m.Assume("offload=activation: all that a layer keeps, copied beside the next layer");
  }
  return {};
}

void MapInput(const Mapping& m) {
  if (!m.release.Has("data_storage")) return;
  m.out->plan.batch.object_store = true;
  m.Assume("samples are read from an object store by two workers (the recipes')");
}

}  // namespace

Result<TrainingCase> MapTraining(const Configuration& row, Assumed* assumed,
                                 std::int64_t micro_batch, const RowTables& tables) {
  ORRERY_RETURN_IF_ERROR(tables.words.CheckScope(row));
  ORRERY_ASSIGN_OR_RETURN(const FrameworkMatch rule,
                          tables.frameworks.Match(row, tables.data->frameworks));
  TrainingCase out;
  out.framework = rule.framework;
  // Every switch as the framework's row has it; what needs more than that is mapped below.
  out.plan.framework = rule.framework->defaults.options;
  out.plan.framework.low_precision_gather = false;
  out.plan.framework.torch_layers = workload::TorchLayers::kFused;
  const Mapping m{row, rule, assumed, &out, tables.recipes.Find(row, rule.framework->name)};
  ORRERY_RETURN_IF_ERROR(MapDegrees(m));
  ORRERY_RETURN_IF_ERROR(MapBatch(m, micro_batch));
  ORRERY_RETURN_IF_ERROR(MapPrecision(m));
  job::FrameworkRecipe recipe = m.recipe();
  if (m.release.Has("dropout")) recipe.gpt_dropout = m.release.Real("dropout");
  ORRERY_ASSIGN_OR_RETURN(out.model, MapModel(row, recipe, tables, assumed));
  ORRERY_ASSIGN_OR_RETURN(out.cluster, MapTrainingMachine(row, tables, assumed));
  out.plan.parallel.nvlink_ranks = out.cluster.gpus_per_nvlink_domain;
  if (m.release.Bool("vboost")) {
    out.cluster.device.vboost = true;
    m.Assume("vboost: power steered to the SMs, as the release's scripts do");
  }
  if (m.release.Has("cuda")) {
    out.cluster.device.cuda = static_cast<int>(m.release.Integer("cuda"));
    m.Assume("CUDA {}: the release's container", out.cluster.device.cuda);
  }
  MapSchedule(m);
  ORRERY_RETURN_IF_ERROR(MapSharding(m));
  ORRERY_RETURN_IF_ERROR(MapRecompute(m));
  MapAttention(m);
  ORRERY_RETURN_IF_ERROR(MapOverlap(m));
  ORRERY_RETURN_IF_ERROR(MapLibraries(m));
  job::ClearExpertSwitches(out.model, &out.plan);
  if (HasExperts(row)) ORRERY_RETURN_IF_ERROR(MapExperts(m));
  MapTask(m);
  if (out.plan.parallel.pp > 1 && out.plan.lora.rank == 0)
    out.plan.framework.deferred_head = m.release.Integer("deferred_head");
  if (out.plan.framework.deferred_head > 0) {
    m.Assume("deferred_head={} (blank: the release's recipes)", out.plan.framework.deferred_head);
  }
  ORRERY_RETURN_IF_ERROR(MapOffload(m));
  MapInput(m);
  if (out.plan.experts.moe_comm_overlap && out.plan.memory.offload_activations) {
    out.plan.experts.moe_comm_overlap = out.plan.experts.moe_delayed_weights = false;
    m.Assume("ep_overlap=1: not built with offloading, dispatch and combine stand alone");
  }
  if (out.model.mtp_layers > 0 &&
      (out.plan.memory.offload_activations || out.plan.gathers_units())) {
    out.model.mtp_layers = 0;
    m.Assume("prediction of further tokens: not built with this plan, left out");
  }
  KeepToWhatIsThere(m);
  MapUserbuffers(m);
  ORRERY_RETURN_IF_ERROR(workload::Validate(out.model, out.plan));
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
