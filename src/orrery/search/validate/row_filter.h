// Which rows of a table of measured runs a row of data/ is about: the conditions that
// framework_names.yaml and release_recipes.yaml share (docs/formats/data.md).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/schema.h"
#include "orrery/base/status.h"
#include "orrery/formats/section.h"
#include "orrery/search/validate/configuration.h"

namespace orrery::search {

// Whose published scripts a run is of, and which release of them: year and month, 2411; 0: none.
struct Origin {
  std::string_view scripts;
  int month = 0;
};

class RowFilter {
 public:
  // The keys of a row that are conditions.
  static const OptionTable& Keys();
  static Result<RowFilter> Read(const formats::Section& keys);

  // `framework`: the row's of job::FrameworkTable, where it is known.
  bool Fits(const Configuration& row, std::string_view framework, const Origin& origin) const;

 private:
  struct Condition {
    std::string_view key;
    std::string words;
  };
  std::vector<Condition> conditions_;
  int from_ = 0, to_ = 0;  // months of the release
};

// "YY.MM…" or "YY-MM…" as a number; 0: it is not.
int Month(std::string_view text);

}  // namespace orrery::search
