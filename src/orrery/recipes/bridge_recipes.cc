// Recipes of Megatron Bridge that are written in Python, by the names that run_recipe.py takes:
// data/recipes/bridge_recipes.csv has what each of them sets.
#include "orrery/recipes/bridge_recipes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/formats/data_cells.h"

namespace orrery::recipes {
namespace {

struct Recipe {
  std::string model, settings;
};

const std::map<std::string, Recipe, std::less<>>& All() {
  // Not constexpr: clang counts its characters one by one, and has a limit of a million steps.
  static const std::string_view kLines[] = {
#include "orrery_data_recipes_bridge_recipes.inc"
  };
  static const auto recipes = [] {
    std::map<std::string, Recipe, std::less<>> all;
    for (const std::vector<std::string>& cell : formats::DataRows(kLines, 5)) {
      const Recipe recipe{.model = cell[2], .settings = cell[3]};
      all.emplace(cell[0], recipe);
      std::string_view names = cell[1];  // shorter ones
      while (!names.empty()) {
        const std::size_t end = std::min(names.find(' '), names.size());
        all.emplace(names.substr(0, end), recipe);
        names.remove_prefix(std::min(end + 1, names.size()));
      }
    }
    return all;
  }();
  return recipes;
}

// "train.global_batch_size=512|model.seq_length=8192" as YAML, a section a block.
std::string Yaml(const Recipe& recipe) {
  std::map<std::string, std::string> sections = {{"train", ""}, {"ddp", ""}};
  sections["model"] = fmt::format("  hf_model_id: {}\n", recipe.model);
  std::string top;
  for (const auto& [key, said] : formats::NamedValues(recipe.settings)) {
    std::string value(said);
    if (key.ends_with("_layout")) {  // Megatron's | is the table's own separator
      std::ranges::replace(value, '/', '|');
      value = fmt::format("'{}'", value);
    }
    const std::size_t dot = key.rfind('.');
    if (dot == std::string_view::npos) {
      top += fmt::format("{}: {}\n", key, value);
    } else {
      sections[std::string(key.substr(0, dot))] +=
          fmt::format("  {}: {}\n", key.substr(dot + 1), value);
    }
  }
  for (const auto& [section, lines] : sections) {
    top += fmt::format("{}:{}\n", section, lines.empty() ? " {}" : "");
    top += lines;
  }
  return top;
}

}  // namespace

Result<std::string> BridgeRecipe(const std::string& name, std::string_view said) {
  const auto found = All().find(name);
  if (found != All().end()) return Yaml(found->second);
  std::vector<std::string_view> names;
  for (const auto& [known, recipe] : All()) names.push_back(known);
  return InvalidInput("{}: {}; known are those of Megatron Bridge 0.6 for models of text", said,
                      UnknownName("recipe", Printable(name, 80), names));
}

}  // namespace orrery::recipes
