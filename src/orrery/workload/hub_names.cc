#include "orrery/workload/hub_names.h"

#include <array>
#include <map>

#include "orrery/base/check.h"
#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/formats/csv.h"
#include "orrery/formats/rows.h"

namespace orrery::workload {
namespace {

using HubTable = std::map<std::string, std::string, std::less<>>;

const HubTable& AllHubNames() {
  static constexpr std::string_view kLines[] = {
#include "orrery_data_recipes_models.inc"
  };
  static const HubTable names = [] {
    const auto table = formats::CsvTable::Parse(formats::Lines(kLines), "models.csv");
    ORRERY_CHECK(table.ok(), "a table of ours is well-formed");
    HubTable all;
    for (std::size_t row = 0; row < table->rows(); ++row) {
      if (table->cell(row, 0) == "hub") all.emplace(table->cell(row, 1), table->cell(row, 2));
    }
    return all;
  }();
  return names;
}

}  // namespace

std::string HubName(std::string_view name) {
  std::string plain = Lower(name.substr(name.rfind('/') + 1));
  constexpr std::array<std::string_view, 10> kSuffixes = {
      "-instruct", "-chat", "-hf", "-base", "-it", "-bf16", "-thinking", "-sft", "-dpo", "-pt"};
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view suffix : kSuffixes) {
      if (!plain.ends_with(suffix)) continue;
      plain.resize(plain.size() - suffix.size());
      again = true;
    }
  }
  return plain;
}

std::string_view HubKeys(std::string_view name) {
  const auto found = AllHubNames().find(HubName(name));
  return found == AllHubNames().end() ? std::string_view() : std::string_view(found->second);
}

std::vector<std::string> NearestHubNames(std::string_view name) {
  std::vector<std::string_view> names;
  for (const auto& [known, keys] : AllHubNames()) names.push_back(known);
  return Nearest(HubName(name), names, 3);
}

}  // namespace orrery::workload
