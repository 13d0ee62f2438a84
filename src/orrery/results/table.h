// Columns of text for a terminal.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::results {

class TextTable {
 public:
  void Row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  void AlignRight(std::size_t column) { right_.insert(column); }
  // Every line begins with `indent` and ends without spaces. Columns stand two spaces apart.
  std::string Render(std::string_view indent) const;

 private:
  std::vector<std::vector<std::string>> rows_;
  std::set<std::size_t> right_;
};

}  // namespace orrery::results
