#include "orrery/cluster/ratio.h"

#include <charconv>

#include "orrery/base/text.h"

namespace orrery::cluster {

std::optional<double> ParseRatio(std::string_view text) {
  const auto number = [](std::string_view part) {
    part = Trimmed(part);
    double value = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    const bool whole = error == std::errc() && end == part.data() + part.size();
    return whole && value > 0 && value < 1e6 ? value : 0.0;
  };
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const double down = number(text.substr(0, colon)), up = number(text.substr(colon + 1));
  if (down == 0 || up == 0) return std::nullopt;
  return down / up;
}

}  // namespace orrery::cluster
