#include "orrery/search/validate/training.h"

#include "orrery/base/text.h"
#include "orrery/base/units.h"
#include "orrery/job/plan_keys.h"
#include "orrery/search/validate/config_extra.h"
#include "orrery/search/validate/machines.h"
#include "orrery/search/validate/mapping.h"

namespace orrery::search {
namespace {

using Assumed = std::vector<std::string>;

constexpr std::string_view kShardingKey = "training.sharding";
constexpr std::string_view kRecomputeKey = "training.recompute";
constexpr std::string_view kModulesKey = "training.recompute_modules";

void MapSharding(const Mapping& m) {
  auto group = m.row.Whole("zero_group");
  const std::int64_t per_host = m.out->cluster.gpus_per_node, replicas = m.replicas();
  const std::int64_t hosts = m.release.own.Integer("shard_hosts");
  if (!group && hosts > 0 &&
      replicas * m.tp() * m.pp() >= m.release.own.Integer("shard_from_hosts") * per_host) {
    group = std::min(hosts * per_host, replicas);
    m.Assume("zero_group={} (blank: the release's scripts)", *group);
  }
  const std::string_view sharding = m.row.text("sharding");
  if (sharding == "hsdp") {
    m.job().Set(kShardingKey, "zero3");
    if (!group) group = std::min(per_host, replicas);
    m.Assume("sharding=hsdp: zero3 in groups of {}", *group);
  } else if (sharding.empty()) {
    m.Fill("sharding", kShardingKey, job::NameOf(job::kShardings, m.recipe().sharding));
  }
  if (replicas == 1) m.job().Set(kShardingKey, "none");
  if (m.job().Text(kShardingKey) == "none") return;
  if (group && *group != m.dp() && *group < replicas) {
    m.job().Set("parallel.shard_group", *group);
    m.Assume("zero_group={}: shards in groups of neighbouring ranks", *group);
  }
  if (m.recipe().limit_all_gathers && m.job().Text(kShardingKey) == "zero3" &&
      m.row.text("dp_overlap") != "0") {
    m.job().Set("framework_options.limit_all_gathers", true);
  }
  constexpr std::string_view kBuffers = "framework_options.unit_buffers";
  if (m.gathers_units() && m.defaults().options.unit_buffers && !m.job().Has(kBuffers)) {
    m.job().Set(kBuffers, false);  // not Megatron-FSDP's
  }
}

void RecomputeByModule(const Mapping& m, std::string_view modules) {
  m.job().Set(kRecomputeKey, "selective");
  m.job().Set(kModulesKey, modules);
  if (m.defaults().selective_keeps != workload::RecomputeKeeps::kNothing) {
    m.job().Set("framework_options.recompute_keeps", "nothing");
  }
}

void MapRecompute(const Mapping& m) {
  const std::string_view cell = m.row.text("recompute");
  const std::string stated = RecomputeModules(m.row);
  const std::string released(m.job().Text(kModulesKey));
  m.job().Drop(kModulesKey);
  if (!stated.empty() && cell != "full") {
    RecomputeByModule(m, stated);
  } else if (cell.empty() && !released.empty() && !HasToken(m.row, "recompute=")) {
    RecomputeByModule(m, released);
  } else if (!m.job().Has(kRecomputeKey)) {
    m.Fill("recompute", kRecomputeKey, job::NameOf(job::kRecomputes, m.recipe().recompute));
  }
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
  const std::string_view cell = m.row.text("offload");
  if (cell.empty() || cell == "none") return {};
  if (cell == "optimizer-cpu") {
    m.job().Set("training.offload", "optimizer");
    return {};
  }
  const std::optional<std::int64_t> layers = LayersIn(cell);
  if (!cell.starts_with("activation") && !layers) {
    return InvalidInput("offload={}: must be none, optimizer-cpu, activation or 'N layers'",
                        Printable(cell, 40));
  }
  m.job().Set("training.offload", "activations");
  if (layers && *layers < m.out->model.layers) {
    m.job().Set("training.offload_layers", *layers);
    m.Assume("offload={}: activations of the first {} layers, as Transformer Engine's", cell,
             *layers);
  } else {
    m.Assume("offload=activation: all that a layer keeps, copied beside the next layer");
  }
  return {};
}

// Of a release's keys those that say something in this run.
void DropWhatSaysNothing(const Mapping& m) {
  job::Draft& job = m.job();
  const auto only = [&](bool if_so, std::initializer_list<std::string_view> keys) {
    for (const std::string_view key : keys) {
      if (!if_so) job.Drop(key);
    }
  };
  const std::string_view precision = job.Text("training.precision");
  const bool adapters = m.row.text("task") == "lora";
  only(IsOneOf(precision, "fp8|mxfp8|nvfp4"),
       {"training.bf16_last_layers", "training.bf16_modules", "framework_options.fp8_attention",
        "framework_options.fp8_output_layer", "framework_options.low_precision_gather"});
  only(precision == "fp8", {"framework_options.fp8_recipe"});
  only(m.cp() > 1, {"framework_options.cp_exchange"});
  only(m.tp() == 1, {"framework_options.chunked_loss"});
  only(m.pp() > 1 && !adapters, {"framework_options.deferred_head"});
  only(job.Text(kRecomputeKey) == "full" || job.Has(kModulesKey),
       {"framework_options.recompute_keeps"});
  only(HasExperts(m.row),
       {"parallel.etp", "training.moe_dispatcher", "training.moe_pad_to_capacity",
        "training.moe_comm_overlap", "training.moe_delayed_weights",
        "framework_options.moe_fused_router", "framework_options.moe_fused_mlp"});
}

// Samples of fine-tuning packed into sequences, where the plan allows it.
void MapPacking(const Mapping& m) {
  constexpr std::string_view kPacked = "training.packed_len";
  if (!IsOneOf(m.row.text("task"), "sft|lora")) return;
  const std::int64_t tokens = m.job().Whole(kPacked, 0);
  const std::int64_t seq_len = m.job().Whole("training.seq_len", 1);
  if (tokens > 0 && m.cp() == 1 && seq_len > tokens && seq_len % tokens == 0 &&
      m.job().Text("framework_options.attention") != "unfused") {
    return m.Assume("task={}: samples of {} tokens packed (the recipes')", m.row.text("task"),
                    tokens);
  }
  m.job().Drop(kPacked);
  m.Assume("task={}: full sequences, as pretraining", m.row.text("task"));
}

void SayRelease(const Mapping& m) {
  std::string said;
  for (const formats::Field& field : m.release.job) {
    if (!m.job().Has(field.key) || m.job().Text(field.key) != field.value.text) continue;
    said += fmt::format("{}{} {}", said.empty() ? "" : ", ", field.key, field.value.text);
  }
  if (!said.empty()) m.Assume("as the release's scripts, or config_extra: {}", said);
}

// What a model's modules for further tokens are not built with.
void DropMtp(const Mapping& m) {
  if (m.out->model.mtp_layers == 0 ||
      (m.job().Text("training.offload") != "activations" && !m.gathers_units())) {
    return;
  }
  m.out->model.mtp_layers = 0;
  m.Assume("prediction of further tokens: not built with this plan, left out");
}

// What cells say of the job's keys: of our columns, which the rules then read, or of a user's own,
// which hold over those.
void SetKeys(const Mapping& m, bool own) {
  for (const auto& [column, text] : m.row.keys()) {
    if (column->own != own) continue;
    const bool flag = column->switches && (text == "0" || text == "1");
    m.job().Set(column->key, flag ? text == "1" ? "true" : "false" : text);
    if (column->name != column->key) m.job().SaidBy(column->key, "column " + column->name);
  }
}

Status WriteModelAndCluster(const Mapping& m) {
  RowDraft& out = *m.out;
  const job::Data& data = *m.tables.data;
  std::optional<workload::Model> preset;
  if (!out.preset.empty()) {
    ORRERY_ASSIGN_OR_RETURN(preset, data.models.Find(out.preset));
  }
  ORRERY_ASSIGN_OR_RETURN(const cluster::Spec machine, data.clusters.Find(out.cluster.name));
  out.job.SetAll("model", job::ModelText(out.model, preset ? &*preset : nullptr));
  out.job.SetAll("cluster", job::ClusterText(out.cluster, machine));
  return {};
}

}  // namespace

Result<RowDraft> MapTraining(const Configuration& row, Assumed* assumed, std::int64_t micro_batch,
                             const RowTables& tables) {
  ORRERY_RETURN_IF_ERROR(tables.words.CheckScope(row));
  ORRERY_ASSIGN_OR_RETURN(const FrameworkMatch rule,
                          tables.frameworks.Match(row, tables.data->frameworks));
  ORRERY_RETURN_IF_ERROR(row.Check());
  RowDraft out;
  const Mapping m{
      row,  tables,
      rule, assumed,
      &out, tables.recipes.Find(row, rule.framework->name, tables.frameworks.OriginOf(row))};
  out.job.Set("framework", rule.framework->name);
  for (const formats::Field& field : m.release.job) out.job.Set(field.key, field.value);
  SetKeys(m, false);
  ORRERY_RETURN_IF_ERROR(MapDegrees(m));
  ORRERY_RETURN_IF_ERROR(MapBatch(m, micro_batch));
  ORRERY_RETURN_IF_ERROR(MapPrecision(m));
  ORRERY_RETURN_IF_ERROR(MapModel(m));
  ORRERY_ASSIGN_OR_RETURN(out.cluster, MapTrainingMachine(row, tables, assumed));
  MapStages(m);
  MapSharding(m);
  MapRecompute(m);
  DropWhatSaysNothing(m);
  MapAttention(m);
  ORRERY_RETURN_IF_ERROR(MapOverlap(m));
  MapLibraries(m);
  if (HasExperts(row)) ORRERY_RETURN_IF_ERROR(MapExperts(m));
  MapPacking(m);
  ORRERY_RETURN_IF_ERROR(MapOffload(m));
  DropMtp(m);
  MapBf16Parts(m);
  ORRERY_RETURN_IF_ERROR(WriteModelAndCluster(m));
  SetKeys(m, true);
  SayRelease(m);
  return out;
}

std::string_view TrainingStratum(const Configuration& row) {
  if (row.text("arch") == "moe") return "moe";
  const std::string_view sharding = row.text("sharding");
  const std::string_view family = row.text("framework_family");
  if (sharding == "zero2" || sharding == "zero3" || IsOneOf(family, "fsdp1|fsdp2|jax-fsdp")) {
    return "fsdp/zero3";
  }
  const auto gpus = row.Whole("gpus");
  if (gpus && *gpus <= 8) return "one node, small";
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
