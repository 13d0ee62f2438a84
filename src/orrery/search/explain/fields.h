// The table of a result's numeric fields: data/explain/fields.csv, part of the program.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::search {

struct FieldRow {
  std::string pattern;  // "breakdown.**.compute_*": * any text without a dot, ** any text
  std::string meaning;
  std::vector<std::string> made_of;  // "field:~total_ps", "config:training", "constants", …
};
std::span<const FieldRow> FieldRows();
// The first row whose pattern the field has; null where there is none.
const FieldRow* FindField(std::string_view field);
// Whether `text` is of the pattern.
bool Matches(std::string_view pattern, std::string_view text);

}  // namespace orrery::search
