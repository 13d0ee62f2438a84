// What a row of measured runs leaves blank, as the scripts of its own release set it: by whose
// scripts they are, release, model, GPU and precision. The table is data/release_recipes.yaml, with
// a source a row; a user's file adds rows before those that are there (docs/formats/data.md). A row
// sets any key of a job's parallel, training, framework_options and cluster.device by its name,
// those of `model` in a map of that name, and those of its own below.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "orrery/formats/row_values.h"
#include "orrery/formats/tree.h"
#include "orrery/search/validate/configuration.h"
#include "orrery/search/validate/row_filter.h"

namespace orrery::search {

struct Release {
  std::vector<formats::Field> job;  // "training.micro_batch": 8; a later one holds
  formats::Section model;           // keys of `model`, which columns do not give
  std::vector<std::string> said;    // of them, for `assumed`
  formats::Section own;             // keys that no job has: shard_hosts, dropout, …
};

class RecipeTable {
 public:
  // data/release_recipes.yaml, embedded.
  static const RecipeTable& BuiltIn();

  // Keys of a row that no job has.
  static std::vector<std::string_view> OwnKeys();

  // The rows of a file; `file` stands for it in errors.
  Status Add(std::string_view text, const std::string& file);

  // What the row's release sets. `framework`: the row's of job::FrameworkTable.
  Release Find(const Configuration& row, std::string_view framework, const Origin& origin) const;

 private:
  // A row: its keys are those of every row of measured runs that fits.
  struct Line {
    RowFilter filter;
    formats::Section own, model;
    std::vector<formats::Field> job;
    std::string description;
  };
  static Result<Line> ReadLine(const formats::RowValues<Line>& table, const formats::DataRow& row);

  formats::RowValues<Line> rows_{"recipe"};
};

}  // namespace orrery::search
