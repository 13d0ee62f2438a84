#include "orrery/campaign/cost.h"

#include <gtest/gtest.h>

namespace orrery::campaign {
namespace {

constexpr CostSettings kSettings{.usd_per_gpu_hour = 2,
                                 .pue = 1.5,
                                 .g_per_kwh = 400,
                                 .idle = 0.1,
                                 .tensor = 1,
                                 .memory = 0.5,
                                 .communication = 0.8,
                                 .server = 0.5};
constexpr StepTimes kStep{.step_s = 10,
                          .tensor_s = 5,
                          .memory_s = 2,
                          .communication_s = 2,
                          .idle_s = 1,
                          .low_s = 9,
                          .high_s = 11,
                          .tokens = 1e6,
                          .gpus = 360,
                          .power_limit_w = 700};

// 360 GPUs for 10 s are one GPU-hour a million tokens. Power: 0.5 + 0.2 · 0.5 + 0.2 · 0.8 + 0.1 ·
// 0.1 = 0.77 of 700 W; with the server 1.27, with the building 1.905: 1,333.5 W, an hour of it.
TEST(Cost, OfAMillionTokens) {
  const Cost cost = CostOf(kSettings, kStep, 0, nullptr);
  EXPECT_DOUBLE_EQ(cost.gpu_hours_per_million_tokens, 1);
  EXPECT_DOUBLE_EQ(cost.usd_per_million_tokens, 2);
  EXPECT_DOUBLE_EQ(cost.tokens_per_usd, 5e5);
  EXPECT_DOUBLE_EQ(cost.watts_per_gpu, 539);
  EXPECT_NEAR(cost.kwh_per_million_tokens, 1.3335, 1e-12);
  EXPECT_NEAR(cost.kg_co2e_per_million_tokens, 0.5334, 1e-12);
  EXPECT_FALSE(cost.run.has_value());
}

// 86,400 steps of 10 s: ten days.
TEST(Cost, OfAWholeRun) {
  const Cost cost = CostOf(kSettings, kStep, 8.64e10, nullptr);
  ASSERT_TRUE(cost.run.has_value());
  EXPECT_DOUBLE_EQ(cost.run->steps, 86400);
  EXPECT_DOUBLE_EQ(cost.run->days, 10);
  EXPECT_DOUBLE_EQ(cost.run->days_low, 9);
  EXPECT_DOUBLE_EQ(cost.run->usd, 2 * 86400);
  EXPECT_NEAR(cost.run->mwh, 1.3335 * 86.4, 1e-9);
  EXPECT_NEAR(cost.run->t_co2e, 0.5334 * 86.4, 1e-9);
}

// Half of the time lost: twice the days and the money. A fifth of it stands still at idle power.
TEST(Cost, FailuresCostMoneyAndLessEnergy) {
  Goodput goodput;
  goodput.expected = goodput.low = goodput.high = 0.5;
  goodput.down_share = 0.2;
  const Cost cost = CostOf(kSettings, kStep, 8.64e10, &goodput);
  EXPECT_DOUBLE_EQ(cost.run->days, 20);
  EXPECT_DOUBLE_EQ(cost.usd_per_million_tokens, 4);
  EXPECT_DOUBLE_EQ(cost.watts_per_gpu, 539 * 0.8 + 70 * 0.2);
}

TEST(Cost, WhatIsNotKnownStaysZero) {
  CostSettings settings = kSettings;
  settings.usd_per_gpu_hour = 0;
  StepTimes step = kStep;
  step.power_limit_w = 0;
  const Cost cost = CostOf(settings, step, 1e9, nullptr);
  EXPECT_EQ(cost.usd_per_million_tokens, 0);
  EXPECT_EQ(cost.tokens_per_usd, 0);
  EXPECT_EQ(cost.kwh_per_million_tokens, 0);
  EXPECT_GT(cost.run->gpu_hours, 0);
}

// The bound lies below what the same step draws.
TEST(Cost, LeastWattsIsABound) {
  const double least = LeastWatts(kSettings, 700, 7, 10);
  const Cost cost = CostOf(kSettings, kStep, 0, nullptr);
  EXPECT_LT(least, (cost.watts_per_gpu + 350) * 1.5);
  EXPECT_DOUBLE_EQ(least, 700 * (0.5 * 0.7 + 0.1 * 0.3 + 0.5) * 1.5);
}

}  // namespace
}  // namespace orrery::campaign
