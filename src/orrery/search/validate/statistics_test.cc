// Are the statistics right? Expected numbers derived by hand beside each.
#include "orrery/search/validate/statistics.h"

#include <gtest/gtest.h>

#include "orrery/search/validate/validate.h"

namespace orrery::search {
namespace {

Prediction Row(std::string source, std::string stratum, std::optional<double> measured,
               std::optional<double> predicted) {
  Prediction p;
  p.source = std::move(source);
  p.stratum = std::move(stratum);
  p.measured = measured;
  p.predicted = predicted;
  return p;
}

TEST(Statistics, Median) {
  EXPECT_EQ(Median({3}), 3);
  EXPECT_EQ(Median({9, 1, 5}), 5);
  EXPECT_EQ(Median({4, 1, 3, 2}), 2.5);
}

TEST(Statistics, SignedError) {
  EXPECT_NEAR(*Row("", "", 2, 3).error_pct(), 50, 1e-9);   // 3/2 - 1
  EXPECT_NEAR(*Row("", "", 4, 1).error_pct(), -75, 1e-9);  // 1/4 - 1
  EXPECT_FALSE(Row("", "", std::nullopt, 1).error_pct());
  EXPECT_FALSE(Row("", "", 1, std::nullopt).error_pct());
}

TEST(Statistics, GroupsCoverageAndErrors) {
  const std::vector<Prediction> rows = {
      Row("a", "x", 10, 11),            // +10 %
      Row("a", "x", 10, 7),             // -30 %
      Row("b", "x", 10, 12),            // +20 %
      Row("b", "y", 10, std::nullopt),  // refused
      Row("b", "x", std::nullopt, 5),   // predicted, nothing to compare with
  };
  const auto by_stratum = Summarise(rows, GroupBy::kStratum);
  ASSERT_EQ(by_stratum.size(), 2U);
  const ErrorSummary& x = by_stratum[0];
  EXPECT_EQ(x.stratum, "x");
  EXPECT_EQ(x.source, "");
  EXPECT_EQ(x.rows, 4U);
  EXPECT_EQ(x.predicted, 4U);
  EXPECT_EQ(x.errors.rows, 3U);
  EXPECT_NEAR(x.errors.mean_abs_pct, 20, 1e-9);    // (10 + 30 + 20) / 3
  EXPECT_NEAR(x.errors.median_abs_pct, 20, 1e-9);  // of 10, 20, 30
  EXPECT_NEAR(x.errors.bias_pct, 0, 1e-9);         // (10 - 30 + 20) / 3
  EXPECT_EQ(by_stratum[1].coverage(), 0);
  EXPECT_EQ(by_stratum[1].errors.rows, 0U);

  const auto by_source = Summarise(rows, GroupBy::kSource);
  ASSERT_EQ(by_source.size(), 2U);
  EXPECT_NEAR(by_source[0].errors.bias_pct, -10, 1e-9);  // (10 - 30) / 2
  EXPECT_NEAR(by_source[1].coverage(), 2.0 / 3, 1e-9);
  EXPECT_EQ(Summarise(rows, GroupBy::kBoth).size(), 3U);
}

// One log of several tests was called by the first of them.
TEST(Statistics, ALabelHoldsForAllRowsOrIsTheSource) {
  std::vector<Prediction> rows = {Row("a", "x", 1, 1), Row("a", "x", 1, 1), Row("b", "x", 1, 1)};
  rows[0].label = "lab, 1x8, all_reduce";
  rows[1].label = "lab, 2x8, all_reduce";
  rows[2].label = "lab, 4x8, all_reduce";
  const auto groups = Summarise(rows, GroupBy::kSource);
  EXPECT_EQ(groups[0].label, "a");
  EXPECT_EQ(groups[1].label, "lab, 4x8, all_reduce");
}

TEST(Statistics, QuantitiesStayApart) {
  std::vector<Prediction> rows = {Row("a", "x", 1, 1), Row("a", "x", 1, 1)};
  rows[1].quantity = Quantity::kPeakMemory;
  EXPECT_EQ(Summarise(rows, GroupBy::kSource).size(), 2U);
}

}  // namespace
}  // namespace orrery::search
