// Variables and what words become of them. Internal to shell*.cc.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/recipes/shell.h"

namespace orrery::recipes {

struct Variable {
  std::vector<Word> items;  // a scalar has one
  bool array = false;
};

class Variables {
 public:
  explicit Variables(const std::map<std::string, std::string>& environment);

  void Set(const std::string& name, Variable value);
  const Variable* Find(const std::string& name) const;
  const std::map<std::string, Variable>& all() const { return values_; }

  // The words that one written word becomes: none for an empty array, several where an unquoted
  // value has blanks. Errors: too much text.
  Result<std::vector<Word>> Expand(std::string_view raw, std::int32_t line);
  // As one word, as an assignment or a test takes it.
  Result<Word> ExpandOne(std::string_view raw, std::int32_t line);
  // As one text with its blanks and quotes, as a here document has it.
  Result<Word> ExpandText(std::string_view raw, std::int32_t line);

 private:
  Status Count(std::size_t bytes);

  std::map<std::string, Variable> values_;
  std::size_t bytes_ = 0;  // of all that was expanded
};

}  // namespace orrery::recipes
