#include "orrery/job/tables.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "orrery/base/text.h"
#include "orrery/campaign/options.h"
#include "orrery/cluster/options.h"
#include "orrery/collective/formula/moye.h"
#include "orrery/engine/options.h"
#include "orrery/formats/section.h"
#include "orrery/job/importers.h"
#include "orrery/memory/options.h"
#include "orrery/network/options.h"
#include "orrery/workload/options.h"

namespace orrery::job {

using formats::FullName;

namespace {

using enum OptionType;
using Json = nlohmann::ordered_json;

constexpr Option kTop[] = {
    {.name = "nodes",
     .type = kInteger,
     .min = 1,
     .max = 1 << 20,
     .doc = "Hosts of the cluster; as many as the plan needs when left out."},
    {.name = "framework",
     .type = kText,
     .fallback = "megatron",
     .doc = "Training framework, optionally with a version: megatron@2024.09 ('orrery list "
            "frameworks')."},
    {.name = "schedule",
     .type = kText,
     .doc = "Pipeline schedule, or a file NAME.schedule; 1f1b, or 1f1b-interleaved when vpp is "
            "above 1."},
    {.name = "network", .type = kText, .fallback = "analytic", .doc = "Network back end."},
    {.name = "kernels",
     .type = kChoice,
     .fallback = "model",
     .choices = "model|measured",
     .doc = "What prices kernels: the fitted model, or the tables measured on the GPU where they "
            "reach and the model elsewhere (docs/compute.md)."},
};

constexpr Option kJobEntry[] = {
    {.name = "name", .type = kText, .doc = "What reports call it. Required."},
    {.name = "file", .type = kText, .doc = "Its job file, relative to this one."},
    {.name = "placement",
     .type = kChoice,
     .fallback = "packed",
     .choices = "packed|random|striped|explicit",
     .doc = "packed: the lowest free GPUs; random: whole hosts drawn by simulation.seed; striped: "
            "a host of each rack in turn; explicit: as `devices`, `hosts` or `placement_file` "
            "lists them."},
    {.name = "devices",
     .type = kIntegers,
     .min = 0,
     .max = 8388608,
     .doc = "Explicit placement: the GPU of each rank."},
    {.name = "hosts",
     .type = kIntegers,
     .min = 0,
     .max = 1048576,
     .doc = "Explicit placement: hosts, all of whose GPUs ranks fill in this order."},
    {.name = "placement_file",
     .type = kText,
     .doc = "Explicit placement: a file with the GPU of each rank, a number a line; # begins a "
            "comment."},
    {.name = "rank",
     .type = kChoice,
     .fallback = "gpu",
     .choices = "gpu|node",
     .doc = "What a rank has: a GPU, or a host (and runs on its first GPU)."},
    {.name = "start",
     .type = kTime,
     .unit = "s",
     .fallback = "0s",
     .max = 1e6,
     .doc = "Wait before its first operation."},
    {.name = "iterations",
     .type = kInteger,
     .min = 1,
     .max = 100000,
     .doc = "Steps of training, or runs of a graph one after the other. Left out: of training "
            "simulation.iterations, else 3; of a graph 1."},
    {.name = "background",
     .type = kBool,
     .fallback = "false",
     .doc = "It repeats until every job that is not in the background has ended."},
    {.name = "priority",
     .type = kInteger,
     .fallback = "0",
     .max = 2,
     .doc = "Class of its messages in the network's queues, 0 first. For network packet."},
};

constexpr Option kInterference[] = {
    {.name = "alone",
     .type = kBool,
     .fallback = "true",
     .doc =
         "Each job runs alone, too, on the same GPUs: its slowdown and Jain's index follow. Where "
         "all jobs train from start to end, only with this section."},
    {.name = "most_pairs",
     .type = kInteger,
     .fallback = "28",
     .max = 499500,
     .doc = "Each pair of jobs runs, too, if there are no more than so many: who slows whom."},
};

constexpr OptionTable kTopTable{.path = "", .doc = "", .options = kTop};
constexpr OptionTable kJobEntryTable{
    .path = "jobs",
    .doc =
        "Several jobs on one cluster: a list; each entry names a `file` or holds a `job`, names a "
        "`trace` or holds a `pattern`.",
    .options = kJobEntry};
constexpr OptionTable kInterferenceTable{
    .path = "interference",
    .doc = "What is run beside several jobs together, to say who slows whom.",
    .options = kInterference};

Json Typed(const Option& option) {
  const std::string_view unit = option.unit;
  Json quantity = {{"type", Json::array({"string", "number"})}};
  switch (option.type) {
    case kBool:
      return {{"type", "boolean"}};
    case kInteger:
      return {{"type", "integer"},
              {"minimum", static_cast<std::int64_t>(option.min)},
              {"maximum", static_cast<std::int64_t>(option.max)}};
    case kNumber:
      return {{"type", "number"}, {"minimum", option.min}, {"maximum", option.max}};
    case kText:
      return {{"type", "string"}};
    case kChoice: {
      std::vector<std::string_view> names = Choices(option);
      for (const Word& word : Words(option)) names.push_back(word.word);
      return {{"enum", names}};
    }
    case kIntegers: {
      Json list = {{"type", "array"}, {"minItems", 1}, {"items", {{"type", "integer"}}}};
      if (option.choices.empty()) return list;
      return {{"anyOf", Json::array({{{"enum", Choices(option)}}, list})}};
    }
    case kFraction:
      quantity["examples"] = Json::array({"1%", 0.01});
      break;
    default:
      quantity["examples"] = Json::array({fmt::format("1{}", unit)});
      break;
  }
  return quantity;
}

Json Properties(const OptionTable& table) {
  Json properties = Json::object();
  for (const Option& option : table.options) {
    Json one = Typed(option);
    std::string doc = Meaning(option);
    if (!option.unit.empty()) doc += fmt::format(" A bare number is in {}.", option.unit);
    one["description"] = doc;
    if (!option.fallback.empty()) one["default"] = option.fallback;
    properties[std::string(option.name)] = std::move(one);
  }
  return properties;
}

Json Object(const OptionTable& table) {
  return {{"type", "object"},
          {"description", table.doc},
          {"additionalProperties", false},
          {"properties", Properties(table)}};
}

Json NameOr(Json object) {
  return {{"anyOf", Json::array({{{"type", "string"}}, std::move(object)})}};
}

}  // namespace

const OptionTable& TopOptions() { return kTopTable; }
const OptionTable& JobEntryOptions() { return kJobEntryTable; }
const OptionTable& InterferenceOptions() { return kInterferenceTable; }

std::vector<const OptionTable*> Tables() {
  return {&kTopTable,
          &workload::ModelOptions(),
          &cluster::ClusterOptions(),
          &cluster::TopologyOptions(),
          &cluster::PcieTreeOptions(),
          &cluster::DeviceOptions(),
          &workload::ParallelOptions(),
          &workload::TrainingOptions(),
          &workload::FrameworkOptions(),
          &engine::PerturbOptions(),
          &engine::PerturbRankOptions(),
          &engine::PerturbLinkOptions(),
          &engine::SimulationOptions(),
          &memory::MemoryOptions(),
          &network::JobLogGopsOptions(),
          &network::PacketOptions(),
          &collective::CollectiveOptions(),
          &campaign::CostOptions(),
          &campaign::GoodputOptions(),
          &kJobEntryTable,
          &kInterferenceTable};
}

Result<const Option*> FindKey(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  const std::string_view section = path.substr(0, dot == std::string_view::npos ? 0 : dot);
  for (const OptionTable* table : Tables()) {
    if (table->path != section) continue;
    const Option* const option =
        FindOption(table->options, section.empty() ? path : path.substr(dot + 1));
    if (option != nullptr) return option;
  }
  return InvalidInput("no job has the key '{}'; 'orrery schema job --keys' has all",
                      Printable(path, 60));
}

std::string JobSchema() {
  Json cluster = Object(cluster::ClusterOptions());
  cluster["properties"]["topology"] = NameOr(Object(cluster::TopologyOptions()));
  cluster["properties"]["pcie_tree"] = NameOr(Object(cluster::PcieTreeOptions()));
  cluster["properties"]["device"] = NameOr(Object(cluster::DeviceOptions()));
  Json perturb = Object(engine::PerturbOptions());
  perturb["properties"]["ranks"] = {{"type", "array"},
                                    {"items", Object(engine::PerturbRankOptions())}};
  perturb["properties"]["links"] = {{"type", "array"},
                                    {"items", Object(engine::PerturbLinkOptions())}};
  Json entry = Object(kJobEntryTable);
  entry["properties"]["job"] = {{"$ref", "#"}};
  entry["properties"]["trace"] = {
      {"anyOf",
       Json::array({{{"type", "string"}}, {{"type", "array"}, {"items", {{"type", "string"}}}}})},
      {"description", "A trace that 'orrery simulate' takes: its file, folder, prefix or files."}};
  for (const Importer& importer : Importers()) {
    if (importer.options == nullptr) continue;
    entry["properties"][std::string(importer.options->path)] = Object(*importer.options);
  }
  entry["required"] = {"name"};
  Json properties = {{"model", NameOr(Object(workload::ModelOptions()))},
                     {"cluster", NameOr(std::move(cluster))}};
  properties.update(Properties(kTopTable));
  properties["parallel"] = Object(workload::ParallelOptions());
  properties["training"] = Object(workload::TrainingOptions());
  properties["framework_options"] = Object(workload::FrameworkOptions());
  properties["nccl"] = {{"type", "object"},
                        {"description", "NCCL's environment variables, as a user would set them."},
                        {"propertyNames", {{"pattern", "^NCCL_"}}}};
  properties["perturb"] = std::move(perturb);
  properties["simulation"] = Object(engine::SimulationOptions());
  properties["memory"] = Object(memory::MemoryOptions());
  properties["loggops"] = Object(network::JobLogGopsOptions());
  properties["packet"] = Object(network::PacketOptions());
  properties["collective"] = Object(collective::CollectiveOptions());
  properties["cost"] = Object(campaign::CostOptions());
  properties["goodput"] = Object(campaign::GoodputOptions());
  properties["interference"] = Object(kInterferenceTable);
  properties["jobs"] = {{"type", "array"}, {"items", std::move(entry)}};
  properties["data"] = {
      {"anyOf",
       Json::array({{{"type", "string"}}, {{"type", "array"}, {"items", {{"type", "string"}}}}})},
      {"description", "Folders of tables (docs/formats/data.md), relative to this file."}};
  properties["assume"] = {{"type", "array"},
                          {"items", {{"type", "string"}}},
                          {"description", "What you assumed; repeated in the result."}};
  const Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                       {"title", "Orrery job file"},
                       {"type", "object"},
                       {"additionalProperties", false},
                       {"properties", std::move(properties)}};
  return schema.dump(2) + "\n";
}

