#include "orrery/base/number_lines.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "orrery/base/text.h"

namespace orrery {

Status ReadNumberLines(std::string_view text, std::string_view name, std::string_view what,
                       const TakeNumbers& take) {
  for (int number = 1; !text.empty(); ++number) {
    std::string_view line = TakeLine(&text);
    line = line.substr(0, line.find('#'));
    if (Trimmed(line).empty()) continue;
    std::vector<double> numbers;
    for (bool more = true; more;) {
      const std::size_t comma = std::min(line.find(','), line.size());
      more = comma < line.size();
      const std::string_view cell = Trimmed(line.substr(0, comma));
      line.remove_prefix(std::min(comma + 1, line.size()));
      double value = 0;
      const auto [at, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
      if (cell.empty() || error != std::errc() || at != cell.data() + cell.size() ||
          !(value >= 0 && value < 1e15)) {
        return InvalidInput("{}, line {}: '{}'; a line is {} from 0 with commas between", name,
                            number, Printable(cell, 40), what);
      }
      numbers.push_back(value);
    }
    ORRERY_RETURN_IF_ERROR(take(number, std::move(numbers)));
  }
  return {};
}

}  // namespace orrery
