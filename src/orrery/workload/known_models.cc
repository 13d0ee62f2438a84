#include "orrery/workload/known_models.h"

#include <array>
#include <map>

#include "orrery/base/check.h"
#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/formats/data_cells.h"

namespace orrery::workload {
namespace {

using KeysByName = std::map<std::string, std::string, std::less<>>;

const KeysByName& KnownTo(std::string_view framework) {
  static constexpr std::string_view kLines[] = {
#include "orrery_data_recipes_models.inc"
  };
  static const std::map<std::string, KeysByName, std::less<>> frameworks = [] {
    std::map<std::string, KeysByName, std::less<>> all;
    for (const std::vector<std::string>& cell : formats::DataRows(kLines, 4)) {
      const bool fresh = all[cell[0]].emplace(cell[1], cell[2]).second;
      ORRERY_CHECK(fresh, "a model has one row");
    }
    return all;
  }();
  static const KeysByName none;
  const auto found = frameworks.find(framework);
  return found == frameworks.end() ? none : found->second;
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

std::string_view KnownModelKeys(std::string_view framework, std::string_view name) {
  const KeysByName& names = KnownTo(framework);
  const auto found = names.find(name);
  return found == names.end() ? std::string_view() : std::string_view(found->second);
}

std::vector<std::string> NearestKnownModels(std::string_view framework, std::string_view name) {
  std::vector<std::string_view> names;
  for (const auto& [known, keys] : KnownTo(framework)) names.push_back(known);
  return Nearest(name, names, 3);
}

}  // namespace orrery::workload
