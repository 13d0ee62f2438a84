#include "orrery/constants/constants.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <set>

#include "orrery/base/file.h"

namespace orrery::constants {
namespace {

TEST(Constants, EveryRowIsSane) {
  std::set<std::string_view> names;
  for (const Definition& d : Definitions()) {
    EXPECT_TRUE(names.insert(d.name).second) << d.name;
    EXPECT_LE(d.low, d.prior) << d.name;
    EXPECT_LE(d.prior, d.high) << d.name;
    EXPECT_LE(d.low, d.fitted) << d.name;
    EXPECT_LE(d.fitted, d.high) << d.name;
    EXPECT_GT(d.spread, 0) << d.name;
    EXPECT_GT(d.fitted_spread, 0) << d.name;
    EXPECT_LE(d.fitted_spread, d.spread * 1.001) << d.name << ": data never widens a spread";
    EXPECT_FALSE(d.explains.empty() || d.source.empty()) << d.name;
  }
}

TEST(Constants, FittedAndLeftOutStayInsideTheirRanges) {
  const auto text = ReadFile(ORRERY_SOURCE_DIR "/data/constants/left_out.csv", 1 << 20);
  ASSERT_TRUE(text.ok());
  int sources = 0;
  for (std::size_t at = text->find("\n\""); at != std::string::npos;
       at = text->find("\n\"", at + 1), ++sources) {
    const std::string source = text->substr(at + 2, text->find('"', at + 2) - at - 2);
    Set set;
    ASSERT_TRUE(Set::LeftOut(source, &set)) << source;
    for (std::size_t i = 0; i < kCount; ++i) {
      EXPECT_GE(set.at(i), Definitions()[i].low * 0.99999) << source;
      EXPECT_LE(set.at(i), Definitions()[i].high * 1.00001) << source;
    }
  }
  EXPECT_GT(sources, 10);
  Set set;
  EXPECT_FALSE(Set::LeftOut("no such source", &set));
}

TEST(Constants, CovarianceIsSymmetricAndNarrowerThanThePrior) {
  const auto c = Covariance();
  for (std::size_t i = 0; i < kCount; ++i) {
    EXPECT_LE(c[i * kCount + i], 1.001);
    EXPECT_GT(c[i * kCount + i], 0);
    for (std::size_t j = 0; j < i; ++j) {
      EXPECT_NEAR(c[i * kCount + j], c[j * kCount + i], 1e-4);
    }
  }
}

// sqrt(2 ln n): n = 1024 gives sqrt(13.863) = 3.723. Between powers of two within a chord's error.
TEST(Constants, TheSlowestOfMany) {
  EXPECT_EQ(SlowestOf(0), 0);
  EXPECT_EQ(SlowestOf(1), 0);
  EXPECT_NEAR(SlowestOf(1024), 3.7233, 1e-4);
  for (std::size_t n = 2; n < 3000; ++n) {
    EXPECT_NEAR(SlowestOf(n), std::sqrt(2 * std::log(static_cast<double>(n))), 0.05) << n;
  }
}

TEST(Constants, ScopeAsksForEveryWord) {
  Scope scope;
  scope.Add("ampere");
  scope.Add("gpus");
  EXPECT_TRUE(scope.Covers(""));
  EXPECT_TRUE(scope.Covers("ampere gpus"));
  EXPECT_FALSE(scope.Covers("ampere nics"));
  EXPECT_FALSE(scope.Covers("amp"));
}

TEST(Constants, AFileIsReadOrRefusedByLine) {
  const std::string path = testing::TempDir() + "constants.csv";
  const auto read = [&](std::string_view text) {
    std::ofstream(path) << text;
    return Read(path);
  };
  const auto good = read("name,value\nrank_noise,0.02\r\n\nmemory_rate.stream,0.8\n");
  ASSERT_TRUE(good.ok()) << good.status().message();
  EXPECT_EQ((*good)[kRankNoise], 0.02);
  EXPECT_EQ((*good)[kStreamRate], 0.8);
  EXPECT_EQ((*good)[kScatterRate], Set::Fitted()[kScatterRate]);
  const auto message = [&](std::string_view text) { return read(text).status().message(); };
  EXPECT_NE(message("rank_noice,0.02\n").find("rank_noise"), std::string::npos);
  EXPECT_NE(message("rank_noise,2%\n").find("give a number"), std::string::npos);
  EXPECT_NE(message("\nrank_noise,0.9\n").find(":2"), std::string::npos);
  EXPECT_NE(message("rank_noise\n").find("name,value"), std::string::npos);
  // A file of nothing was taken for the fitted constants.
  EXPECT_NE(message("name,value\n").find("no constant"), std::string::npos);
  EXPECT_TRUE(read("\xEF\xBB\xBFname,value\nrank_noise,0.02\n").ok());
  EXPECT_NE(message("\x1b[31m,1\n").find("'\\x1b[31m'"), std::string::npos);
  EXPECT_NE(message("rank_noise,0.02\nrank_noise,0.03\n").find(":2: rank_noise stands there twice"),
            std::string::npos);
  EXPECT_EQ(*Read("prior"), Set());
}

}  // namespace
}  // namespace orrery::constants
