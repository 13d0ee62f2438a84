// Error statistics of a group of predictions.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace orrery::search {

struct Prediction;

// Of errors in per cent of the measured value, over rows that are both measured and predicted.
struct ErrorMoments {
  std::size_t rows = 0;
  double median_abs_pct = 0, mean_abs_pct = 0, bias_pct = 0;  // bias: mean of the signed errors
};

struct ErrorSummary {
  std::string source, stratum, quantity;  // empty: all
  std::string label;                      // of the source, as its rows give it
  std::size_t rows = 0, predicted = 0;
  ErrorMoments errors;
  ErrorMoments left_out;   // with constants fitted without each row's source, where asked for
  double in_interval = 0;  // share of compared rows whose 80 % interval holds what was measured
  // What is left to the best single prediction for each group of rows that differ in outcome only:
  // its mean absolute error over those rows. It says nothing of rows without a twin.
  std::size_t repeated = 0;
  double noise_floor_pct = 0;

  double coverage() const {
    return rows == 0 ? 0 : static_cast<double>(predicted) / static_cast<double>(rows);
  }
};

// Which of source and stratum tell groups apart; quantity always does.
enum class GroupBy { kStratum, kSource, kBoth };
// Groups in order of first appearance.
std::vector<ErrorSummary> Summarise(std::span<const Prediction> rows, GroupBy by);

// The median of an even number of values is the mean of the middle two. REQUIRES: not empty.
double Median(std::vector<double> values);

}  // namespace orrery::search
