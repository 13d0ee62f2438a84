#include "orrery/recipes/csv.h"

#include <algorithm>

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

std::vector<std::vector<std::string>> DataRows(std::string_view text, std::size_t columns) {
  std::vector<std::vector<std::string>> rows;
  bool header = true;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line.starts_with('#')) continue;
    if (!header) {
      rows.push_back(Cells(line));
      ORRERY_CHECK(rows.back().size() == columns, "a data file's row has as many cells as columns");
    }
    header = false;
  }
  return rows;
}

}  // namespace orrery::recipes
