#include "orrery/formats/data_cells.h"

#include "orrery/base/check.h"
#include "orrery/base/schema.h"
#include "orrery/formats/csv.h"
#include "orrery/formats/rows.h"

namespace orrery::formats {

std::vector<std::vector<std::string>> DataRows(std::span<const std::string_view> lines,
                                               std::size_t columns) {
  const auto table = CsvTable::Parse(Lines(lines), "a data file");
  ORRERY_CHECK(table.ok() && table->columns() == columns,
               "a data file's row has as many cells as columns");
  std::vector<std::vector<std::string>> rows(table->rows());
  for (std::size_t row = 0; row < rows.size(); ++row) {
    for (std::size_t i = 0; i < columns; ++i) rows[row].emplace_back(table->cell(row, i));
  }
  return rows;
}

std::vector<std::pair<std::string_view, std::string_view>> NamedValues(std::string_view cell) {
  std::vector<std::pair<std::string_view, std::string_view>> values;
  for (const std::string_view item : SplitBars(cell)) {
    const std::size_t equals = item.find('=');
    ORRERY_CHECK(equals != std::string_view::npos, "what a data file sets is name=value");
    values.emplace_back(item.substr(0, equals), item.substr(equals + 1));
  }
  return values;
}

}  // namespace orrery::formats
