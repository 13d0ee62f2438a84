#include "orrery/cluster/fabrics.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "orrery/base/schema.h"
#include "orrery/base/text.h"

namespace orrery::cluster {
namespace {

using formats::DataRow;
using formats::TextOf;

constexpr std::string_view kFabricRows[] = {
#include "orrery_data_fabrics.inc"
};

constexpr Option kFabricKeys[] = {{.name = "names"},
                                  {.name = "fabric",
                                   .type = OptionType::kChoice,
                                   .choices = "none|infiniband|roce|efa|omnipath|slingshot|tcp"},
                                  {.name = "cluster"},
                                  {.name = "note"},
                                  {.name = "refused"}};
constexpr OptionTable kFabricTable{.path = "", .doc = "", .options = kFabricKeys};

Result<FabricName> ReadFabric(const formats::RowValues<FabricName>& table, const DataRow& row) {
  ORRERY_ASSIGN_OR_RETURN(const formats::Section keys, table.Keys(row, kFabricTable, "names"));
  FabricName name{.names = Lower(TextOf(keys, "names")),
                  .fabric = {},
                  .cluster = TextOf(keys, "cluster"),
                  .note = TextOf(keys, "note"),
                  .refused = TextOf(keys, "refused")};
  if (keys.Has("fabric")) name.fabric = FindFabric(TextOf(keys, "fabric"));
  return name;
}

constexpr std::int64_t kGigabit = 1'000'000'000 / 8;
constexpr std::int64_t kMostGigabits = 1'000'000;  // 1 Pb/s: a rate above it is a mistake

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Takes a whole number from `text` at `*at`; leaves `*at` behind it.
std::int64_t TakeNumber(std::string_view text, std::size_t* at) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data() + *at, text.data() + text.size(), value);
  *at = static_cast<std::size_t>(end - text.data());
  return error == std::errc() ? value : 0;
}

bool Take(std::string_view part, std::string_view* text) {
  if (!text->starts_with(part)) return false;
  text->remove_prefix(part.size());
  return true;
}

void SkipSpaces(std::string_view* text) {
  while (Take(" ", text)) continue;
}

bool TakeWhole(std::string_view* text) {
  std::size_t at = 0;
  const bool some = TakeNumber(*text, &at) > 0;
  text->remove_prefix(at);
  SkipSpaces(text);
  return some;
}

// "8x400Gb/s", "3200 Gb/s/node" or "400Gbps/GPU" at the front of `text`.
bool TakeRate(std::string_view* text) {
  if (!TakeWhole(text)) return false;
  const bool counted = Take("x", text);
  if (counted) {
    SkipSpaces(text);
    if (!TakeWhole(text)) return false;
  }
  if (!Take("Gb/s", text) && !Take("Gbps", text)) return false;
  if (!counted && !Take("/node", text) && !Take("/GPU", text)) return false;
  return text->empty() || text->front() == ' ';
}

}  // namespace

const Fabrics& Fabrics::BuiltIn() {
  static const Fabrics fabrics = formats::Embedded<Fabrics>(kFabricRows, "data/fabrics.yaml");
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

Status CheckFabricText(std::string_view text) {
  int names = 0, rates = 0;
  bool known = true;
  std::string_view rest = text;
  const std::vector<std::string_view> fabrics = Fabrics::BuiltIn().Names();
  for (SkipSpaces(&rest); known && !rest.empty(); SkipSpaces(&rest)) {
    if (IsDigit(rest.front())) {
      known = TakeRate(&rest) && ++rates == 1;
      continue;
    }
    const std::string_view word = rest.substr(0, rest.find(' '));
    known = std::ranges::find(fabrics, Lower(word)) != fabrics.end() && ++names == 1;
    rest.remove_prefix(word.size());
  }
  if (rates == 1) known = known && ReadNics(text, 8).gigabits > 0;
  if (known && names + rates > 0) return {};
  return InvalidInput(
      "'{}' is no fabric; give a host's NICs and their rate, then what connects them, such as "
      "'8x400Gb/s InfiniBand', '3200Gb/s/node EFA' or '400Gb/s/GPU RoCE'; known are {}",
      Printable(text, 60), fmt::join(fabrics, ", "));
}

std::string DescribeFabric(const Spec& spec) {
  constexpr std::array<std::string_view, 7> kNames = {"no fabric", "InfiniBand", "RoCE", "EFA",
                                                      "Omni-Path", "Slingshot",  "TCP"};
  return fmt::format("{} NIC{} of {} Gb/s a host, {}", spec.nics_per_node,
                     spec.nics_per_node == 1 ? "" : "s", spec.nic_Bps / kGigabit,
                     kNames.at(static_cast<std::size_t>(spec.fabric)));
}

NicText ReadNics(std::string_view network, int gpus_per_node) {
  std::int64_t count = 0;
  for (std::size_t at = 0; at < network.size();) {
    if (!IsDigit(network[at])) {
      ++at;
      continue;
    }
    const std::int64_t value = TakeNumber(network, &at);
    std::size_t next = at;
    while (next < network.size() && network[next] == ' ') ++next;
    const std::string_view rest = network.substr(next);
    if (rest.starts_with("x")) {
      count = value;
    } else if (rest.starts_with("Gb/s") || rest.starts_with("Gbps")) {
      if (value > kMostGigabits) return {};
      const std::string_view unit = rest.substr(4);
      if (unit.starts_with("/node")) return {0, value};
      if (unit.starts_with("/GPU")) return {gpus_per_node, value};
      if (count > 0 && count <= 64) return {static_cast<int>(count), value};
      return {};
    }
  }
  return {};
}

}  // namespace orrery::cluster
