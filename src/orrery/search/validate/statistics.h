// Error statistics of a group of predictions.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace orrery::search {

struct Prediction;

// Errors are in per cent of the measured value, over rows that are both measured and predicted.
struct Summary {
  std::string source, stratum, quantity;  // empty: all
  std::string label;                      // of the source, as the first row gives it
  std::size_t rows = 0, predicted = 0, compared = 0;
  double median_abs_pct = 0, mean_abs_pct = 0, bias_pct = 0;  // bias: mean of the signed errors

  double coverage() const {
    return rows == 0 ? 0 : static_cast<double>(predicted) / static_cast<double>(rows);
  }
};

// Which of source and stratum tell groups apart; quantity always does.
enum class GroupBy { kStratum, kSource, kBoth };
// Groups in order of first appearance.
std::vector<Summary> Summarise(std::span<const Prediction> rows, GroupBy by);

// The median of an even number of values is the mean of the middle two. REQUIRES: not empty.
double Median(std::vector<double> values);

}  // namespace orrery::search
