// What a row of measured runs leaves blank, as the scripts of its own release set it: by whose
// scripts they are, release, model, GPU and precision. The table is data/release_recipes.yaml, with
// a source a row; a user's file adds rows before those that are there (docs/formats/data.md).
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orrery/formats/row_values.h"
#include "orrery/search/validate/configuration.h"

namespace orrery::search {

class RecipeTable {
 public:
  // data/release_recipes.yaml, embedded.
  static const RecipeTable& BuiltIn();

  // The rows of a file; `file` stands for it in errors.
  Status Add(std::string_view text, const std::string& file);

  // What the row's release sets. A key counts where the row's columns do not say; one that is not
  // set has its fallback, which is that the framework's default holds. `framework`: the row's of
  // job::FrameworkTable.
  formats::Section Find(const Configuration& row, std::string_view framework = "") const;

 private:
  // A row: its keys are those of every row of measured runs that fits.
  struct Line {
    formats::Section keys;
    int from = 0, to = 0;  // months, 2411
  };
  static Result<Line> ReadLine(const formats::RowValues<Line>& table, const formats::DataRow& row);

  formats::RowValues<Line> rows_{"recipe"};
};

}  // namespace orrery::search
