#include "orrery/search/validate/expert_models.h"

#include <algorithm>
#include <array>
#include <optional>

#include "orrery/base/text.h"
#include "orrery/job/expert_keys.h"
#include "orrery/search/validate/config_extra.h"
#include "orrery/search/validate/test_cases.h"
#include "orrery/search/validate/torch_native.h"

namespace orrery::search {
namespace {

using workload::Dispatcher;
using workload::Model;
using workload::Plan;
using Assumed = std::vector<std::string>;

// A column that is given must say what the public configuration says.
Status CheckColumn(const Configuration& row, std::string_view column, std::int64_t is) {
  ORRERY_ASSIGN_OR_RETURN(const auto given, row.Whole(column, 1, 1 << 24));
  if (!given || *given == is) return {};
  return InvalidInput("{}={}: the public configuration of {} has {}", column, *given,
                      Printable(row.text("model"), 40), is);
}

// Chunks that layers do not divide: as many as fill all of them, less what Megatron's layouts give
// to embedding, loss and prediction of further tokens: one at either end where two are missing
// (account_for_embedding_in_pipeline_split, …_loss_…), else the last chunks go short.
void BalanceLayers(const Model& model, Plan* plan, Assumed* assumed) {
  const std::int64_t chunks = std::int64_t{plan->parallel.pp} * plan->parallel.vpp;
  if (!plan->parallel.layers_per_stage.empty() || chunks > model.layers ||
      workload::LayersPerChunk(model, *plan).ok()) {
    return;
  }
  const auto full = static_cast<int>((model.layers + chunks - 1) / chunks);
  std::int64_t missing = chunks * full - model.layers;
  std::vector<int>& layers = plan->parallel.layers_per_stage;
  layers.assign(static_cast<std::size_t>(chunks), full);
  if (missing == 2) {
    --layers.front();
    --missing;
  }
  for (std::size_t c = layers.size(); c-- > 0 && missing > 0;) {
    const auto less = static_cast<int>(std::min<std::int64_t>(missing, std::max(full - 1, 1)));
    layers[c] -= less;
    missing -= less;
  }
  assumed->push_back(fmt::format("layers per chunk: {}, {} of {} in the last ({} do not divide {})",
                                 full, layers.back(), full, chunks, model.layers));
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

// Overlap and graphs that the row leaves blank.
void MapRecipe(const Mapping& m) {
  Plan& plan = m.out->plan;
  const formats::Section& recipe = m.release;
  plan.framework.moe_fused_mlp = recipe.Bool("moe_fused_mlp");
  if (recipe.Bool("fp8_attention") || recipe.Bool("fp8_output_layer")) {
    plan.framework.fp8_attention = recipe.Bool("fp8_attention");
    plan.framework.fp8_output_layer = recipe.Bool("fp8_output_layer");
    m.Assume("in 8 bits, as the release's recipes: {}{}{}",
             plan.framework.fp8_attention ? "attention" : "",
             plan.framework.fp8_attention && plan.framework.fp8_output_layer ? ", " : "",
             plan.framework.fp8_output_layer ? "the output layer" : "");
  }
  if (m.row.has("cuda_graphs") || m.row.has("ep_overlap")) return;
  const auto graphs = job::Choose(job::kCudaGraphs, recipe.Text("expert_graphs"));
  const bool overlap = recipe.Bool("moe_comm_overlap");
  if (graphs == workload::CudaGraphs::kNone && !overlap) return;
  plan.framework.cuda_graphs = graphs;
  plan.framework.graph_scope = workload::kGraphAll;
  if (recipe.Has("cuda_graph_scope")) {
    plan.framework.graph_scope = *workload::ParseGraphScope(recipe.Text("cuda_graph_scope"));
  }
  plan.experts.moe_comm_overlap = overlap;
  m.Assume("cuda_graphs and ep_overlap blank: {} graphs, {} overlap, as the release's recipes",
           graphs == workload::CudaGraphs::kIteration ? "one an iteration"
           : graphs == workload::CudaGraphs::kLayers  ? "a graph a layer and pass"
                                                      : "no",
           overlap ? "with" : "no");
}

// Where nothing evens tokens out: torchtitan's runs on text of some hundred steps from scratch, and
// those that say so. NVIDIA's recipes force balance or read random tokens.
void MapRouting(const Mapping& m, bool drops) {
  MapForcedRouting(m);
  Plan& plan = m.out->plan;
  const std::string_view cell = m.row.text("moe_routing");
  if (cell == "forced-balanced" || plan.experts.routing != workload::Routing::kBalanced) return;
  const bool natural = !drops && (cell == "natural" || (cell.empty() && TorchPipelining(m)));
  if (natural) plan.experts.routing = workload::Routing::kNatural;
  m.Assume("moe_routing={}: {}", cell.empty() ? "(blank)" : cell,
           natural ? "every division of tokens among experts as likely" : "taken as balanced");
}

bool IsBridge(const Configuration& row) {
  return row.text("framework").find("Bridge") != std::string_view::npos;
}

Status MapDispatcher(const Mapping& m) {
  Plan& plan = m.out->plan;
  const std::string_view cell = m.row.text("moe_dispatcher");
  if (cell.empty()) {
    // Megatron's command line alone gathers; torchtitan's ExpertParallel has no other way.
    const bool exchanges = m.rule.label == "NeMo" || m.rule.label == "FSDP2" || IsBridge(m.row);
    const bool said = m.release.Has("moe_dispatcher");
    plan.experts.dispatcher = said
                                  ? job::Choose(job::kDispatchers, m.release.Text("moe_dispatcher"))
                              : exchanges ? Dispatcher::kAllToAll
                                          : Dispatcher::kAllGather;
    m.Assume("moe_dispatcher={} (blank: {})",
             job::NameOf(job::kDispatchers, plan.experts.dispatcher),
             said ? "the release's recipes" : fmt::format("{}'s default", m.rule.label));
    return {};
  }
  const auto stated = job::Find(job::kDispatchers, cell);
  if (!stated) {
    return InvalidInput("moe_dispatcher={}: must be allgather, alltoall, deepep or hybridep",
                        Printable(cell, 40));
  }
  plan.experts.dispatcher = *stated;
  return {};
}

}  // namespace

bool HasExperts(const Configuration& row) { return row.text("arch") == "moe"; }

Result<std::optional<Model>> MapKnownModel(const Configuration& row, const RowTables& tables,
                                           Assumed* assumed) {
  const ModelName* const known = tables.models.Find(row.text("model"), true);
  if (known == nullptr) return std::optional<Model>();
  ORRERY_ASSIGN_OR_RETURN(Model m, tables.data->models.Find(known->model));
  tables.cases.Apply(row, &m, assumed);
  ORRERY_RETURN_IF_ERROR(CheckColumn(row, "hidden", m.hidden));
  ORRERY_RETURN_IF_ERROR(CheckColumn(row, "heads", m.heads));
  ORRERY_RETURN_IF_ERROR(CheckColumn(row, "topk", m.experts.top_k));
  ORRERY_ASSIGN_OR_RETURN(const auto layers, row.Whole("layers", 1, 10'000));
  ORRERY_ASSIGN_OR_RETURN(const auto experts, row.Whole("experts", 1, 1 << 16));
  if (!m.pattern.empty() && layers && *layers != m.layers) {
    return InvalidInput("layers={}: the pattern of {} has {}", *layers, known->model, m.layers);
  }
  m.layers = layers.value_or(m.layers);
  m.experts.first_dense = std::min(m.experts.first_dense, m.layers);
  m.experts.count = experts.value_or(m.experts.count);
  m.name = std::string(row.text("model"));
  assumed->push_back(fmt::format("shapes of {}: {}", known->model, m.source));
  MapMtp(row, known, &m, assumed);
  return std::optional<Model>(std::move(m));
}

Status AddExperts(const Configuration& row, Model* model, Assumed* assumed) {
  MapMtp(row, nullptr, model, assumed);
  ORRERY_ASSIGN_OR_RETURN(model->experts.count, row.Needed("experts", 2, 1 << 16));
  ORRERY_ASSIGN_OR_RETURN(model->experts.top_k, row.Needed("topk", 1, 1 << 16));
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
  const Configuration& row = m.row;
  const Model& model = m.out->model;
  Plan& plan = m.out->plan;
  ORRERY_ASSIGN_OR_RETURN(const std::int64_t ep, row.Needed("ep", 1, 4096));
  ORRERY_ASSIGN_OR_RETURN(const auto overlap, row.Flag("ep_overlap"));
  plan.parallel.ep = static_cast<int>(ep);
  const std::int64_t ranks = plan.stage_ranks();
  const bool fits = ranks % (std::int64_t{plan.parallel.tp} * ep) == 0 &&
                    model.experts.ffn_hidden % plan.parallel.tp == 0;
  const bool bridge = IsBridge(row);
  const int stated = StatedEtp(row), recipes = static_cast<int>(m.release.Integer("etp"));
  plan.parallel.etp = stated > 0        ? stated
                      : recipes > 0     ? recipes
                      : fits && !bridge ? plan.parallel.tp
                                        : 1;
  if (plan.parallel.tp > 1 && stated == 0) {
    m.Assume("etp={} (blank: {})", plan.parallel.etp,
             bridge || recipes > 0 ? "the recipes' value" : "tp where the ranks allow it");
  }
  ORRERY_RETURN_IF_ERROR(MapDispatcher(m));
  const bool fused = !m.recipe().says_switches;
  plan.framework.moe_fused_permute = m.defaults().options.moe_fused_permute && fused;
  plan.framework.moe_fused_router =
      m.defaults().options.moe_fused_router && fused && m.release.Bool("moe_fused_router");
  plan.framework.moe_separate_padding = m.defaults().options.moe_separate_padding;
  const bool drops = HasToken(row, "tokendrop"), pads = m.release.Bool("moe_pad_to_capacity");
  MapRouting(m, drops || pads);
  if (drops || pads) {
    plan.experts.pad_to_capacity = plan.experts.dispatcher == workload::Dispatcher::kAllToAll;
    m.Assume("{}: every expert padded to the mean",
             drops ? "config_extra=tokendrop" : "capacity factor 1 (the release's scripts)");
  }
  if (plan.parallel.tp > 1 && !plan.parallel.sequence_parallel) {
    plan.parallel.sequence_parallel = true;
    m.Assume("seq_parallel=1: experts under tensor parallelism need it");
  }
  BalanceLayers(model, &plan, m.assumed);
  MapRecipe(m);
  if (overlap.value_or(false)) {
    plan.experts.moe_comm_overlap = true;
    if (!workload::Validate(model, plan).ok()) {
      plan.experts.moe_comm_overlap = false;
      m.Assume("ep_overlap=1: not with this plan, dispatch and combine stand alone");
    }
  }
  plan.experts.moe_delayed_weights =
      plan.experts.moe_comm_overlap &&
      (m.release.Bool("moe_delayed_weights") || HasToken(row, "delay_wgrad"));
  return {};
}

}  // namespace orrery::search
