// What a prediction may read of a row: its configuration, and nothing of its outcome.
//
// A Configuration is a view that holds the listed configuration columns only. The mapping from a
// row to a run receives this view and never the table, so that no prediction can depend on a
// measured value, on who published it or on its name. A column that is missing or blank is blank:
// what the framework's default then means is stated by the mapping, row by row.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/formats/csv.h"

namespace orrery::search {

class Words;

enum class TableKind : std::uint8_t { kTraining, kCollectives };

// The columns of each kind: what may be read, and which of these the header must name.
std::span<const std::string_view> ConfigurationColumns(TableKind kind);
std::span<const std::string_view> RequiredColumns(TableKind kind);
// Outcomes, and what tells a row from another without being configuration. Never in a
// Configuration.
std::span<const std::string_view> WithheldColumns();

// From the header: collectives have `collective` and `size_bytes`, training runs `hidden` and `tp`.
// Missing required columns are listed.
Result<TableKind> KindOf(const formats::CsvTable& table);

class Configuration {
 public:
  // REQUIRES: `table` outlives this.
  Configuration(TableKind kind, const formats::CsvTable& table, std::size_t row);

  // Reads words that mean one of ours as that (words.h), which `assumed` says. REQUIRES: `words`
  // outlives this.
  void Translate(const Words& words, std::vector<std::string>* assumed);

  TableKind kind() const { return kind_; }
  // Empty when blank. REQUIRES: a configuration column of this kind.
  std::string_view text(std::string_view column) const;
  bool has(std::string_view column) const { return !text(column).empty(); }

  // Blank is nullopt. Errors name column, value and remedy.
  Result<std::optional<std::int64_t>> Whole(std::string_view column, std::int64_t min,
                                            std::int64_t max) const;
  Result<std::optional<double>> Number(std::string_view column, double min, double max) const;
  Result<std::optional<bool>> Flag(std::string_view column) const;  // 0 or 1
  // As Whole; blank is an error.
  Result<std::int64_t> Needed(std::string_view column, std::int64_t min, std::int64_t max) const;

 private:
  TableKind kind_;
  std::vector<std::string_view> cells_;  // in the order of ConfigurationColumns
};

// Of "a|b". No choices at all: no text is one of them, and any text begins with one.
bool IsOneOf(std::string_view text, std::string_view choices);
bool BeginsWithOneOf(std::string_view text, std::string_view choices);

// A cell of an outcome column: blank is nullopt, anything but a positive number an error.
Result<std::optional<double>> ReadOutcome(const formats::CsvTable& table, std::size_t row,
                                          std::string_view column);

}  // namespace orrery::search
