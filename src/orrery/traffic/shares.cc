// Who sends how much to whom in an all-to-all, from a file.
#include <numeric>
#include <vector>

#include "orrery/base/number_lines.h"
#include "orrery/traffic/sweep.h"

namespace orrery::traffic {

Result<graph::Shares> ParseShares(std::string_view text, std::string_view name, std::size_t ranks) {
  std::vector<double> weights;
  std::size_t lines = 0;
  ORRERY_RETURN_IF_ERROR(ReadNumberLines(
      text, name, "numbers", [&](int line, const std::vector<double>& numbers) -> Status {
        weights.insert(weights.end(), numbers.begin(), numbers.end());
        if (weights.size() == ++lines * ranks && lines <= ranks) return {};
        return InvalidInput(
            "{}, line {}: of {} GPUs a line has {} numbers, what one GPU sends each; one line for "
            "all, or {} of them",
            name, line, ranks, ranks, ranks);
      }));
  if (lines != 1 && lines != ranks) {
    return InvalidInput("{}: {} lines; one for all GPUs, or one for each of the {}", name, lines,
                        ranks);
  }
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (!(sum > 0)) return InvalidInput("{}: nobody sends anything", name);
  graph::Shares shares;
  shares.ranks = static_cast<std::uint32_t>(ranks);
  const double even = graph::Shares::kEven * static_cast<double>(weights.size()) / sum;
  for (const double weight : weights) {
    shares.parts.push_back(static_cast<std::int64_t>(weight * even + 0.5));
  }
  shares.Seal();
  return shares;
}

}  // namespace orrery::traffic
