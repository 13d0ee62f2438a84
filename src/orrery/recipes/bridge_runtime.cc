// Source: NVIDIA-NeMo/Megatron-Bridge 067f987 (0.6), src/megatron/bridge/training: config.py
// (runtime_config_update, _validate_and_sync_distributed_optimizer_settings), mixed_precision.py
// (MixedPrecisionConfig.setup), comm_overlap.py (CommOverlapConfig.setup).
#include "orrery/recipes/bridge_runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/check.h"
#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/formats/data_cells.h"
#include "orrery/recipes/dialects.h"

namespace orrery::recipes {
namespace {

using formats::Document;
using formats::Node;
using Settings = std::map<std::string, std::string, std::less<>>;

constexpr std::string_view kPrecisionClass = "mixedprecisionconfig";
constexpr std::string_view kUsualPrecision = "bf16_mixed";  // of its recipes
// Gradients' and parameters' buckets where communication is overlapped: 128 Mi elements.
constexpr std::string_view kOverlapBucket = "134217728";

// By their names in small letters; each is complete.
const std::map<std::string, Settings, std::less<>>& Precisions() {
  static const std::string_view kLines[] = {
#include "orrery_data_recipes_bridge_precisions.inc"
  };
  static const auto all = [] {
    std::map<std::string, Settings, std::less<>> precisions;
    Settings defaults;
    for (const std::vector<std::string>& cell : formats::DataRows(kLines, 3)) {
      Settings settings = defaults;
      for (const auto& [key, value] : formats::NamedValues(cell[1])) {
        settings.insert_or_assign(std::string(key), std::string(value));
      }
      if (defaults.empty()) defaults = settings;  // the class comes first
      precisions.emplace(Lower(cell[0]), std::move(settings));
    }
    return precisions;
  }();
  return all;
}

// The value of a scalar as the settings have it; empty: it is not there, or null.
std::string Said(const Node* section, std::string_view key) {
  const Node* node = section == nullptr ? nullptr : section->Find(key);
  if (node == nullptr || node->kind != Node::Kind::kScalar) return "";
  const std::string text = Lower(node->text);
  return text == "none" || text == "null" ? "" : text;
}

const Row* RowOf(const std::string& path, std::string_view field) {
  const Row* own = NemoTable().Find(path);
  return own != nullptr ? own : MegatronTable().FindField(field);
}

void AddSetting(const std::string& name, std::string_view field, const std::string& value,
                const std::string& where, Reading* r) {
  const Row* row = RowOf(fmt::format("mixed_precision.{}", field), field);
  ORRERY_CHECK(row != nullptr, "a precision's setting is an argument of the tables");
  Given given{.name = name, .row = row, .where = where};
  if (row->flag()) {
    given.on = (value == "true") != (row->takes == "off");
  } else {
    given.values.push_back({.text = value});
  }
  r->Add(std::move(given));
}

void NoteOverruled(const Document& document, std::string_view field, const std::string& value,
                   std::string_view by, Reading* r) {
  for (const std::string_view section : {"model", "optimizer", "ddp"}) {
    const Node* node = document.root.Find(section);
    const std::string said = Said(node, field);
    if (said.empty() || said == value) continue;
    r->draft().Assume(fmt::format("{}.{}: {} has no effect: Megatron Bridge takes {} from {}",
                                  section, field, Printable(said, 40),
                                  value.empty() ? "none" : value, by));
  }
}

// The name of a precision: the section's text, or the last part of its _target_.
std::string PrecisionName(const Node& section, Reading* r) {
  if (section.kind == Node::Kind::kScalar) {
    std::string name = Lower(section.text);
    std::ranges::replace(name, '-', '_');
    return name;
  }
  const std::string target = Said(&section, "_target_");
  if (!target.empty()) return target.substr(target.rfind('.') + 1);
  if (!Said(&section, "bf16").empty() || !Said(&section, "fp16").empty()) {
    return std::string(kPrecisionClass);
  }
  r->draft().Assume(
      fmt::format("mixed_precision: {}, as recipes of Megatron Bridge have it", kUsualPrecision));
  return std::string(kUsualPrecision);
}

void ApplyPrecision(const Document& document, Reading* r) {
  const Node none;
  const Node* section = document.root.Find("mixed_precision");
  const Node* model = document.root.Find("model");
  const bool missing = section == nullptr;
  if (missing || section->kind == Node::Kind::kNull) {
    const bool typed = !Said(model, "bf16").empty() || !Said(model, "fp16").empty() ||
                       !Said(model, "params_dtype").empty();
    if (!typed && !missing) {
      r->draft().Assume("fp32: mixed_precision is null, and model says neither bf16 nor fp16");
    }
    if (typed || !missing) return;
    section = &none;
  }
  const std::string name = PrecisionName(*section, r);
  const std::string where = missing ? r->file() : document.Where(*section);
  const auto found = Precisions().find(name);
  if (found == Precisions().end()) {
    std::vector<std::string_view> names;
    for (const auto& [known, settings] : Precisions()) names.push_back(known);
    return r->Problem(fmt::format("{}: mixed_precision: {}", where,
                                  UnknownName("precision", Printable(name, 60), names)));
  }
  for (auto [field, value] : found->second) {
    std::string argument = "mixed_precision";
    std::string at = where;
    if (section->Find(field) != nullptr) {
      argument += "." + field;
      value = Said(section, field);
      at = document.Where(*section->Find(field));
    } else if (const std::string old = field == "fp8_param_gather"   ? Said(section, "fp8_param")
                                       : field == "fp4_param_gather" ? Said(section, "fp4_param")
                                                                     : "";
               !old.empty()) {
      value = old;  // kept alike
    }
    NoteOverruled(document, field, value, fmt::format("mixed_precision ({})", name), r);
    AddSetting(argument, field, value, at, r);
  }
}

// `argument` is what `section` says of `field`, else `value`.
void AddOverlap(const Document& document, const Node& section, std::string_view argument,
                const std::string& field, std::string value, Reading* r) {
  const std::string said = Said(&section, field);
  if (!said.empty()) value = said;
  NoteOverruled(document, field, value, "comm_overlap", r);
  const Node* node = said.empty() ? &section : section.Find(field);
  r->AddAs(argument, said.empty() ? "comm_overlap" : "comm_overlap." + field, value,
           document.Where(*node));
}

void ApplyOverlap(const Document& document, Reading* r) {
  const Node* section = document.root.Find("comm_overlap");
  if (section == nullptr || section->kind != Node::Kind::kMap) return;
  const bool wanted = Said(section, "tp_comm_overlap") == "true";
  const bool can =
      r->Whole("--tensor-model-parallel-size").value_or(1) > 1 && r->On("--sequence-parallel");
  if (wanted && !can) {
    r->draft().Assume(
        "comm_overlap.tp_comm_overlap: Megatron Bridge turns it off without tensor and sequence "
        "parallelism");
  }
  NoteOverruled(document, "tp_comm_overlap", wanted && can ? "true" : "false", "comm_overlap", r);
  r->AddAs("--tp-comm-overlap", "comm_overlap.tp_comm_overlap", wanted && can ? "true" : "false",
           document.Where(*section));
  if (Said(document.root.Find("ddp"), "use_distributed_optimizer") != "true") return;
  AddOverlap(document, *section, "--overlap-grad-reduce", "overlap_grad_reduce", "true", r);
  AddOverlap(document, *section, "--overlap-param-gather", "overlap_param_gather", "true", r);
  AddOverlap(document, *section, "ddp.bucket_size", "bucket_size", std::string(kOverlapBucket), r);
}

// What ddp or optimizer says holds for both.
void Synchronize(const Document& document, Reading* r) {
  for (const auto& [field, argument] :
       {std::pair{"use_distributed_optimizer", "--use-distributed-optimizer"},
        std::pair{"overlap_param_gather", "--overlap-param-gather"}}) {
    for (const char* section : {"ddp", "optimizer"}) {
      const Node* node = document.root.Find(section);
      if (Said(node, field) != "true" || r->On(argument)) continue;
      r->AddAs(argument, fmt::format("{}.{}", section, field), "true",
               document.Where(*node->Find(field)));
    }
  }
}

}  // namespace

void ApplyBridgeRuntime(const Document& document, Reading* r) {
  ApplyPrecision(document, r);
  Synchronize(document, r);
  ApplyOverlap(document, r);
}

void ApplyBridgeSwitches(Reading* r) {
  Draft& draft = r->draft();
  const bool low = !r->Text("--fp8-format").empty();
  const auto off = [&](std::string_view argument) { return r->Has(argument) && !r->On(argument); };
  if (off("--tp-comm-overlap")) draft.Set("framework_options.tp_comm_overlap", false);
  if (low && off("--fp8-param-gather")) draft.Set("framework_options.low_precision_gather", false);
  if (off("--moe-permute-fusion")) draft.Set("framework_options.moe_fused_permute", false);
  if (off("--moe-router-fusion")) draft.Set("framework_options.moe_fused_router", false);
}

}  // namespace orrery::recipes
