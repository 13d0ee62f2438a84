// What tables of measured runs call frameworks and models, and what the words of their cells mean:
// data/framework_names.yaml, data/model_names.yaml and data/words.yaml. The first row that fits
// holds; a user's file adds rows before those that are there (docs/formats/data.md).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/formats/row_values.h"
#include "orrery/job/frameworks.h"
#include "orrery/search/validate/configuration.h"
#include "orrery/search/validate/row_filter.h"

namespace orrery::search {

class Words {
 public:
  static const Words& BuiltIn();  // the table as it is embedded, here and below
  // The rows of a file; `file` stands for it in errors.
  Status Add(std::string_view text, const std::string& file);

  // What a cell means; the cell itself where no row is about it. Lives as long as both.
  std::string_view Meaning(std::string_view column, std::string_view cell) const;
  // Whether every column that takes certain words alone has one of them, or nothing.
  Status CheckScope(const Configuration& row) const;

 private:
  struct Word {
    std::string column;
    std::string words, means;        // "a|b" mean one thing; or
    std::string accepts, otherwise;  // "a|b" are what the column takes; why others are refused
    std::string tables;              // of the column
  };
  formats::RowValues<Word> rows_{"word"};
};

struct ModelName {
  std::string names;  // "a|b", lower case
  std::string model;  // whose shapes are known; empty: the columns have them
  // The rest is of models whose shapes the columns give.
  std::string label, note;  // where it differs from what is priced
  bool drops = false;       // the framework's default dropout is on
  formats::Section keys;    // of `model` in a job; with a known model mtp_layers and mtp_repeats
};

class ModelNames {
 public:
  static const ModelNames& BuiltIn();
  Status Add(std::string_view text, const std::string& file);

  // The row whose names begin the model's; null where there is none. `known`: of rows with a
  // model's shapes, else of those without.
  const ModelName* Find(std::string_view model, bool known) const;

 private:
  formats::RowValues<ModelName> rows_{"model's name"};
};

struct FrameworkMatch {
  std::string_view label;                     // what `assumed` calls it
  const job::Framework* framework = nullptr;  // what it does where a cell is blank
};

class FrameworkNames {
 public:
  static const FrameworkNames& BuiltIn();
  Status Add(std::string_view text, const std::string& file);

  // The framework of a row. One that the simulator does not model is refused by name; an unknown
  // family is an error that lists the known ones.
  Result<FrameworkMatch> Match(const Configuration& row,
                               const job::FrameworkTable& frameworks) const;
  // Whose scripts it is run by, and their release.
  Origin OriginOf(const Configuration& row) const;
  std::vector<std::string> Rows() const;  // of job::FrameworkTable, which rows here name

 private:
  struct Name {
    std::string row, label, family;
    std::string scripts, month;  // or whose scripts, and where their release's month stands
    RowFilter filter;
  };

  formats::RowValues<Name> rows_{"framework's name"};
};

}  // namespace orrery::search
