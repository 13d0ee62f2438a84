#include "orrery/search/validate/statistics.h"

#include <algorithm>
#include <cmath>

#include "orrery/base/check.h"
#include "orrery/search/validate/validate.h"

namespace orrery::search {

double Median(std::vector<double> values) {
  ORRERY_CHECK(!values.empty(), "a median needs values");
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::vector<Summary> Summarise(std::span<const Prediction> rows, GroupBy by) {
  std::vector<Summary> groups;
  std::vector<std::vector<double>> errors;
  for (const Prediction& row : rows) {
    const std::string source = by == GroupBy::kStratum ? "" : row.source;
    const std::string stratum = by == GroupBy::kSource ? "" : row.stratum;
    const std::string quantity(Name(row.quantity));
    const auto at = std::find_if(groups.begin(), groups.end(), [&](const Summary& g) {
      return g.source == source && g.stratum == stratum && g.quantity == quantity;
    });
    const auto index = static_cast<std::size_t>(at - groups.begin());
    if (at == groups.end()) {
      groups.push_back(
          {.source = source, .stratum = stratum, .quantity = quantity, .label = row.label});
      errors.emplace_back();
    }
    ++groups[index].rows;
    if (!row.refused()) ++groups[index].predicted;
    if (const auto error = row.error_pct()) errors[index].push_back(*error);
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    std::vector<double> absolute;
    double sum = 0, absolute_sum = 0;
    for (const double error : errors[i]) {
      absolute.push_back(std::abs(error));
      sum += error;
      absolute_sum += std::abs(error);
    }
    groups[i].compared = absolute.size();
    if (absolute.empty()) continue;
    const auto count = static_cast<double>(absolute.size());
    groups[i].bias_pct = sum / count;
    groups[i].mean_abs_pct = absolute_sum / count;
    groups[i].median_abs_pct = Median(std::move(absolute));
  }
  return groups;
}

}  // namespace orrery::search
