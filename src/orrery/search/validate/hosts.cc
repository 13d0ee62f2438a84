#include "orrery/search/validate/hosts.h"

#include <algorithm>
#include <span>

#include "orrery/base/schema.h"
#include "orrery/base/text.h"
#include "orrery/collective/choice/tuner.h"

namespace orrery::search {
namespace {

using formats::DataRow;
using formats::Section;
using formats::TextOf;

constexpr std::string_view kHosts[] = {
#include "orrery_data_hosts.inc"
};
constexpr std::string_view kFabrics[] = {
#include "orrery_data_fabrics.inc"
};

constexpr Option kHostKeys[] = {
    {.name = "names"},
    {.name = "note"},
    {.name = "cpu", .type = OptionType::kChoice, .choices = "intel|amd"},
    {.name = "efa_latency_us", .type = OptionType::kNumber, .fallback = "0", .min = 0, .max = 1e6},
    {.name = "tuner"}};
constexpr OptionTable kHostTable{.path = "", .doc = "", .options = kHostKeys};
constexpr std::string_view kHostParts[] = {"nccl"};
constexpr Option kFabricKeys[] = {{.name = "names"},
                                  {.name = "fabric",
                                   .type = OptionType::kChoice,
                                   .choices = "none|infiniband|roce|efa|omnipath|slingshot|tcp"},
                                  {.name = "cluster"},
                                  {.name = "note"},
                                  {.name = "refused"}};
constexpr OptionTable kFabricTable{.path = "", .doc = "", .options = kFabricKeys};

Result<Variables> ReadVariables(const formats::RowValues<Host>& table, const DataRow& row) {
  Variables variables;
  const formats::Node* const nccl = row.keys.Find("nccl");
  if (nccl == nullptr) return variables;
  for (const formats::Field& field : nccl->fields) {
    const std::pair one{field.key, field.value.text};
    auto parsed = collective::ParseEnvironment(std::span(&one, 1));
    if (!parsed.ok()) return std::move(parsed).TakeStatus().In(table.document().Where(field));
    variables.push_back(one);
  }
  return variables;
}

Result<Host> ReadHost(const formats::RowValues<Host>& table, const DataRow& row) {
  ORRERY_ASSIGN_OR_RETURN(const Section keys, table.Keys(row, kHostTable, "names", kHostParts));
  Host host{.names = Lower(TextOf(keys, "names")),
            .note = TextOf(keys, "note"),
            .cpu_is_amd = {},
            .efa_latency_us = keys.Real("efa_latency_us"),
            .nccl = {},
            .tuner = {}};
  if (keys.Has("cpu")) host.cpu_is_amd = TextOf(keys, "cpu") == "amd";
  ORRERY_ASSIGN_OR_RETURN(host.nccl, ReadVariables(table, row));
  if (keys.Has("tuner")) {
    ORRERY_ASSIGN_OR_RETURN(host.tuner,
                            collective::ParseTunerFile(keys.Text("tuner"), keys.Where("tuner")));
  }
  return host;
}

Result<FabricName> ReadFabric(const formats::RowValues<FabricName>& table, const DataRow& row) {
  ORRERY_ASSIGN_OR_RETURN(const Section keys, table.Keys(row, kFabricTable, "names"));
  FabricName name{.names = Lower(TextOf(keys, "names")),
                  .fabric = {},
                  .cluster = TextOf(keys, "cluster"),
                  .note = TextOf(keys, "note"),
                  .refused = TextOf(keys, "refused")};
  const std::vector<std::string_view> fabrics = Choices(*FindOption(kFabricKeys, "fabric"));
  if (keys.Has("fabric")) {
    const auto at = std::ranges::find(fabrics, TextOf(keys, "fabric"));
    name.fabric = static_cast<cluster::Fabric>(at - fabrics.begin());
  }
  return name;
}

}  // namespace

const Hosts& Hosts::BuiltIn() {
  static const Hosts hosts = formats::Embedded<Hosts>(kHosts, "data/hosts.yaml");
  return hosts;
}

Status Hosts::Add(std::string_view text, const std::string& file) {
  return rows_.Add(text, file, ReadHost);
}

std::vector<const Host*> Hosts::Named(const Configuration& row) const {
  std::vector<const Host*> named;
  const std::string words = WordsOf(row);
  for (const Host& host : rows_.values()) {
    const std::vector<std::string_view> names = SplitBars(host.names);
    const bool is = std::ranges::any_of(
        names, [&](std::string_view name) { return NamedIn(words, name) == search::Named::kOn; });
    if (is) named.push_back(&host);
  }
  return named;
}

const Fabrics& Fabrics::BuiltIn() {
  static const Fabrics fabrics = formats::Embedded<Fabrics>(kFabrics, "data/fabrics.yaml");
  return fabrics;
}

Status Fabrics::Add(std::string_view text, const std::string& file) {
  return rows_.Add(text, file, ReadFabric);
}

const FabricName* Fabrics::Find(std::string_view text) const {
  const std::string lower = Lower(text);
  const auto at = std::ranges::find_if(rows_.values(), [&](const FabricName& fabric) {
    const std::vector<std::string_view> names = SplitBars(fabric.names);
    return std::ranges::any_of(
        names, [&](std::string_view name) { return lower.find(name) != std::string::npos; });
  });
  return at == rows_.values().end() ? nullptr : &*at;
}

std::vector<std::string_view> Fabrics::Names() const {
  std::vector<std::string_view> names;
  for (const FabricName& fabric : rows_.values()) {
    if (!fabric.refused.empty()) continue;
    for (const std::string_view name : SplitBars(fabric.names)) names.push_back(name);
  }
  return names;
}

std::string WordsOf(const Configuration& row) {
  return Lower(row.text("system")) + "; " + Lower(row.text("network"));
}

Named NamedIn(std::string_view words, std::string_view name) {
  const std::size_t at = words.find(name);
  if (at == std::string_view::npos) return Named::kNot;
  const std::string_view before = words.substr(0, at), behind = words.substr(at + name.size());
  const bool off = before.ends_with("no ") || before.ends_with("without ") ||
                   before.ends_with("w/o ") || behind.starts_with(" off") ||
                   behind.starts_with(" disabled");
  return off ? Named::kOff : Named::kOn;
}

}  // namespace orrery::search
