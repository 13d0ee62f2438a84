#include "orrery/search/validate/training.h"

#include <algorithm>
#include <array>
#include <map>

#include "orrery/base/text.h"
#include "orrery/base/units.h"
#include "orrery/job/describe.h"
#include "orrery/job/plan_keys.h"
#include "orrery/job/tables.h"
#include "orrery/search/validate/machines.h"
#include "orrery/search/validate/mapping.h"
#include "orrery/search/validate/row_rules.h"
#include "orrery/workload/models.h"
#include "orrery/workload/options.h"
#include "orrery/workload/stage_layers.h"

namespace orrery::search {
namespace {

using Assumed = std::vector<std::string>;

// What rules read of the model, the machine and the row's framework.
struct Fact {
  std::string_view name;
  std::string (*value)(const Mapping& m);
};
std::string ArchName(cluster::Arch arch) {
  constexpr std::array<std::string_view, 4> kNames = {"volta", "ampere", "hopper", "blackwell"};
  return std::string(kNames[static_cast<std::size_t>(arch)]);
}
constexpr std::array<Fact, 4> kFacts = {{
    {"label", [](const Mapping& m) { return std::string(m.rule.label); }},
    {"known", [](const Mapping& m) { return m.out->preset; }},
    {"cluster.gpus_per_node",
     [](const Mapping& m) { return std::to_string(m.out->cluster.gpus_per_node); }},
    {"cluster.arch", [](const Mapping& m) { return ArchName(m.out->cluster.device.arch); }},
}};
constexpr std::string_view kTrial = "trial", kCutFits = "cut_fits", kModelOf = "model.";

class TrainingRow final : public RuledRow {
 public:
  TrainingRow(const Mapping& m, std::int64_t micro_batch) : m_(m) {
    values_.emplace(kTrial, std::to_string(micro_batch));
  }

  // What is known of the model is no longer so.
  void ForgetModel() { tree_.reset(); }

  std::string_view Said(std::string_view name) const {
    const auto at = values_.find(name);
    return at == values_.end() ? std::string_view() : at->second;
  }

  Result<std::optional<formats::Value>> Named(const std::string& name) override {
    std::string text = TextOf(name);
    if (text.empty()) return std::optional<formats::Value>();
    return std::optional(formats::Value{.text = std::move(text), .key = name});
  }
  Status Wrong(const formats::Value& value, std::string_view expected) const override {
    return InvalidInput("{}={}: must be {}", value.key.empty() ? "a rule" : value.key,
                        Printable(value.text, 40), expected);
  }

  Status Set(const std::string& name, const std::string& value) override {
    if (name.find('.') == std::string::npos) {
      values_[name] = value;
    } else if (name.starts_with(kModelOf)) {
      return SetModel(name.substr(kModelOf.size()), value);
    } else {
      formats::Node node;
      node.kind = formats::Node::Kind::kScalar;
      node.text = value;
      m_.job().Set(name, node);
    }
    return {};
  }
  void Drop(const std::string& key) override { m_.job().Drop(key); }
  void Assume(std::string text) override { m_.assumed->push_back(std::move(text)); }

 private:
  // Empty: nothing says it.
  std::string TextOf(const std::string& name) const {
    if (const std::string_view said = Said(name); !said.empty()) return std::string(said);
    const auto fact = std::ranges::find(kFacts, name, &Fact::name);
    if (fact != kFacts.end()) return fact->value(m_);
    if (name == kCutFits) return CutFits() ? "true" : "false";
    const std::string_view text = name;
    if (text.starts_with(kFrameworkOf)) {
      return std::string(m_.rule.framework->Said(text.substr(kFrameworkOf.size())));
    }
    if (text.starts_with(kChoicesOf)) {
      return std::string((*job::FindKey(text.substr(kChoicesOf.size())))->choices);
    }
    if (text.starts_with(kModelOf)) {
      const formats::Node* const key = ModelTree().root.Find(text.substr(kModelOf.size()));
      return key == nullptr ? "" : key->text;
    }
    if (name.find('.') != std::string::npos) return std::string(m_.job().Text(name));
    const formats::Section& own = m_.release.own;
    if (const Option* const option = FindOption(own.table().options, name)) {
      const formats::Setting* const set = own.Find(name);
      return set == nullptr ? "" : FormatOption(*option, set->value);
    }
    return m_.row.Knows(name) ? std::string(m_.row.text(name)) : "";
  }

  // Whether the rule $cut shares the layers out over $chunks.
  bool CutFits() const {
    const auto chunks = ParseInteger(Said("chunks"));
    const auto cut = job::Find(workload::kStageCuts, Said("cut"));
    return chunks.ok() && *chunks > 0 && cut &&
           !workload::CutLayers(*cut, m_.out->model.layers, *chunks).empty();
  }

  Status SetModel(const std::string& key, const std::string& value) {
    const OptionTable& options = workload::ModelOptions();
    formats::Section keys(options);
    auto read = ParseOption(*FindOption(options.options, key), value);
    if (!read.ok()) return std::move(read).TakeStatus().In(fmt::format("model.{}", key));
    keys.Set(key, *std::move(read), "a rule");
    workload::ApplyModelKeys(keys, true, &m_.out->model);
    ForgetModel();
    return {};
  }

  // The model as a job file has it.
  const formats::Document& ModelTree() const {
    if (!tree_) tree_ = *formats::ParseJson(job::ModelText(m_.out->model, nullptr), "model");
    return *tree_;
  }

  const Mapping& m_;
  std::map<std::string, std::string, std::less<>> values_;  // names that rules set
  mutable std::optional<formats::Document> tree_;           // ModelTree()
};

void SayRelease(const Mapping& m) {
  std::string said;
  for (const formats::Field& field : m.release.job) {
    if (!m.job().Has(field.key) || m.job().Text(field.key) != field.value.text) continue;
    said += fmt::format("{}{} {}", said.empty() ? "" : ", ", field.key, field.value.text);
  }
  if (!said.empty()) m.Assume("as the release's scripts, or config_extra: {}", said);
}

// What no run can do without, and no rule finds.
Status CheckStated(const Configuration& row) {
  for (const std::string_view column : {"tp", "pp", "gpus", "seq_len"}) {
    if (column == "seq_len" && row.text("layer_kind") == "cnn") continue;  // an image is one token
    ORRERY_RETURN_IF_ERROR(row.Needed(column).status());
  }
  return {};
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
  ORRERY_RETURN_IF_ERROR(CheckStated(row));
  TrainingRow ruled(m, micro_batch);
  ORRERY_RETURN_IF_ERROR(MapModel(m, &ruled));
  ORRERY_ASSIGN_OR_RETURN(out.cluster, MapTrainingMachine(row, tables, assumed));
  ruled.ForgetModel();
  ORRERY_RETURN_IF_ERROR(tables.rules.Apply(RowRules::Of::kPlan, &ruled));
  out.open_micro_batch = ruled.Said("open_micro_batch") == "true";
  out.meter = ruled.Said("meter");
  ORRERY_RETURN_IF_ERROR(WriteModelAndCluster(m));
  SetKeys(m, true);
  SayRelease(m);
  return out;
}

std::vector<std::string_view> NamesForRules() {
  std::vector<std::string_view> names = {kTrial, kCutFits};
  for (const Fact& fact : kFacts) names.push_back(fact.name);
  return names;
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
