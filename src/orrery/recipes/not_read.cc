// Frameworks that are known by sight and read by no recipe: data/recipes/not_read.csv.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "orrery/base/schema.h"
#include "orrery/base/text.h"
#include "orrery/formats/data_cells.h"
#include "orrery/recipes/configuration.h"
#include "orrery/recipes/dialects.h"

namespace orrery::recipes {
namespace {

const std::vector<std::vector<std::string>>& NotRead() {
  static constexpr std::string_view kLines[] = {
#include "orrery_data_recipes_not_read.inc"
  };
  static const std::vector<std::vector<std::string>> rows = formats::DataRows(kLines, 5);
  return rows;
}

}  // namespace

std::string LooksLike(std::string_view text, const std::string& path) {
  for (const std::vector<std::string>& row : NotRead()) {
    const std::vector<std::string_view> keys = SplitBars(row[1]);
    const bool yaml = IsYaml(path) && !keys.empty() &&
                      std::ranges::all_of(keys, [&](auto key) { return HasKey(text, key); });
    const bool words = !row[2].empty() && Contains(text, row[2]);
    if (!yaml && !words) continue;
    return fmt::format("it looks like a file of {} ({}), which no recipe reads: give {}", row[0],
                       yaml ? fmt::format("{}", fmt::join(keys, ", ")) : row[2], row[3]);
  }
  return "";
}

Status UnknownRecipe(std::string_view text, const std::string& path) {
  std::vector<std::string_view> names;
  for (const Dialect& dialect : Dialects()) names.push_back(dialect.name);
  const std::string like = LooksLike(text, path);
  return InvalidInput(
      "'{}' is no recipe that is known{}{}; known: {}; --from NAME says which it is",
      Printable(path), like.empty() ? "" : "; ", like, fmt::join(names, ", "));
}

}  // namespace orrery::recipes
