#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>

#include "orrery/base/text.h"
#include "orrery/job/expert_keys.h"
#include "orrery/search/validate/config_extra.h"
#include "orrery/search/validate/mapping.h"

namespace orrery::search {
namespace {

using workload::Model;
using Assumed = std::vector<std::string>;

constexpr std::string_view kDispatcherKey = "training.moe_dispatcher";
constexpr std::string_view kOverlapKey = "training.moe_comm_overlap";
constexpr std::string_view kDelayedKey = "training.moe_delayed_weights";
constexpr std::string_view kPadsKey = "training.moe_pad_to_capacity";

// A column that is given must say what the public configuration says.
Status CheckColumn(const Configuration& row, std::string_view column, std::int64_t is) {
  const auto given = row.Whole(column);
  if (!given || *given == is) return {};
  return InvalidInput("{}={}: the public configuration of {} has {}", column, *given,
                      Printable(row.text("model"), 40), is);
}

// Modules that predict further tokens: as the model's recipes have them.
void MapMtp(const Configuration& row, const ModelName* known, Model* model, Assumed* assumed) {
  const bool have = known != nullptr && known->keys.Has("mtp_layers");
  model->mtp_layers = have ? known->keys.Integer("mtp_layers") : 0;
  model->mtp_repeats = known != nullptr && known->keys.Has("mtp_repeats");
  if (HasToken(row, "w/o MTP")) model->mtp_layers = 0;
  if (HasToken(row, "+mtp") && !have) model->mtp_layers = 1;
  if (model->mtp_layers == 0) return;
  assumed->push_back(fmt::format("mtp_layers={} (the public recipes')", model->mtp_layers));
}

// Graphs of parts of a layer, and overlap, that the row leaves blank.
void MapGraphsAndOverlap(const Mapping& m, bool overlap) {
  job::Draft& job = m.job();
  const formats::Section& recipe = m.release.own;
  if (m.row.has("cuda_graphs") || m.row.has("ep_overlap")) {
    job.Drop(kOverlapKey);
  } else if (recipe.Has("expert_graphs")) {
    job.Set("framework_options.cuda_graphs", recipe.Text("expert_graphs"));
    if (recipe.Has("cuda_graph_scope")) {
      job.Set("framework_options.cuda_graph_scope", recipe.Text("cuda_graph_scope"));
    }
    m.Assume("cuda_graphs and ep_overlap blank: {} graphs, as the release's recipes",
             recipe.Text("expert_graphs"));
  }
  if (overlap) job.Set(kOverlapKey, true);
  const bool delayed = job.Has(kDelayedKey);
  job.Drop(kDelayedKey);
  if (job.Has(kOverlapKey) && delayed) job.Set(kDelayedKey, true);
}

void MapRouting(const Mapping& m, bool pads) {
  const std::string_view cell = m.row.text("moe_routing");
  const bool forced = cell == "forced-balanced";
  std::string_view routing = forced              ? m.recipe().forced_routing
                             : cell.empty()      ? m.recipe().open_routing
                             : cell == "natural" ? cell
                                                 : "balanced";
  if (pads && routing == "natural") routing = "balanced";
  if (routing != "balanced") m.job().Set("training.moe_routing", routing);
  if (forced && routing == "balanced") return;
  m.Assume("moe_routing={}: {}", cell.empty() ? "(blank)" : cell,
           routing == "balanced"  ? "taken as balanced"
           : routing == "natural" ? "every division of tokens among experts as likely"
                                  : "experts dealt out in turn, a token's are neighbours");
}

void MapExpertDegrees(const Mapping& m, std::int64_t ep) {
  constexpr std::string_view kEtp = "parallel.etp";
  const std::int64_t tp = m.tp(), stated = StatedEtp(m.row), ranks = m.replicas() * tp;
  const std::int64_t width = m.out->model.experts.ffn_hidden;
  const bool fits = ranks % (tp * ep) == 0 && width % tp == 0;
  const std::int64_t released = m.job().Whole(kEtp, 0);
  m.job().Set("parallel.ep", ep);
  m.job().Set(kEtp, stated > 0                     ? stated
                    : released > 0                 ? released
                    : fits && m.recipe().expert_tp ? tp
                                                   : 1);
  if (tp == 1 || stated > 0) return;
  m.Assume(
      "etp={} (blank: {})", m.degree(kEtp),
      released > 0 || !m.recipe().expert_tp ? "the recipes' value" : "tp where the ranks allow it");
}

}  // namespace

bool HasExperts(const Configuration& row) { return row.text("arch") == "moe"; }

Result<std::optional<Model>> MapKnownModel(const Mapping& mapping) {
  const Configuration& row = mapping.row;
  const ModelName* const known = mapping.tables.models.Find(row.text("model"), true);
  if (known == nullptr) return std::optional<Model>();
  ORRERY_ASSIGN_OR_RETURN(Model m, mapping.tables.data->models.Find(known->model));
  ApplyRelease(mapping, &m);
  ORRERY_RETURN_IF_ERROR(CheckColumn(row, "hidden", m.hidden));
  ORRERY_RETURN_IF_ERROR(CheckColumn(row, "heads", m.heads));
  ORRERY_RETURN_IF_ERROR(CheckColumn(row, "topk", m.experts.top_k));
  const auto layers = row.Whole("layers");
  const auto experts = row.Whole("experts");
  if (!m.pattern.empty() && layers && *layers != m.layers) {
    return InvalidInput("layers={}: the pattern of {} has {}", *layers, known->model, m.layers);
  }
  m.layers = layers.value_or(m.layers);
  m.experts.first_dense = std::min(m.experts.first_dense, m.layers);
  m.experts.count = experts.value_or(m.experts.count);
  m.name = std::string(row.text("model"));
  mapping.out->preset = known->model;
  mapping.Assume("shapes of {}: {}", known->model, m.source);
  MapMtp(row, known, &m, mapping.assumed);
  return std::optional<Model>(std::move(m));
}

Status AddExperts(const Configuration& row, Model* model, Assumed* assumed) {
  MapMtp(row, nullptr, model, assumed);
  ORRERY_ASSIGN_OR_RETURN(model->experts.count, row.Needed("experts"));
  ORRERY_ASSIGN_OR_RETURN(model->experts.top_k, row.Needed("topk"));
  if (row.text("layer_kind") == "mla") {
    // MLATransformerConfig's defaults.
    model->latent = {.q_rank = 512, .kv_rank = 512, .nope_dim = 128, .rope_dim = 64, .v_dim = 128};
    model->head_dim = 192;
    model->kv_heads = model->heads;
    assumed->push_back("layer_kind=mla: latent ranks and head sizes are Megatron's defaults");
    // Latent attention comes with fine-grained experts (DeepSeekMoE, 2024, section 3): a token's
    // experts are together as wide as the dense layer, one more is shared.
    model->experts.ffn_hidden = model->ffn_hidden / model->experts.top_k;
    model->experts.shared_ffn_hidden = model->experts.ffn_hidden;
    model->experts.first_dense = 1;
    assumed->push_back(
        fmt::format("layer_kind=mla: experts of width {} (ffn_hidden / topk), one shared, behind "
                    "one dense layer, as DeepSeek's",
                    model->experts.ffn_hidden));
    return {};
  }
  model->experts.ffn_hidden = model->ffn_hidden;
  assumed->push_back(
      fmt::format("experts of width {}, the feed-forward's, in all layers", model->ffn_hidden));
  return {};
}

Status MapExperts(const Mapping& m) {
  job::Draft& job = m.job();
  ORRERY_ASSIGN_OR_RETURN(const std::int64_t ep, m.row.Needed("ep"));
  const auto overlap = m.row.Flag("ep_overlap");
  MapExpertDegrees(m, ep);
  if (!job.Has(kDispatcherKey)) {
    m.Fill("moe_dispatcher", kDispatcherKey, m.recipe().moe_dispatcher);
  }
  // Flags that are off by default in a framework whose records say what was on.
  for (const auto& [key, has] :
       {std::pair{"framework_options.moe_fused_permute", m.defaults().options.moe_fused_permute},
        std::pair{"framework_options.moe_fused_router", m.defaults().options.moe_fused_router}}) {
    if (m.recipe().says_switches && has) job.Set(key, false);
  }
  const bool pads = job.Has(kPadsKey);
  MapRouting(m, pads);
  if (pads && job.Text(kDispatcherKey) != "alltoall") job.Drop(kPadsKey);
  MapGraphsAndOverlap(m, overlap.value_or(false));
  return {};
}

}  // namespace orrery::search
