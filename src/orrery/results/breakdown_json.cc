#include "orrery/results/breakdown_json.h"

#include <string>

#include "orrery/results/result.h"

namespace orrery::results {

engine::Breakdown BreakdownFrom(const nlohmann::ordered_json& row, std::string_view suffix) {
  engine::Breakdown parts{};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string key = PartName(i).append(suffix);
    if (i == static_cast<std::size_t>(engine::Part::kNoise) && !row.contains(key)) continue;
    parts[i] = row.at(key);
  }
  return parts;
}

}  // namespace orrery::results
