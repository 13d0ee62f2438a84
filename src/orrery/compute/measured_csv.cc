#include "orrery/compute/measured_csv.h"

#include <fmt/format.h>

#include <charconv>
#include <set>
#include <utility>

#include "orrery/base/file.h"
#include "orrery/base/text.h"
#include "orrery/cluster/catalog.h"

namespace orrery::compute {
namespace {

constexpr std::string_view kMagic = "# orrery.measured/1";
constexpr std::int64_t kMaxFileBytes = 256 << 20;
constexpr std::size_t kMaxLine = 4096;

constexpr std::string_view kDtypes = "|bf16|fp16|fp32|tf32|fp8|fp8_split|";
constexpr std::string_view kModes = "|hot|sustained|";
constexpr double kLeastTime = 1e-4;

constexpr CsvColumn kGemm[] = {
    {"op", CellKind::kText, true, "|gemm|"},
    {"dtype", CellKind::kText, true, kDtypes},
    {"layout", CellKind::kText, true, "|nn|nt|tn|"},
    {"m", CellKind::kInt, true},
    {"n", CellKind::kInt, true},
    {"k", CellKind::kInt, true},
    {"groups", CellKind::kInt, true},
    {"time_us", CellKind::kFloat, false, {}, kLeastTime},
    {"time_us_q1", CellKind::kFloat, false, {}, kLeastTime},
    {"time_us_q3", CellKind::kFloat, false, {}, kLeastTime},
    {"mode", CellKind::kText, true, kModes},
    {"samples", CellKind::kInt},
};
constexpr CsvColumn kAttention[] = {
    {"op", CellKind::kText, true, "|attention|"},
    {"dtype", CellKind::kText, true, kDtypes},
    {"kernel", CellKind::kText, true, "|flash|cudnn|efficient|math|unfused|"},
    {"b", CellKind::kInt, true},
    {"h", CellKind::kInt, true},
    {"kv_heads", CellKind::kInt, true},
    {"s_q", CellKind::kInt, true},
    {"s_kv", CellKind::kInt, true},
    {"d", CellKind::kInt, true},
    {"causal", CellKind::kInt, true, {}, 0},
    {"pass", CellKind::kText, true, "|fwd|bwd|"},
    {"time_us", CellKind::kFloat, false, {}, kLeastTime},
    {"time_us_q1", CellKind::kFloat, false, {}, kLeastTime},
    {"time_us_q3", CellKind::kFloat, false, {}, kLeastTime},
    {"mode", CellKind::kText, true, kModes},
    {"samples", CellKind::kInt},
};
constexpr CsvColumn kMemoryBound[] = {
    {"op", CellKind::kText, true, "|memory_bound|"},
    {"dtype", CellKind::kText, true, kDtypes},
    {"kernel", CellKind::kText, true},
    {"rows", CellKind::kInt, true},
    {"cols", CellKind::kInt, true},
    {"bytes", CellKind::kInt},
    {"time_us", CellKind::kFloat, false, {}, kLeastTime},
    {"time_us_q1", CellKind::kFloat, false, {}, kLeastTime},
    {"time_us_q3", CellKind::kFloat, false, {}, kLeastTime},
    {"mode", CellKind::kText, true, kModes},
    {"samples", CellKind::kInt},
};
constexpr CsvSchema kSchemas[] = {
    {"gemm", kGemm}, {"attention", kAttention}, {"memory_bound", kMemoryBound}};

struct Place {
  const std::string& path;
  int line;
  Status Error(std::string_view field, std::string_view value, std::string_view problem,
               std::string_view remedy) const {
    return InvalidInput("{}:{}: {} = '{}': {}; {}", path, line, field, Printable(value, 60),
                        problem, remedy);
  }
};

// Cells of one line, RFC 4180 quotes undone. False for an open or misplaced quote.
bool Split(std::string_view line, std::vector<std::string>* cells) {
  cells->assign(1, "");
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quoted) {
      if (c != '"') {
        cells->back() += c;
      } else if (i + 1 < line.size() && line[i + 1] == '"') {
        cells->back() += line[++i];
      } else {
        quoted = false;
        if (i + 1 < line.size() && line[i + 1] != ',') return false;
      }
    } else if (c == '"') {
      if (!cells->back().empty()) return false;
      quoted = true;
    } else if (c == ',') {
      cells->emplace_back();
    } else {
      cells->back() += c;
    }
  }
  return !quoted;
}

