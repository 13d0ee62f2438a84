// Comma-separated tables, read strictly (RFC 4180).
//
// One header record, then records of as many fields; fields may stand in double quotes, in which a
// double quote is written twice and commas and line ends are data. LF and CRLF end records; a UTF-8
// byte-order mark and empty lines are skipped. Everything else is an error that names file, line
// and column: a table that is read differently from how it was written gives wrong errors silently.
//
// Limits: 256 MiB, 1,024 columns. Cost: one pass, one copy of the text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orrery/base/status.h"

namespace orrery::formats {

class CsvTable {
 public:
  static constexpr std::int64_t kMaxBytes = std::int64_t{256} << 20;
  static constexpr std::size_t kMaxColumns = 1024;

  static Result<CsvTable> Read(const std::string& path);
  // `name` stands for the file in errors.
  static Result<CsvTable> Parse(std::string_view text, const std::string& name);

  const std::string& name() const { return name_; }
  const std::vector<std::string>& header() const { return header_; }
  std::size_t columns() const { return header_.size(); }
  std::size_t rows() const { return lines_.size(); }
  std::string_view cell(std::size_t row, std::size_t column) const {
    const std::size_t i = row * columns() + column;
    const std::size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(cells_).substr(begin, ends_[i] - begin);
  }
  // Where the record begins, from 1.
  std::size_t line(std::size_t row) const { return lines_[row]; }
  std::optional<std::size_t> Find(std::string_view column) const;
  // The same records under another header, each cell as cell(column, text) has it. REQUIRES: as
  // many columns.
  template <typename Cell>
  CsvTable With(std::vector<std::string> header, const Cell& cell) const {
    CsvTable out;
    out.name_ = name_;
    out.header_ = std::move(header);
    out.lines_ = lines_;
    for (std::size_t i = 0; i < ends_.size(); ++i) {
      out.cells_ += cell(i % columns(), this->cell(i / columns(), i % columns()));
      out.ends_.push_back(out.cells_.size());
    }
    return out;
  }
  // "table.csv:17: column 'tp'".
  std::string Where(std::size_t row, std::string_view column) const;

 private:
  Status Append(const std::vector<std::string>& record, std::size_t line);

  std::string name_;
  std::vector<std::string> header_;
  std::string cells_;              // all cells, one after the other
  std::vector<std::size_t> ends_;  // where each ends
  std::vector<std::size_t> lines_;
};

// `text` as a field, in quotes where it needs them.
std::string CsvField(std::string_view text);

}  // namespace orrery::formats
