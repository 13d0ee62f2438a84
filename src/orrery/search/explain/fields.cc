#include "orrery/search/explain/fields.h"

#include "orrery/base/check.h"
#include "orrery/formats/csv.h"

namespace orrery::search {
namespace {

constexpr std::string_view kText =
#include "orrery_explain_fields.inc"
    ;

std::vector<FieldRow> ReadRows() {
  const Result<formats::CsvTable> table =
      formats::CsvTable::Parse(kText, "data/explain/fields.csv");
  ORRERY_CHECK(table.ok() && table->columns() == 3, "the table was read by the tests");
  std::vector<FieldRow> rows;
  for (std::size_t r = 0; r < table->rows(); ++r) {
    FieldRow row{std::string(table->cell(r, 0)), std::string(table->cell(r, 1)), {}};
    std::string_view rest = table->cell(r, 2);
    while (!rest.empty()) {
      const std::size_t space = rest.find(' ');
      row.made_of.emplace_back(rest.substr(0, space));
      rest = space == std::string_view::npos ? std::string_view() : rest.substr(space + 1);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

std::span<const FieldRow> FieldRows() {
  static const std::vector<FieldRow> rows = ReadRows();
  return rows;
}

bool Matches(std::string_view pattern, std::string_view text) {
  if (pattern.empty()) return text.empty();
  if (pattern.front() != '*') {
    return !text.empty() && text.front() == pattern.front() &&
           Matches(pattern.substr(1), text.substr(1));
  }
  const bool dots = pattern.starts_with("**");
  const std::string_view rest = pattern.substr(dots ? 2 : 1);
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (Matches(rest, text.substr(i))) return true;
    if (i < text.size() && text[i] == '.' && !dots) return false;
  }
  return false;
}

const FieldRow* FindField(std::string_view field) {
  for (const FieldRow& row : FieldRows()) {
    if (Matches(row.pattern, field)) return &row;
  }
  return nullptr;
}

}  // namespace orrery::search
