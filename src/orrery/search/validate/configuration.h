// What a prediction may read of a row: its configuration, and nothing of its outcome.
//
// A Configuration is a view that holds the table's columns of configuration only (columns.h). The
// mapping from a row to a run receives this view and never the table, so that no prediction can
// depend on a measured value, on who published it or on its name. A column that is missing or blank
// is blank: what the framework's default then means is stated by the mapping, row by row.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/search/validate/columns.h"

namespace orrery::search {

class Words;

class Configuration {
 public:
  // REQUIRES: `table` outlives this.
  Configuration(const MeasuredTable& table, std::size_t row);

  // Reads words that mean one of ours as that (words.h), which `assumed` says. REQUIRES: `words`
  // outlives this.
  void Translate(const Words& words, std::vector<std::string>* assumed);
  // Whether every cell is of its column's type and range; the first that is not is the error.
  Status Check() const;

  TableKind kind() const { return table_->kind; }
  // Empty when blank. REQUIRES: a column of configuration of this kind.
  std::string_view text(std::string_view column) const;
  bool Knows(std::string_view column) const;
  bool has(std::string_view column) const { return !text(column).empty(); }
  // Cells that set a key of the job.
  struct Key {
    const Column* column;
    std::string_view text;
  };
  std::vector<Key> keys() const;

  // Nullopt: blank, or not as Check() wants it.
  std::optional<std::int64_t> Whole(std::string_view column) const;
  std::optional<double> Number(std::string_view column) const;
  // As Whole; blank is an error.
  Result<std::int64_t> Needed(std::string_view column) const;

 private:
  std::size_t IndexOf(std::string_view column) const;

  const MeasuredTable* table_;
  std::vector<std::string_view> cells_;  // in the order of table_->configuration
};

// Of "a|b". No choices at all: no text is one of them, and any text begins with one.
bool IsOneOf(std::string_view text, std::string_view choices);
bool BeginsWithOneOf(std::string_view text, std::string_view choices);

// A cell of an outcome column: blank is nullopt, anything but a positive number an error.
Result<std::optional<double>> ReadOutcome(const formats::CsvTable& table, std::size_t row,
                                          std::string_view column);

}  // namespace orrery::search
