#include <algorithm>
#include <cstdlib>

#include "orrery/base/text.h"
#include "orrery/search/validate/mapping.h"

namespace orrery::search {
namespace {

using workload::Model;

bool HasExperts(const Configuration& row) { return row.text("arch") == "moe"; }

// Keys of `model` that the release's scripts set, where no column does.
void ApplyRelease(const Mapping& m, Model* model) {
  const std::int64_t ffn_hidden = model->ffn_hidden, vocab = model->vocab;
  workload::ApplyModelKeys(m.release.model, true, model);
  if (m.release.own.Bool("gated_width")) {
    model->ffn_hidden = model->hidden * 8 / 3 / 64 * 64;
    if (model->experts.count > 0) model->experts.ffn_hidden = model->ffn_hidden;
  }
  if (m.row.has("ffn_hidden")) model->ffn_hidden = ffn_hidden;
  if (m.row.has("vocab")) model->vocab = vocab;
  for (const std::string& said : m.release.said) m.Assume("{} (the test case's YAML)", said);
}

// Of a name whose shapes are known; false: none has it.
Result<bool> MapKnownModel(const Mapping& mapping) {
  const Configuration& row = mapping.row;
  const ModelName* const known = mapping.tables.models.Find(row.text("model"), true);
  if (known == nullptr) return false;
  Model& m = mapping.out->model;
  ORRERY_ASSIGN_OR_RETURN(m, mapping.tables.data->models.Find(known->model));
  mapping.out->preset = known->model;
  ApplyRelease(mapping, &m);
  m.name = std::string(row.text("model"));
  m.mtp_layers = 0;  // but for those of the recipes
  m.mtp_repeats = false;
  workload::ApplyModelKeys(known->keys, true, &m);
  mapping.Assume("shapes of {}: {}", known->model, m.source);
  return true;
}

// What the columns do not say of a model: its family's row.
const ModelName& StyleOf(const Configuration& row, std::int64_t hidden, std::int64_t ffn,
                         const ModelNames& names, std::vector<std::string>* assumed) {
  if (row.text("layer_kind") == "mla") return *names.Find("layer_kind=mla", false);
  if (const ModelName* known = names.Find(row.text("model"), false)) return *known;
  const ModelName& guess = *names.Find(ffn == 4 * hidden ? "gpt" : "llama", false);
  assumed->push_back(fmt::format(
      "model={}, taken as {}-style from its ffn_hidden",
      row.has("model") ? Printable(row.text("model"), 40) + ": unknown name" : "(blank)",
      guess.label));
  return guess;
}

// An encoder or a convolutional network is one of the presets: BERT_Large, ResNet152.
Result<std::string> PresetNamed(const Configuration& row, const workload::Models& models) {
  const auto bare = [](std::string_view name) {
    std::string out = Lower(name);
    std::erase_if(out, [](char c) { return c == '-' || c == '_' || c == ' '; });
    return out;
  };
  const std::string name = bare(row.text("model"));
  for (const workload::ModelPreset& preset : models.list()) {
    if (bare(preset.name) == name) return std::string(preset.name);
  }
  return InvalidInput("model={}: no {} of this name among the presets",
                      Printable(row.text("model"), 40), row.text("layer_kind"));
}

// Columns that contradict each other describe no model: 20 billion parameters are not 80 layers of
// 14400, nor 195 billion 106 layers of 13824. Sizes are rounded names (1.7 for 1.5), no further off
// than an eighth. A proxy has fewer layers than the model that params_b counts.
Status CheckParameters(const Configuration& row, const Model& model) {
  const auto billions = row.Number("params_b");
  if (!billions) return {};
  const bool proxy = row.has("proxy_layers_of") || row.text("task") == "proxy-pretrain";
  const double counted = static_cast<double>(model.parameters()) * 1e-9;
  if (counted < *billions * 1.2 && (proxy || counted > *billions / 1.2)) return {};
  return InvalidInput("params_b={}: layers, hidden and vocab give {:.1f} billion parameters",
                      row.text("params_b"), counted);
}

// Blank: the size nearest to 128 that hidden and tp allow. BLOOM's scripts set
// --abort-on-unmet-fused-kernel-constraints (tr11-200B-ml.slurm, February 2022, beside its NHEADS:
// "(HEADS/TP)*MBS % 4 = 0").
Result<std::int64_t> HeadsOf(const Configuration& row, std::int64_t hidden,
                             std::vector<std::string>* assumed) {
  if (row.has("heads")) return row.Needed("heads");
  ORRERY_ASSIGN_OR_RETURN(const std::int64_t tp, row.Needed("tp"));
  const auto sequences = row.Whole("micro_batch");
  const bool aborts = row.text("framework_family") == "megatron-deepspeed";
  std::int64_t best = 0;
  for (std::int64_t heads = tp; heads <= hidden; heads += tp) {
    if (aborts && heads / tp * sequences.value_or(1) % 4 != 0) continue;
    const auto off = [&](std::int64_t n) { return std::abs(hidden / n - 128); };
    if (hidden % heads == 0 && (best == 0 || off(heads) < off(best))) best = heads;
  }
  if (best == 0) return row.Needed("heads");
  assumed->push_back(
      fmt::format("heads={} (blank: {} a head, nearest to 128)", best, hidden / best));
  return best;
}

// Blank: as many as params_b leaves beside embeddings, or the number next to it that pp divides if
// params_b may stand for that, with embeddings or without: BigScience's 200B has 80 layers of 14400
// (tr11-200B-ml.slurm of 21 February 2022), 199.1 billion and 202.7 with embeddings. `m` is
// complete but for its layers.
Result<std::int64_t> LayersOf(const Configuration& row, Model m,
                              std::vector<std::string>* assumed) {
  const auto billions = row.Number("params_b");
  if (row.has("layers") || !billions || HasExperts(row)) return row.Needed("layers");
  m.layers = 1;
  const std::int64_t one = m.parameters();
  m.layers = 2;
  const std::int64_t layer = m.parameters() - one;
  const double left = *billions * 1e9 - static_cast<double>(one - layer);
  const double exact = left / static_cast<double>(layer);
  auto layers = static_cast<std::int64_t>(exact + 0.5);
  if (layers < 1) return row.Needed("layers");
  constexpr double kRounded = 0.005;
  const auto stages = row.Whole("pp");
  const std::int64_t pp = stages.value_or(1);
  const auto even = static_cast<std::int64_t>(exact / static_cast<double>(pp) + 0.5) * pp;
  const double alone = static_cast<double>(even) * static_cast<double>(layer);
  const double whole = alone + *billions * 1e9 - left;
  if (alone * (1 - kRounded) < *billions * 1e9 && *billions * 1e9 < whole * (1 + kRounded)) {
    layers = even;
  }
  assumed->push_back(fmt::format("layers={} (blank: from params_b={:g})", layers, *billions));
  return layers;
}

// Of GPT-style models: the release's, else the framework's.
double DropoutOf(const Mapping& m) {
  constexpr double kUsual = 0.1;  // Megatron-LM: arguments.py, --hidden-dropout
  const formats::Section& release = m.release.own;
  if (release.Has("dropout")) return release.Real("dropout");
  return ParseNumber(m.rule.framework->Said("recipe.gpt_dropout")).value_or(kUsual);
}

// Of the columns, and of a family's row what they do not say.
Status MapColumns(const Mapping& mapping, RuledRow* ruled) {
  const Configuration& row = mapping.row;
  const RowTables& tables = mapping.tables;
  std::vector<std::string>* const assumed = mapping.assumed;
  Model& m = mapping.out->model;
  ORRERY_ASSIGN_OR_RETURN(m.hidden, row.Needed("hidden"));
  ORRERY_ASSIGN_OR_RETURN(m.heads, HeadsOf(row, m.hidden, assumed));
  const auto kv_heads = row.Whole("kv_heads");
  const auto ffn = row.Whole("ffn_hidden");
  const auto vocab = row.Whole("vocab");
  ORRERY_ASSIGN_OR_RETURN(m.max_position, row.Needed("seq_len"));
  if (m.hidden % m.heads != 0) {
    return InvalidInput("heads={}: does not divide hidden={}", m.heads, m.hidden);
  }
  m.head_dim = m.hidden / m.heads;
  m.kv_heads = kv_heads.value_or(m.heads);
  if (!kv_heads) assumed->push_back("kv_heads=heads (blank: no grouped attention)");
  m.ffn_hidden = ffn.value_or(4 * m.hidden);
  if (!ffn) assumed->push_back("ffn_hidden=4·hidden (blank: Megatron's default)");
  const ModelName& style = StyleOf(row, m.hidden, m.ffn_hidden, tables.models, assumed);
  m.name = row.has("model") ? std::string(row.text("model")) : style.label;
  workload::ApplyModelKeys(style.keys, true, &m);
  if (vocab) {
    m.vocab = *vocab;
  } else {
    assumed->push_back(fmt::format("vocab={} (blank: {}'s tokenizer)", m.vocab, style.label));
  }
  if (!style.note.empty()) assumed->push_back(fmt::format("{}: {}", style.label, style.note));
  if (style.drops) m.dropout = DropoutOf(mapping);
  assumed->push_back(fmt::format(
      "{}: norm, activation, positions, biases and {} embeddings of the public configuration",
      style.label, m.tied_embeddings ? "tied" : "untied"));
  if (style.drops) assumed->push_back(fmt::format("dropout={} (framework's default)", m.dropout));
  m.source = "validation table";
  ORRERY_ASSIGN_OR_RETURN(m.layers, LayersOf(row, m, assumed));
  ORRERY_RETURN_IF_ERROR(tables.rules.Apply(RowRules::Of::kModel, ruled));
  ApplyRelease(mapping, &m);
  ORRERY_RETURN_IF_ERROR(workload::Validate(m));
  return CheckParameters(row, m);
}

}  // namespace

Status MapModel(const Mapping& m, RuledRow* ruled) {
  const std::string_view kind = m.row.text("layer_kind");
  if (kind == "bert" || kind == "cnn") {
    m.Assume("shapes of the preset of this name");
    ORRERY_ASSIGN_OR_RETURN(m.out->preset, PresetNamed(m.row, m.tables.data->models));
    ORRERY_ASSIGN_OR_RETURN(m.out->model, m.tables.data->models.Find(m.out->preset));
    return {};
  }
  bool known = false;
  if (HasExperts(m.row) || kind == "mamba2-hybrid") {
    ORRERY_ASSIGN_OR_RETURN(known, MapKnownModel(m));
  }
  if (known) return m.tables.rules.Apply(RowRules::Of::kModel, ruled);
  if (kind == "mamba2-hybrid") {
    return InvalidInput("layer_kind=mamba2-hybrid: the pattern of {} is not stated",
                        Printable(m.row.text("model"), 40));
  }
  return MapColumns(m, ruled);
}

}  // namespace orrery::search
