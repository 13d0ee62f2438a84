// Who sends how much to whom in an all-to-all, from a file.
#include <algorithm>
#include <charconv>
#include <numeric>

#include "orrery/base/text.h"
#include "orrery/traffic/sweep.h"

namespace orrery::traffic {
namespace {

std::string_view Trimmed(std::string_view cell) {
  const std::size_t first = std::min(cell.find_first_not_of(" \t\r"), cell.size());
  return cell.substr(first, cell.find_last_not_of(" \t\r") + 1 - first);
}

// One line's numbers, added to `weights`.
Status ReadLine(std::string_view name, int number, std::string_view line,
                std::vector<double>* weights) {
  for (bool more = true; more;) {
    const std::size_t comma = std::min(line.find(','), line.size());
    more = comma < line.size();
    const std::string_view cell = Trimmed(line.substr(0, comma));
    line.remove_prefix(std::min(comma + 1, line.size()));
    double value = 0;
    const auto [at, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    if (cell.empty() || error != std::errc() || at != cell.data() + cell.size() ||
        !(value >= 0 && value < 1e15)) {
      return InvalidInput("{}, line {}: '{}'; a line is numbers from 0 with commas between", name,
                          number, Printable(cell, 40));
    }
    weights->push_back(value);
  }
  return {};
}

}  // namespace

Result<graph::Shares> ParseShares(std::string_view text, std::string_view name, std::size_t ranks) {
  std::vector<double> weights;
  std::size_t lines = 0;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line = line.substr(0, line.find('#'));
    if (Trimmed(line).empty()) continue;
    ORRERY_RETURN_IF_ERROR(ReadLine(name, number, line, &weights));
    if (weights.size() != ++lines * ranks || lines > ranks) {
      return InvalidInput(
          "{}, line {}: of {} GPUs a line has {} numbers, what one GPU sends each; one line for "
          "all, or {} of them",
          name, number, ranks, ranks, ranks);
    }
  }
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
