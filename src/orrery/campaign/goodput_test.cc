#include "orrery/campaign/goodput.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace orrery::campaign {
namespace {

// 16,384 GPUs of which one fails every 50,700 hours (Llama 3: 419 failures in 54 days).
RunFacts Large() {
  return {.gpus = 16384,
          .gpus_per_node = 8,
          .replicas = 128,
          .state_bytes = 5.7e12,
          .rank_state_bytes = 6e9,
          .host_Bps = 50e9,
          .node_Bps = 50e9};
}

GoodputSettings Llama() {
  return {.gpu_hours_between_failures = 54.0 * 24 * 16384 / 419,
          .hardware_share = 356.0 / 419,
          .detection_s = 600,
          .restart_s = 300,
          .repair_s = 86400,
          .days = 54,
          .trials = 400};
}

// Mean of the drawn runs and its standard error.
struct Sample {
  double mean = 0, error = 0;
};
Sample Draw(const GoodputSettings& settings, const RunFacts& run, const Goodput& facts,
            double days) {
  double sum = 0, squares = 0;
  constexpr int kRuns = 400;
  for (int i = 0; i < kRuns; ++i) {
    const double one =
        DrawGoodput(settings, run, facts, days * 86400, static_cast<std::uint64_t>(i));
    sum += one;
    squares += one * one;
  }
  const double mean = sum / kRuns;
  return {mean, std::sqrt((squares / kRuns - mean * mean) / kRuns)};
}

double SharesOf(const Goodput& g) {
  return g.expected + g.checkpoint_share + g.lost_share + g.down_share + g.waiting_share +
         g.slow_share;
}

// Without lag the closed form is Daly's: e^(λR) (e^(λ(τ+δ)) - 1) / λ of wall time for τ of work.
TEST(Goodput, IsDalysModelWithoutLag) {
  GoodputSettings settings = Llama();
  settings.mode = CheckpointMode::kSynchronous;
  settings.storage_Bps = 100e9;  // 57 s a checkpoint
  const Goodput g = ExpectedGoodput(settings, Large());
  EXPECT_DOUBLE_EQ(g.stall_s, 57);
  EXPECT_DOUBLE_EQ(g.down_s, 957);
  const double rate = 419 / (54.0 * 86400);
  const double wall = std::exp(rate * 957) * std::expm1(rate * (g.interval_s + 57)) / rate;
  EXPECT_NEAR(g.expected, g.interval_s / wall, 1e-12);
  EXPECT_NEAR(SharesOf(g), 1, 1e-12);
}

// Young's and Daly's intervals are the best one's expansions: 0.03 % off for checkpoints of a
// thousandth of the mean time between failures, as Daly's paper has it, 2 % for a tenth.
TEST(Goodput, BestIntervalAgainstYoungAndDaly) {
  for (const double mean_s : {1e3, 1e4, 1e6}) {
    EXPECT_NEAR(DalyInterval(mean_s / 1000, mean_s) / BestInterval(mean_s / 1000, mean_s), 1, 3e-4);
    EXPECT_NEAR(DalyInterval(mean_s / 10, mean_s) / BestInterval(mean_s / 10, mean_s), 1, 0.02);
    EXPECT_NEAR(YoungInterval(mean_s / 1000, mean_s) / BestInterval(mean_s / 1000, mean_s), 1,
                0.02);
  }
}

TEST(Goodput, DrawnRunsAgreeWithTheClosedForm) {
  for (const CheckpointMode mode :
       {CheckpointMode::kSynchronous, CheckpointMode::kAsynchronous, CheckpointMode::kMemory}) {
    for (const double storage_Bps : {2e12, 20e9}) {
      GoodputSettings settings = Llama();
      settings.mode = mode;
      settings.storage_Bps = storage_Bps;
      const Goodput g = ExpectedGoodput(settings, Large());
      const Sample s = Draw(settings, Large(), g, 400);
      EXPECT_NEAR(s.mean, g.expected, 4 * s.error + 2e-4) << Name(mode) << " " << storage_Bps;
      EXPECT_NEAR(SharesOf(g), 1, 1e-12);
    }
  }
}

// Half and twice the best interval are worse, drawn.
TEST(Goodput, NoIntervalIsBetterThanTheBest) {
  GoodputSettings settings = Llama();
  settings.mode = CheckpointMode::kSynchronous;
  settings.storage_Bps = 50e9;
  const Goodput best = ExpectedGoodput(settings, Large());
  const Sample at_best = Draw(settings, Large(), best, 400);
  for (const double factor : {0.5, 2.0}) {
    settings.interval_s = best.interval_s * factor;
    const Goodput other = ExpectedGoodput(settings, Large());
    EXPECT_LT(other.expected, best.expected);
    const Sample s = Draw(settings, Large(), other, 400);
    EXPECT_LT(s.mean + 4 * s.error, at_best.mean - 4 * at_best.error) << factor;
  }
}

// 5.6 nodes are out on average: with two spares the run often waits, with eight replicas' less
// speed it does not.
TEST(Goodput, SparesAndElasticity) {
  GoodputSettings settings = Llama();
  settings.spares = 2;
  settings.interval_s = 600;
  const Goodput waits = ExpectedGoodput(settings, Large());
  EXPECT_GT(waits.waiting_share, 0.3);
  Sample s = Draw(settings, Large(), waits, 200);
  EXPECT_NEAR(s.mean, waits.expected, 4 * s.error + 2e-4);
  settings.elastic = true;
  const Goodput elastic = ExpectedGoodput(settings, Large());
  EXPECT_GT(elastic.expected, waits.expected);
  s = Draw(settings, Large(), elastic, 200);
  EXPECT_NEAR(s.mean, elastic.expected, 4 * s.error + 1e-3);
  settings.spares = 40;
  settings.elastic = false;
  GoodputSettings always = Llama();
  always.interval_s = 600;
  EXPECT_NEAR(ExpectedGoodput(settings, Large()).expected,
              ExpectedGoodput(always, Large()).expected, 1e-9);
}

TEST(Goodput, Stragglers) {
  GoodputSettings settings = Llama();
  settings.stragglers_per_1000_node_days = 1;  // two a day
  settings.straggler_speed = 0.8;
  settings.straggler_s = 7200;
  settings.interval_s = 600;
  const Goodput g = ExpectedGoodput(settings, Large());
  EXPECT_GT(g.slow_share, 0.02);
  const Sample s = Draw(settings, Large(), g, 400);
  EXPECT_NEAR(s.mean, g.expected, 4 * s.error + 1e-3);
  EXPECT_NEAR(SharesOf(g), 1, 1e-12);
}

// A run that is down for longer than it stays up, by far: it does not come back, shares are
// numbers, and drawing it does not take for ever.
TEST(Goodput, HopelessRunsEnd) {
  GoodputSettings settings = Llama();
  settings.gpu_hours_between_failures = 1;  // 4.6 failures a second
  const Goodput g = GoodputOf(settings, Large());
  EXPECT_EQ(g.expected, 0);
  EXPECT_LT(g.high, 1e-6);
  EXPECT_NEAR(SharesOf(g), 1, 1e-12);
  settings.spares = 1;
  settings.elastic = true;
  EXPECT_NEAR(SharesOf(ExpectedGoodput(settings, Large())), 1, 1e-12);
}

// Ten years in segments of 2 ms: the speed is looked up at some of them.
TEST(Goodput, ManySegments) {
  GoodputSettings settings = Llama();
  settings.gpu_hours_between_failures = 0;
  settings.stragglers_per_1000_node_days = 1;
  settings.straggler_speed = 0.5;
  settings.straggler_s = 7200;
  settings.interval_s = 1e-3;
  settings.mode = CheckpointMode::kMemory;
  RunFacts run = Large();
  run.rank_state_bytes = 1;
  const Goodput g = ExpectedGoodput(settings, run);
  EXPECT_NEAR(DrawGoodput(settings, run, g, 3650.0 * 86400, 1), g.expected, 0.01);
}

TEST(Goodput, NothingFails) {
  const Goodput g = GoodputOf({.days = 10, .trials = 20}, Large());
  EXPECT_DOUBLE_EQ(g.expected, 1);
  EXPECT_DOUBLE_EQ(g.failures_per_day, 0);
  EXPECT_DOUBLE_EQ(g.days, 10);
  EXPECT_DOUBLE_EQ(g.low, 1);
}

// Llama 3's run: more than 90 % of the time was effective (its section 3.3.4), with faster
// detection than our default for most of its failures.
TEST(Goodput, Llama3) {
  GoodputSettings settings = Llama();
  settings.detection_s = 300;
  const Goodput g = GoodputOf(settings, Large());
  EXPECT_GT(g.expected, 0.90);
  EXPECT_LT(g.expected, 0.97);
  EXPECT_LT(g.low, g.expected);
  EXPECT_GT(g.high, g.expected);
  EXPECT_EQ(GoodputOf(settings, Large()).low, g.low);
}

}  // namespace
}  // namespace orrery::campaign