std::string KeyList(const OptionTable& table, std::string_view prefix) {
  std::string text;
  for (const Option& option : table.options) {
    if (!FullName(table, option.name).starts_with(prefix)) continue;
    text += fmt::format("  {:<36} {}", FullName(table, option.name), Expected(option));
    if (!option.fallback.empty()) text += fmt::format("; default {}", option.fallback);
    text += fmt::format("\n      {}\n", Meaning(option));
  }
  return text;
}

namespace {

// What an option takes, in the words that docs/formats/job.md explains above its tables.
std::string ShortlyExpected(const Option& option) {
  constexpr std::pair<std::string_view, std::string_view> kShort[] = {
      {"a whole number from ", ""},
      {"a whole number of ", "whole, "},
      {"a list of whole numbers", "list"},
      {"a number from ", "number, "},
      {"a number of ", "number, "},
      {"a text", "text"},
      {"one of ", ""},
      {"a fraction such as 0.01 or 1%", "fraction"},
      {"true or false", "true/false"},
      {" with its unit (a bare number is in ", " ("},
      {"|", "\\|"},
  };
  std::string text = Expected(option);
  for (const auto& [from, to] : kShort) {
    for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
      text.replace(at, from.size(), to);
    }
  }
  return text;
}

}  // namespace

std::string KeyTable() {
  std::string text;
  for (const OptionTable* table : Tables()) {
    text += fmt::format("\n### {}\n\n", table->path.empty() ? "Top level" : table->path);
    if (!table->doc.empty()) text += fmt::format("{}\n\n", table->doc);
    text += "| key | takes | default | meaning |\n|---|---|---|---|\n";
    for (const Option& option : table->options) {
      text += fmt::format("| `{}` | {} | {} | {} |\n", option.name, ShortlyExpected(option),
                          option.fallback.empty() ? "" : fmt::format("`{}`", option.fallback),
                          Meaning(option));
    }
  }
  return text;
}

}  // namespace orrery::job
