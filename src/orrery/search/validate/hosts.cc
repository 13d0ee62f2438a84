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

constexpr Option kHostKeys[] = {
    {.name = "names"},
    {.name = "note"},
    {.name = "cpu", .type = OptionType::kChoice, .choices = "intel|amd"},
    {.name = "efa_latency_us", .type = OptionType::kNumber, .fallback = "0", .min = 0, .max = 1e6},
    {.name = "tuner"}};
constexpr OptionTable kHostTable{.path = "", .doc = "", .options = kHostKeys};
constexpr std::string_view kHostParts[] = {"nccl"};

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