template <class T>
bool ParseNumber(const std::string& text, T* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

Result<Cell> ParseCell(const Place& place, const CsvColumn& column, const std::string& text) {
  constexpr std::string_view kRestore = "restore the line or delete it";
  if (text.empty()) return place.Error(column.name, text, "is empty", kRestore);
  if (column.kind == CellKind::kText) {
    const bool known =
        column.choices.empty() || column.choices.find("|" + text + "|") != std::string_view::npos;
    if (!known) {
      std::string valid;  // "a, b" of "|a|b|"
      for (const char c : column.choices.substr(1, column.choices.size() - 2)) {
        valid += c == '|' ? std::string(", ") : std::string(1, c);
      }
      return place.Error(column.name, text, "is unknown", "valid: " + valid);
    }
    return Cell(text);
  }
  double value = 0;
  Cell cell;
  if (column.kind == CellKind::kInt) {
    std::int64_t integer = 0;
    if (!ParseNumber(text, &integer)) {
      return place.Error(column.name, text, "is not an integer", kRestore);
    }
    value = static_cast<double>(integer);
    cell = integer;
  } else {
    if (!ParseNumber(text, &value)) {
      return place.Error(column.name, text, "is not a number", kRestore);
    }
    cell = value;
  }
  // Also refuses nan. Nothing measured comes near the upper limit.
  if (!(value >= column.low && value <= 1e15)) {
    return place.Error(column.name, text, fmt::format("must be from {} to 1e15", column.low),
                       "measure it again");
  }
  return cell;
}

Status CheckColumns(const Place& place, const CsvSchema& schema,
                    const std::vector<std::string>& names) {
  for (std::size_t i = 0; i < schema.columns.size(); ++i) {
    const std::string_view wanted = schema.columns[i].name;
    if (i < names.size() && names[i] == wanted) continue;
    return place.Error("column " + std::to_string(i + 1), i < names.size() ? names[i] : "",
                       fmt::format("table {} has '{}' there", schema.table, wanted),
                       "write the columns of docs/formats/measured-kernels.md in their order");
  }
  if (names.size() > schema.columns.size()) {
    return place.Error("column " + std::to_string(schema.columns.size() + 1),
                       names[schema.columns.size()], "one column too many", "remove it");
  }
  return {};
}

Status AddRow(const Place& place, std::string_view line, MeasuredFile* file,
              std::set<std::string>* keys) {
  const CsvSchema& schema = *file->schema;
  std::vector<std::string> cells;
  if (!Split(line, &cells) || cells.size() != schema.columns.size()) {
    return place.Error("row", line,
                       fmt::format("has {} cells, not {}", cells.size(), schema.columns.size()),
                       "restore the line or delete it");
  }
  std::vector<Cell> row;
  std::string key;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    ORRERY_ASSIGN_OR_RETURN(Cell cell, ParseCell(place, schema.columns[i], cells[i]));
    row.push_back(std::move(cell));
    if (schema.columns[i].key) key += cells[i] + ",";
  }
  if (!keys->insert(key).second) {
    return place.Error("row", key, "repeats the key of a row above", "keep one of the two");
  }
  file->rows.push_back(std::move(row));
  file->lines.push_back(place.line);
  return {};
}

// One `# key: value` line.
Status AddHeader(const Place& place, std::string_view line, MeasuredFile* file) {
  const std::size_t colon = line.find(": ");
  if (colon == std::string_view::npos || colon < 3 || line.substr(0, 2) != "# ") {
    return place.Error("header", line, "is no '# key: value'", "restore the line or delete it");
  }
  const std::string key(line.substr(2, colon - 2));
  if (!file->header.emplace(key, line.substr(colon + 2)).second) {
    return place.Error("header", key, "stands twice", "keep one of the two");
  }
  return {};
}

// What must hold once all header lines are read.
Status CheckHeader(const Place& place, MeasuredFile* file) {
  for (const char* key : {"table", "device", "gpu"}) {
    if (file->header[key].empty()) {
      return place.Error(key, "", "is missing in the header", "measure with tools/measure");
    }
  }
  if (file->header["device"].find("(tiny, not data)") != std::string::npos) {
    return place.Error("device", file->header["device"], "is a trial run",
                       "measure on a GPU, without --tiny");
  }
  // The slug of a driver's name (h100-80gb-hbm3) becomes the name of the device's tables (h100).
  if (const auto device = cluster::Catalog::BuiltIn().FindDriverName(file->header["gpu_name"])) {
    file->header["gpu"] = device->table;
  }
  for (const CsvSchema& schema : kSchemas) {
    if (schema.table == file->header["table"]) file->schema = &schema;
  }
  return {};
}

}  // namespace

std::span<const CsvSchema> MeasuredSchemas() { return kSchemas; }

Result<MeasuredFile> ParseMeasured(const std::string& path, std::string_view text) {
  MeasuredFile file;
  file.path = path;
  std::set<std::string> keys;
  bool in_header = true, named = false;
  int number = 0;
  while (!text.empty()) {
    const Place place{path, ++number};
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) {
      return place.Error("line", text, "has no end of line, so the file is cut",
                         "resume the measurement, or end the line");
    }
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (line.size() > kMaxLine || FindInvalidUtf8(line) != std::string_view::npos) {
      return place.Error("line", line, "is longer than 4,096 bytes or not UTF-8",
                         "restore the file");
    }
    if (number == 1) {
      if (line != kMagic) {
        const bool saved_again = line.find(kMagic) != std::string_view::npos;
        return place.Error("first line", line, fmt::format("is not '{}'", kMagic),
                           saved_again ? "end lines with LF alone, without a byte order mark"
                                       : "only this version of the format is read");
      }
    } else if (in_header && line.substr(0, 1) == "#") {
      ORRERY_RETURN_IF_ERROR(AddHeader(place, line, &file));
    } else if (!named) {
      in_header = false;
      ORRERY_RETURN_IF_ERROR(CheckHeader(place, &file));
      if (file.schema == nullptr) return file;
      std::vector<std::string> names;
      Split(line, &names);
      ORRERY_RETURN_IF_ERROR(CheckColumns(place, *file.schema, names));
      named = true;
    } else {
      ORRERY_RETURN_IF_ERROR(AddRow(place, line, &file, &keys));
    }
  }
  if (number == 0) {
    return InvalidInput("{}: the file is empty; it begins with '# orrery.measured/1'", path);
  }
  if (!named) {
    return Place{path, number}.Error("columns", "", "are missing", "the file ends too early");
  }
  return file;
}

Result<MeasuredFile> ReadMeasured(const std::string& path) {
  ORRERY_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxFileBytes));
  return ParseMeasured(path, text);
}

}  // namespace orrery::compute
