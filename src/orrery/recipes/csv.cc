#include "orrery/recipes/csv.h"

#include "orrery/base/check.h"

namespace orrery::recipes {
namespace {

// "a,""b""" and plain.
std::vector<std::string> Cells(std::string_view line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (std::size_t at = 0; at < line.size(); ++at) {
    const char c = line[at];
    if (quoted && c == '"' && at + 1 < line.size() && line[at + 1] == '"') {
      cells.back() += '"';
      ++at;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      cells.emplace_back();
    } else {
      cells.back() += c;
    }
  }
  return cells;
}

}  // namespace

std::vector<std::vector<std::string>> DataRows(std::span<const std::string_view> lines,
                                               std::size_t columns) {
  std::vector<std::vector<std::string>> rows;
  for (const std::string_view line : lines.subspan(1)) {
    rows.push_back(Cells(line));
    ORRERY_CHECK(rows.back().size() == columns, "a data file's row has as many cells as columns");
  }
  return rows;
}

}  // namespace orrery::recipes
