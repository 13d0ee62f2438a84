// What a row of measured runs means that one cell alone does not say: data/row_rules.yaml, whose
// head says what a rule has. A user's file adds rules before those that are there
// (docs/formats/data.md). A name that no rule can read, and a key that no job has, are errors of
// reading the table.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/formats/expression.h"
#include "orrery/formats/row_values.h"

namespace orrery::search {

// Names of a key of the framework's row, and of what a key of a job may be, "a|b".
inline constexpr std::string_view kFrameworkOf = "framework.", kChoicesOf = "choices.";

// A row that rules read and write (training.cc).
class RuledRow : public formats::Names {
 public:
  virtual Status Set(const std::string& name, const std::string& value) = 0;
  virtual void Drop(const std::string& key) = 0;
  virtual void Assume(std::string text) = 0;
  // A rule has no alternatives for a file to have; what is missing is left out.
  Result<std::optional<formats::Value>> Field(const std::string&) override {
    return std::optional<formats::Value>();
  }
  Status Missing(std::string_view) const override { return {}; }
};

class RowRules {
 public:
  static const RowRules& BuiltIn();
  Status Add(std::string_view text, const std::string& file);
  // Rows of columns.yaml that are rules besides: they run before the others.
  Status AddColumns(std::string_view text, const std::string& file);
  // The keys by which a row is a rule.
  static std::vector<std::string_view> Keys();

  // Rules of the model run before machine and plan are known.
  enum class Of : std::uint8_t { kPlan, kModel };
  // O(rules). The error is why the row is refused.
  Status Apply(Of of, RuledRow* row) const;

 private:
  using Text = std::vector<std::pair<std::string, std::optional<formats::Expression>>>;
  struct Rule {
    Of of = Of::kPlan;
    std::optional<formats::Expression> condition;
    std::vector<std::string> needs;
    std::string least;  // a name; empty: nothing is searched
    std::optional<formats::Expression> from, to, where;
    std::vector<std::pair<std::string, formats::Expression>> set;
    std::vector<std::string> drop;
    std::optional<Text> refused, said;
  };
  class Reader;
  static Status Search(const Rule& rule, RuledRow* row);
  static Result<std::string> Fill(const Text& text, RuledRow* row);
  static Status ApplyOne(const Rule& rule, RuledRow* row);

  formats::RowValues<Rule> rows_{"rule"}, columns_{"column"};
  std::set<std::string> names_;  // that rules may read, beside keys of jobs and frameworks
};

}  // namespace orrery::search
