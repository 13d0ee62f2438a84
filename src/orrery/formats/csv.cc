#include "orrery/formats/csv.h"

#include <algorithm>
#include <utility>

#include "orrery/base/file.h"
#include "orrery/base/text.h"

namespace orrery::formats {
namespace {

// Takes one record after the other from the text; quotes may hold line ends.
class Scanner {
 public:
  Scanner(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  bool done() const { return at_ >= text_.size(); }
  std::size_t line() const { return line_; }

  // Skips lines without a character.
  void SkipEmptyLines() {
    while (!done() && EndOfLine() > 0) TakeEndOfLine();
  }

  Status Next(std::vector<std::string>* record) {
    record->clear();
    for (;;) {
      record->emplace_back();
      ORRERY_RETURN_IF_ERROR(Field(record->size(), &record->back()));
      if (done()) return {};
      if (text_[at_] == ',') {
        ++at_;
        if (record->size() >= CsvTable::kMaxColumns) {
          return InvalidInput("{}:{}: more than {} columns; is this a comma-separated table?",
                              name_, line_, CsvTable::kMaxColumns);
        }
        continue;
      }
      TakeEndOfLine();
      return {};
    }
  }

 private:
  std::size_t EndOfLine() const {
    if (done()) return 0;
    if (text_[at_] == '\n') return 1;
    return text_[at_] == '\r' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n' ? 2 : 0;
  }
  void TakeEndOfLine() {
    at_ += EndOfLine();
    ++line_;
  }

  // Leaves at_ on a comma, a line end or the end of the text.
  Status Field(std::size_t column, std::string* out) {
    if (!done() && text_[at_] == '"') return Quoted(column, out);
    while (!done() && text_[at_] != ',' && EndOfLine() == 0) {
      const char c = text_[at_];
      if (c == '"') {
        return InvalidInput(
            "{}:{}: column {}: a quote inside '{}'; put the whole field in quotes and write the "
            "inner quote twice",
            name_, line_, column, Printable(*out, 40));
      }
      ORRERY_RETURN_IF_ERROR(Check(c, column));
      out->push_back(c);
      ++at_;
    }
    return {};
  }

  Status Quoted(std::size_t column, std::string* out) {
    const std::size_t opened = line_;
    for (++at_; !done(); ++at_) {
      const char c = text_[at_];
      if (c != '"') {
        if (c == '\n') {
          ++line_;
        } else if (EndOfLine() == 0) {
          ORRERY_RETURN_IF_ERROR(Check(c, column));
        }
        out->push_back(c);
        continue;
      }
      ++at_;
      if (!done() && text_[at_] == '"') {
        out->push_back('"');
        continue;
      }
      if (done() || text_[at_] == ',' || EndOfLine() > 0) return {};
      return InvalidInput(
          "{}:{}: column {}: text after the closing quote of '{}'; a comma is missing", name_,
          line_, column, Printable(*out, 40));
    }
    return InvalidInput("{}:{}: column {}: the quote opened here is never closed", name_, opened,
                        column);
  }

  Status Check(char c, std::size_t column) const {
    if (c == '\0') {
      return InvalidInput("{}:{}: column {}: a NUL byte; is this a text file?", name_, line_,
                          column);
    }
    if (c == '\r') {
      return InvalidInput(
          "{}:{}: column {}: a carriage return without a line feed; end lines with LF", name_,
          line_, column);
    }
    return {};
  }

  std::string_view text_;
  const std::string& name_;
  std::size_t at_ = 0;
  std::size_t line_ = 1;
};

Status CheckHeader(const std::vector<std::string>& header, const std::string& name,
                   std::size_t line) {
  for (std::size_t i = 0; i < header.size(); ++i) {
    if (header[i].empty()) {
      return InvalidInput("{}:{}: column {} has no name; name it or remove it", name, line, i + 1);
    }
    if (std::find(header.begin(), header.begin() + static_cast<std::ptrdiff_t>(i), header[i]) !=
        header.begin() + static_cast<std::ptrdiff_t>(i)) {
      return InvalidInput("{}:{}: column '{}' stands twice in the header; remove one", name, line,
                          Printable(header[i], 40));
    }
  }
  return {};
}

}  // namespace

std::optional<std::size_t> CsvTable::Find(std::string_view column) const {
  const auto at = std::find(header_.begin(), header_.end(), column);
  if (at == header_.end()) return std::nullopt;
  return static_cast<std::size_t>(at - header_.begin());
}

std::string CsvTable::Where(std::size_t row, std::string_view column) const {
  return fmt::format("{}:{}: column '{}'", name_, lines_[row], column);
}

Status CsvTable::Append(const std::vector<std::string>& record, std::size_t line) {
  if (record.size() != header_.size()) {
    return InvalidInput(
        "{}:{}: {} fields where the header has {}; a comma inside a field needs quotes", name_,
        line, record.size(), header_.size());
  }
  for (const std::string& cell : record) {
    cells_ += cell;
    ends_.push_back(cells_.size());
  }
  lines_.push_back(line);
  return {};
}

Result<CsvTable> CsvTable::Parse(std::string_view text, const std::string& name) {
  if (const std::size_t bad = FindInvalidUtf8(text); bad != std::string_view::npos) {
    const auto end = text.begin() + static_cast<std::ptrdiff_t>(bad);
    return InvalidInput("{}:{}: not UTF-8; save the table as UTF-8", name,
                        1 + std::count(text.begin(), end, '\n'));
  }
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  if (text.substr(0, kMark.size()) == kMark) text.remove_prefix(kMark.size());
  CsvTable table;
  table.name_ = name;
  Scanner scanner(text, name);
  scanner.SkipEmptyLines();
  if (scanner.done()) return InvalidInput("{}: empty; the first line must name the columns", name);
  const std::size_t header_line = scanner.line();
  ORRERY_RETURN_IF_ERROR(scanner.Next(&table.header_));
  ORRERY_RETURN_IF_ERROR(CheckHeader(table.header_, name, header_line));
  std::vector<std::string> record;
  for (scanner.SkipEmptyLines(); !scanner.done(); scanner.SkipEmptyLines()) {
    const std::size_t line = scanner.line();
    ORRERY_RETURN_IF_ERROR(scanner.Next(&record));
    ORRERY_RETURN_IF_ERROR(table.Append(record, line));
  }
  return table;
}

std::string CsvField(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + '"';
}

Result<CsvTable> CsvTable::Read(const std::string& path) {
  ORRERY_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxBytes));
  return Parse(text, path);
}

}  // namespace orrery::formats
