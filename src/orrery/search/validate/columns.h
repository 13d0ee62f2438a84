// The columns of tables of measured runs: data/columns.yaml; a user's file adds columns and other
// names of those that are there (docs/formats/data.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/formats/csv.h"
#include "orrery/formats/row_values.h"

namespace orrery::search {

enum class TableKind : std::uint8_t { kTraining, kCollectives };
std::string_view NameOf(TableKind kind);  // "training", "collectives"

struct Column {
  enum class Use : std::uint8_t { kConfiguration, kOutcome, kAbout };
  enum class Type : std::uint8_t { kText, kInteger, kNumber, kRatio, kFlag };

  std::string name, description;
  std::string tables, required;  // of "training|collectives": where it may stand, where it must
  Use use = Use::kConfiguration;
  Type type = Type::kText;
  double min = 0, max = 0;
  bool ruled = false;     // its row is a rule besides (row_rules.h)
  std::string key;        // of a job, which a cell sets: "parallel.tp"
  bool switches = false;  // which is true or false
  // A user's column: the rules of this folder know nothing of it, its key holds over all of them.
  bool own = false;
  std::string means;  // another name of this column, in whose units a cell is times `scale`
  double scale = 1;

  // Of a cell that is not blank: its number, a flag's 0 or 1; nullopt where it is none in range.
  std::optional<double> Read(std::string_view cell) const;
  // The same as an error, of any type, which names column, value and what is expected.
  Status Check(std::string_view cell) const;
};

// A table of measured runs under our names.
struct MeasuredTable {
  // Of configuration, and where it stands; nullopt: it does not.
  struct Place {
    Column column;
    std::optional<std::size_t> at;
  };

  TableKind kind = TableKind::kTraining;
  formats::CsvTable csv;
  std::vector<Place> configuration;
  std::vector<std::string> notes;  // which column was read as which, and which was not
};

class Columns {
 public:
  static const Columns& BuiltIn();
  Status Add(std::string_view text, const std::string& file);

  static std::vector<std::string_view> Keys();  // of a row

  const std::vector<Column>& all() const { return rows_.values(); }  // a user's first

  // Its kind from the header: collectives have `collective` or `size_bytes`, training runs
  // `hidden`, `tp` or `framework_family`. Missing required columns are listed.
  Result<MeasuredTable> Read(const formats::CsvTable& table) const;
  // Of this kind, whatever it lacks. A column that is called as a key of a job,
  // "framework_options.cp_exchange", is a user's own with that key.
  Result<MeasuredTable> ReadAs(TableKind kind, const formats::CsvTable& table) const;

 private:
  formats::RowValues<Column> rows_{"column"};
};

// docs/validation.md's tables of columns.
std::string ColumnTables();

// The number that the whole text is; finite.
std::optional<double> ParseNumber(std::string_view text);

}  // namespace orrery::search
