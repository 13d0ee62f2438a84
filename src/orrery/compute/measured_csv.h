// Reads one file of measured kernels (docs/formats/measured-kernels.md, `orrery.measured/1`).
//
// Every fault is an error that names file:line, field, value and remedy. Trial runs ("tiny, not
// data") and cut files are refused. Tables that compute does not use (launch, overlap, …) are
// returned without rows.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "orrery/base/status.h"

namespace orrery::compute {

using Cell = std::variant<std::int64_t, double, std::string>;

enum class CellKind : std::uint8_t { kText, kInt, kFloat };
struct CsvColumn {
  std::string_view name;
  CellKind kind = CellKind::kText;
  bool key = false;
  std::string_view choices = {};  // "|a|b|"; empty: any text
  double low = 1;                 // least value of a number
};
struct CsvSchema {
  std::string_view table;
  std::span<const CsvColumn> columns;
};
// gemm, attention, memory_bound.
std::span<const CsvSchema> MeasuredSchemas();

struct MeasuredFile {
  std::string path;
  std::map<std::string, std::string> header;
  const CsvSchema* schema = nullptr;    // null: a table that compute does not use
  std::vector<std::vector<Cell>> rows;  // by column of the schema
  std::vector<int> lines;               // of each row
};

Result<MeasuredFile> ReadMeasured(const std::string& path);
// The same of text already read; `path` is for messages.
Result<MeasuredFile> ParseMeasured(const std::string& path, std::string_view text);

}  // namespace orrery::compute
