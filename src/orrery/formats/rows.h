// A data file: a table of named rows, as YAML. What Orrery knows of machines, models and frameworks
// stands in such files (data/), embedded when it is built; a user's own file adds rows.
//
// The file is a map from a row's name to its keys. Three keys mean the same in every table:
//   source       who says so: a document, a file and release, or a measurement. Every row has one.
//   like         a row above, or a list of rows: the row starts with their keys but `aliases`
//                and `meant_by`, its
//                own replace theirs (maps key by key), their sources stand before its own.
//   description  one sentence, for lists and errors.
// A row whose name begins with '_' is a part: rows are made from it, nobody else sees it; a part
// that no row is like is an error. A name is given once, also over files: a row never changes
// silently. All other keys are the table's, which reads them against its options (section.h).
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orrery/base/check.h"
#include "orrery/base/status.h"
#include "orrery/formats/tree.h"

namespace orrery::formats {

struct DataRow {
  std::string name, description;
  std::vector<std::string> sources;
  Node keys;  // a map, without the three above
  std::int32_t line = 0;
  bool part() const { return name.starts_with('_'); }
};

class DataTable {
 public:
  // `what` a row is, for errors: "device".
  explicit DataTable(std::string what) : what_(std::move(what)) {}

  // Adds the rows of a file; `file` stands for it in errors. They stand behind
  // those that rows() had. On an error the table is as it was but for its document's sources.
  Status Add(std::string_view text, const std::string& file);

  const std::deque<DataRow>& rows() const { return rows_; }
  const DataRow* Find(std::string_view name) const;
  const Document& document() const { return document_; }  // for the places of keys

 private:
  Status AddRow(const Field& field, std::vector<std::string>* used);

  std::string what_;
  Document document_;  // no root: the files' names alone
  std::deque<DataRow> rows_;
};

// The text of an embedded table (cmake/data.cmake).
std::string Lines(std::span<const std::string_view> lines);

// The table of one embedded file. That it cannot be read is a fault of the build.
template <typename Table>
Table Embedded(std::span<const std::string_view> lines, const std::string& file) {
  Table table;
  const Status status = table.Add(Lines(lines), file);
  ORRERY_CHECK(status.ok(), status.message().c_str());
  return table;
}

// The fields of `over` put over those of `under`, maps key by key.
void Overlay(const Node& over, Node* under);

}  // namespace orrery::formats
