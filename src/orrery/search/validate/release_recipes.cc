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

// Keys of a row beside a job's and those that say which rows of measured runs it is about.
constexpr Option kOptions[] = {
    {.name = "about", .fallback = "run"},
    {.name = "dropout", .type = kNumber, .min = 0, .max = 1},  // of GPT-style models
    {.name = "gated_width", .type = kBool, .fallback = "false"},
    {.name = "expert_graphs", .type = kChoice, .choices = "layers|iteration"},
    {.name = "cuda_graph_scope"},  // of those
    {.name = "whole_graphs", .type = kBool, .fallback = "false"},
    {.name = "shard_hosts", .type = kInteger, .fallback = "0", .min = 0, .max = 1 << 20},
    {.name = "shard_from_hosts", .type = kInteger, .fallback = "0", .min = 0, .max = 1 << 20},
};
constexpr OptionTable kTable{.path = "", .doc = "", .options = kOptions};
constexpr std::string_view kModel = "model", kEach = "each";

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

void Overlay(const Section& over, Section* under) {
  for (const Option& option : over.table().options) {
    const formats::Setting* const set = over.Find(option.name);
    if (set != nullptr) under->Set(option.name, set->value, set->where);
  }
}

}  // namespace

std::vector<std::string_view> RecipeTable::OwnKeys() { return OptionNames(kOptions); }

const RecipeTable& RecipeTable::BuiltIn() {
  static const RecipeTable table =
      formats::Embedded<RecipeTable>(kRecipes, "data/release_recipes.yaml");
  return table;
}

Result<RecipeTable::Line> RecipeTable::ReadLine(const formats::RowValues<Line>& table,
                                                const formats::DataRow& row) {
  const auto own = OptionNames(kOptions), conditions = OptionNames(RowFilter::Keys().options);
  std::vector<std::string_view> job = {kModel}, others = own;
  for (const OptionTable* section : JobSections()) {
    for (const Option& option : section->options) {
      if (FindOption(kOptions, option.name) == nullptr) job.push_back(option.name);
    }
  }
  others.insert(others.end(), job.begin(), job.end());
  ORRERY_ASSIGN_OR_RETURN(const Section when, table.Keys(row, RowFilter::Keys(), "", others));
  ORRERY_ASSIGN_OR_RETURN(RowFilter filter, RowFilter::Read(when));
  if (!when.Has("scripts") && !when.Has("frameworks") && !when.Has("case")) {
    ORRERY_RETURN_IF_ERROR(table.Keys(row, RowFilter::Keys(), "scripts", others).status());
  }
  job.insert(job.end(), conditions.begin(), conditions.end());
  ORRERY_ASSIGN_OR_RETURN(Section keys, table.Keys(row, kTable, "", job));
  Line line{
      std::move(filter), std::move(keys), Section(workload::ModelOptions()), {}, row.description};
  for (const formats::Field& field : row.keys.fields) {
    if (FindOption(kOptions, field.key) != nullptr) continue;
    for (const OptionTable* section : JobSections()) {
      if (FindOption(section->options, field.key) == nullptr) continue;
      ORRERY_ASSIGN_OR_RETURN(formats::Field set, ReadJobKey(*section, field, table.document()));
      line.job.push_back(std::move(set));
      break;
    }
  }
  if (const formats::Node* model = row.keys.Find(kModel)) {
    ORRERY_ASSIGN_OR_RETURN(line.model,
                            Section::Read(table.document(), *model, workload::ModelOptions()));
  }
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

Release RecipeTable::Find(const Configuration& row, std::string_view framework,
                          const Origin& origin) const {
  Release found{
      .job = {}, .model = Section(workload::ModelOptions()), .said = {}, .own = Section(kTable)};
  std::vector<std::string> settled;  // what a line was about
  for (const Line& line : rows_.values()) {
    if (!line.filter.Fits(row, framework, origin)) continue;
    std::string about = line.own.Text("about");
    if (std::ranges::find(settled, about) != settled.end()) continue;
    if (about != kEach) settled.push_back(std::move(about));
    Overlay(line.own, &found.own);
    Overlay(line.model, &found.model);
    if (!line.description.empty()) found.said.push_back(line.description);
    found.job.insert(found.job.end(), line.job.begin(), line.job.end());
  }
  return found;
}

}  // namespace orrery::search
