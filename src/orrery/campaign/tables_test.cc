#include "orrery/campaign/tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::campaign {
namespace {

using ::testing::HasSubstr;

// 419 interruptions, 356 of them of hardware, in 54 days of 16,384 GPUs.
TEST(CampaignTables, Llama3sFailuresByCause) {
  const Result<Failures> found = Tables::BuiltIn().FindFailures("llama3-405b");
  ASSERT_TRUE(found.ok());
  EXPECT_DOUBLE_EQ(found->gpu_hours(), 54.0 * 24 * 16384 / 419);
  EXPECT_DOUBLE_EQ(found->hardware_share(), 356.0 / 419);
  const Result<Failures> none = Tables::BuiltIn().FindFailures("none");
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->gpu_hours(), 0);
  EXPECT_EQ(none->hardware_share(), 0);
}

TEST(CampaignTables, EveryRowHasItsSource) {
  const Tables& tables = Tables::BuiltIn();
  for (const Price& price : tables.prices()) {
    EXPECT_GT(price.usd_per_gpu_hour, 0) << price.device;
    EXPECT_GE(price.date, "2025-01-01") << price.device;
    EXPECT_FALSE(price.source.empty()) << price.device;
  }
  for (std::size_t use = 0; use < kPowerUses; ++use) {
    EXPECT_GT(tables.Of(static_cast<PowerUse>(use)).value, 0);
    EXPECT_FALSE(tables.Of(static_cast<PowerUse>(use)).source.empty());
  }
  EXPECT_EQ(tables.FindPrice("V100-SXM2-32GB"), nullptr);
}

TEST(CampaignTables, MistakesAreTold) {
  Tables tables;
  EXPECT_THAT(tables.AddPrices("x: {date: 2026-01-01, source: s}", "p.yaml").message(),
              HasSubstr("needs usd_per_gpu_hour"));
  EXPECT_THAT(tables.AddPower("idel: {value: 0.1, source: s}", "p.yaml").message(),
              HasSubstr("idle"));
  EXPECT_THAT(
      tables.AddFailures("f: {gpus: 8, days: 1, hardware: {disk: many}, source: s}", "f.yaml")
          .message(),
      HasSubstr("'many' is not a number"));
  EXPECT_THAT(Tables::BuiltIn().FindGrid("frnace").status().message(), HasSubstr("france"));
}

}  // namespace
}  // namespace orrery::campaign
