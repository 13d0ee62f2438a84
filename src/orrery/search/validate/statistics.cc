#include "orrery/search/validate/statistics.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "orrery/base/check.h"
#include "orrery/search/validate/validate.h"

namespace orrery::search {

double Median(std::vector<double> values) {
  ORRERY_CHECK(!values.empty(), "a median needs values");
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

namespace {

struct Errors {
  std::vector<double> fitted, left_out;
  std::size_t inside = 0;
  std::map<std::string, std::vector<double>> repeated;  // measured, by duplicate group
};

ErrorMoments MomentsOf(const std::vector<double>& errors) {
  ErrorMoments m{.rows = errors.size()};
  if (errors.empty()) return m;
  std::vector<double> absolute;
  for (const double error : errors) {
    absolute.push_back(std::abs(error));
    m.bias_pct += error;
    m.mean_abs_pct += std::abs(error);
  }
  m.bias_pct /= static_cast<double>(errors.size());
  m.mean_abs_pct /= static_cast<double>(errors.size());
  m.median_abs_pct = Median(std::move(absolute));
  return m;
}

// Least sum of |c / measured - 1| over one prediction c; one of the measured values reaches it.
double LeastError(const std::vector<double>& measured) {
  double least = 0;
  for (std::size_t i = 0; i < measured.size(); ++i) {
    double sum = 0;
    for (const double m : measured) sum += std::abs(measured[i] / m - 1);
    if (i == 0 || sum < least) least = sum;
  }
  return least;
}

void Fill(const Errors& errors, ErrorSummary* group) {
  group->errors = MomentsOf(errors.fitted);
  group->left_out = MomentsOf(errors.left_out);
  if (group->errors.rows > 0) {
    group->in_interval =
        static_cast<double>(errors.inside) / static_cast<double>(group->errors.rows);
  }
  for (const auto& [name, measured] : errors.repeated) {
    if (measured.size() < 2) continue;
    group->repeated += measured.size();
    group->noise_floor_pct += LeastError(measured) * 100;
  }
  if (group->repeated > 0) group->noise_floor_pct /= static_cast<double>(group->repeated);
}

}  // namespace

std::vector<ErrorSummary> Summarise(std::span<const Prediction> rows, GroupBy by) {
  std::vector<ErrorSummary> groups;
  std::vector<Errors> errors;
  for (const Prediction& row : rows) {
    const std::string source = by == GroupBy::kStratum ? "" : row.source;
    const std::string stratum = by == GroupBy::kSource ? "" : row.stratum;
    const std::string quantity(Name(row.quantity));
    const auto at = std::find_if(groups.begin(), groups.end(), [&](const ErrorSummary& g) {
      return g.source == source && g.stratum == stratum && g.quantity == quantity;
    });
    const auto index = static_cast<std::size_t>(at - groups.begin());
    if (at == groups.end()) {
      groups.push_back(
          {.source = source, .stratum = stratum, .quantity = quantity, .label = row.label});
      errors.emplace_back();
    }
    // A part's name, such as "lab, 2x8, all_reduce", is not the whole's.
    if (groups[index].label != row.label) groups[index].label = row.source;
    ++groups[index].rows;
    if (!row.refused()) ++groups[index].predicted;
    if (const auto error = row.error_pct()) errors[index].fitted.push_back(*error);
    if (const auto error = row.left_out_error_pct()) errors[index].left_out.push_back(*error);
    if (row.in_interval().value_or(false)) ++errors[index].inside;
    if (row.measured && !row.duplicate_group.empty()) {
      errors[index].repeated[row.duplicate_group].push_back(*row.measured);
    }
  }
  for (std::size_t i = 0; i < groups.size(); ++i) Fill(errors[i], &groups[i]);
  return groups;
}

}  // namespace orrery::search
