#include "orrery/search/validate/release_recipes.h"

#include <algorithm>
#include <span>
#include <utility>

#include "orrery/base/text.h"
#include "orrery/base/units.h"
#include "orrery/cluster/options.h"
#include "orrery/workload/options.h"
#include "orrery/workload/plan.h"

namespace orrery::search {
namespace {

using formats::Section;
using enum OptionType;

constexpr std::string_view kRecipes[] = {
#include "orrery_data_release_recipes.inc"
};

constexpr int kEver = 9999;
constexpr std::string_view kScripts =
    "nemo|launcher|maxtext|paxml|jax-toolbox|torchtitan|sc21|mlperf|model-zoo|bridge|automodel|any";
// Keys of a row: which rows of measured runs it is about, and what it sets.
constexpr Option kOptions[] = {
    {.name = "scripts", .type = kChoice, .choices = kScripts},
    {.name = "about", .fallback = "run"},
    {.name = "undated", .type = kBool, .fallback = "false"},
    {.name = "from"},  // YY.MM, releases or dates
    {.name = "to"},
    {.name = "frameworks"},  // this and those below, "a|b": one of them begins the row's
    {.name = "versions"},
    {.name = "models"},
    {.name = "gpus"},
    {.name = "precisions"},
    {.name = "tasks"},
    {.name = "counts"},   // "a|b": the row's `gpus` is one of them
    {.name = "extra"},    // "a|b": one of them stands in config_extra
    {.name = "without"},  // and this does not
    // What it sets that is no key of a job.
    {.name = "dropout", .type = kNumber, .min = 0, .max = 1},  // of GPT-style models
    {.name = "expert_graphs", .type = kChoice, .choices = "layers|iteration"},
    {.name = "cuda_graph_scope"},  // of those
    {.name = "whole_graphs", .type = kBool, .fallback = "false"},
    {.name = "compiled_loss", .type = kBool, .fallback = "true"},
    {.name = "shard_hosts", .type = kInteger, .fallback = "0", .min = 0, .max = 1 << 20},
    {.name = "shard_from_hosts", .type = kInteger, .fallback = "0", .min = 0, .max = 1 << 20},
};
constexpr OptionTable kTable{.path = "", .doc = "", .options = kOptions};

// Sections of a job whose keys a row may set.
std::span<const OptionTable* const> JobSections() {
  static const OptionTable device = {
      .path = "cluster.device", .doc = "", .options = cluster::DeviceOptions().options};
  static const OptionTable* const sections[] = {&workload::ParallelOptions(),
                                                &workload::TrainingOptions(),
                                                &workload::FrameworkOptions(), &device};
  return sections;
}

Result<formats::Field> ReadJobKey(const OptionTable& section, const formats::Field& field,
                                  const formats::Document& document) {
  auto value = formats::ReadOption(*FindOption(section.options, field.key), field.value);
  Status status = value.ok() ? Status() : std::move(value).TakeStatus();
  // Texts that are lists of names.
  const auto names = [&](std::string_view key, auto parse) {
    if (status.ok() && field.key == key) status = parse(field.value.text).status();
  };
  names("recompute_modules", workload::ParseRecomputeModules);
  names("bf16_modules", workload::ParseBf16Modules);
  names("lora_targets", workload::ParseLoraTargets);
  if (!status.ok()) {
    return std::move(status).In(document.Where(field.value) + ": " + field.key);
  }
  formats::Field set = field;
  set.key = formats::FullName(section, field.key);
  set.value.source = 0;
  set.value.line = set.value.column = 0;
  return set;
}

// Whose scripts, and which release: year and month, 2411; 0: not said.
struct Origin {
  std::string_view scripts;
  int month = 0;
};

// "YY.MM…" or "YY-MM…" as a number; 0: it is not.
int Month(std::string_view text) {
  if (text.size() < 5) return 0;
  const auto year = ParseInteger(text.substr(0, 2)), month = ParseInteger(text.substr(3, 2));
  return year.ok() && month.ok() ? static_cast<int>(*year * 100 + *month) : 0;
}

// DGX Cloud's releases are called vYY.MM, with a patch behind; rounds of MLPerf have a date; rows
// of Megatron Bridge name their container.
Origin OriginOf(const Configuration& row) {
  const std::string_view framework = row.text("framework");
  const std::string_view version = row.text("framework_version");
  const std::string_view date = row.text("measured_date");
  const int measured = date.starts_with("20") ? Month(date.substr(2)) : 0;
  constexpr std::string_view kContainer = "container ";
  const std::size_t container = version.find(kContainer);
  if (framework.find("Bridge") != std::string_view::npos) {
    if (container == std::string_view::npos) return {"bridge", 0};
    const std::string_view number = version.substr(container + kContainer.size());
    const bool dotted = number.size() >= 5 && number[2] == '.';
    return {"bridge", dotted ? Month(number) : 0};
  }
  if (framework.starts_with("NeMo/Megatron-Core (")) return {"mlperf", measured};
  if (framework.starts_with("Megatron-LM")) {
    if (version == "Jan-2021") return {"sc21", 2101};
    if (version.starts_with("PTD-P")) return {"sc21", 2104};
  }
  if (framework.starts_with("torchtitan")) return {"torchtitan", measured};
  if (framework.find("Automodel") != std::string_view::npos) {
    return {"automodel", measured > 0 ? measured : Month(version)};
  }
  if (framework.starts_with("Paxml") && version.starts_with("JAX-Toolbox"))
    return {"jax-toolbox", 0};
  if (framework.starts_with("NeMo 24.")) return {"launcher", Month(version)};
  const std::string_view scripts = framework.starts_with("NeMo (")                ? "nemo"
                                   : framework.starts_with("MaxText")             ? "maxtext"
                                   : framework.starts_with("Paxml")               ? "paxml"
                                   : framework.starts_with("Megatron-Core (dev)") ? "model-zoo"
                                                                                  : "";
  return {scripts, version.starts_with("v") ? Month(version.substr(1)) : 0};
}

// Of "a|b" one.
bool StandsIn(std::string_view text, const std::string& words) {
  return std::ranges::any_of(SplitBars(words), [&](std::string_view word) {
    return text.find(word) != std::string_view::npos;
  });
}

}  // namespace

const RecipeTable& RecipeTable::BuiltIn() {
  static const RecipeTable table =
      formats::Embedded<RecipeTable>(kRecipes, "data/release_recipes.yaml");
  return table;
}

Result<RecipeTable::Line> RecipeTable::ReadLine(const formats::RowValues<Line>& table,
                                                const formats::DataRow& row) {
  const bool by_framework = row.keys.Find("frameworks") != nullptr;
  std::vector<std::string_view> job_keys;
  for (const OptionTable* section : JobSections()) {
    for (const Option& option : section->options) {
      if (FindOption(kOptions, option.name) == nullptr) job_keys.push_back(option.name);
    }
  }
  ORRERY_ASSIGN_OR_RETURN(Section keys,
                          table.Keys(row, kTable, by_framework ? "" : "scripts", job_keys));
  Line line{std::move(keys), {}, 0, kEver};
  for (const formats::Field& field : row.keys.fields) {
    if (FindOption(kOptions, field.key) != nullptr) continue;
    for (const OptionTable* section : JobSections()) {
      if (FindOption(section->options, field.key) == nullptr) continue;
      ORRERY_ASSIGN_OR_RETURN(formats::Field set, ReadJobKey(*section, field, table.document()));
      line.job.push_back(std::move(set));
      break;
    }
  }
  for (const auto& [key, month] : {std::pair{"from", &line.from}, std::pair{"to", &line.to}}) {
    if (!line.own.Has(key)) continue;
    *month = Month(line.own.Text(key));
    if (*month > 0) continue;
    return InvalidInput("'{}' is no month; write YY.MM", Printable(line.own.Text(key), 20))
        .In(line.own.Where(key));
  }
  if (line.own.Bool("undated")) line.from = line.to = 0;
  if (line.own.Has("cuda_graph_scope")) {
    auto scope = workload::ParseGraphScope(line.own.Text("cuda_graph_scope"));
    if (!scope.ok()) {
      return std::move(scope).TakeStatus().In(line.own.Where("cuda_graph_scope"));
    }
  }
  return line;
}

Status RecipeTable::Add(std::string_view text, const std::string& file) {
  return rows_.Add(text, file, ReadLine);
}

Release RecipeTable::Find(const Configuration& row, std::string_view framework) const {
  const Origin origin = OriginOf(row);
  const std::string_view extra = row.text("config_extra");
  Release found{.job = {}, .own = Section(kTable)};
  std::vector<std::string> settled;  // what a line was about
  for (const Line& line : rows_.values()) {
    const Section& keys = line.own;
    const auto fits = [&](std::string_view key, std::string_view text) {
      return !keys.Has(key) || BeginsWithOneOf(text, keys.Text(key));
    };
    if ((keys.Has("scripts") && keys.Text("scripts") != "any" &&
         keys.Text("scripts") != origin.scripts) ||
        origin.month < line.from || line.to < origin.month || !fits("frameworks", framework) ||
        !fits("versions", row.text("framework_version")) || !fits("models", row.text("model")) ||
        !fits("gpus", row.text("gpu")) || !fits("precisions", row.text("compute_dtype")) ||
        !fits("tasks", row.text("task")) ||
        (keys.Has("extra") && !StandsIn(extra, keys.Text("extra"))) ||
        (keys.Has("without") && StandsIn(extra, keys.Text("without"))) ||
        (keys.Has("counts") && !IsOneOf(row.text("gpus"), keys.Text("counts")))) {
      continue;
    }
    std::string about = keys.Text("about");
    if (std::ranges::find(settled, about) != settled.end()) continue;
    settled.push_back(std::move(about));
    for (const Option& option : kOptions) {
      if (const formats::Setting* set = keys.Find(option.name)) {
        found.own.Set(option.name, set->value, set->where);
      }
    }
    found.job.insert(found.job.end(), line.job.begin(), line.job.end());
  }
  return found;
}

}  // namespace orrery::search
