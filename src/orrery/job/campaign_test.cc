#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "orrery/campaign/tables.h"
#include "orrery/job/job.h"
#include "orrery/job/simulate.h"

namespace orrery::job {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

constexpr std::string_view kJob = R"(
model: gpt2
cluster: h100-ib-400g
nodes: 2
parallel: {tp: 2, pp: 2}
training: {global_batch: 64, seq_len: 1024, sharding: zero1, tokens: 1e12}
goodput: {spares: 3, interval: 90s, storage_bandwidth: 2GB/s}
)";

Job ReadCampaign(std::string_view text, const std::vector<std::string>& set = {}) {
  Result<Job> job = ReadJobText(text, "job.yaml", "", {.set = set});
  EXPECT_TRUE(job.ok()) << job.status().message();
  return *std::move(job);
}

// Tokens alone ask for the cost; the device's price and what was assumed are said.
TEST(Campaign, WhatIsLeftOutComesFromTheTables) {
  const Job job = ReadCampaign(kJob);
  ASSERT_TRUE(job.cost.has_value());
  EXPECT_EQ(job.cost->usd_per_gpu_hour,
            campaign::Tables::BuiltIn().FindPrice("H100-SXM5-80GB")->usd_per_gpu_hour);
  EXPECT_THAT(job.assumed, Contains(HasSubstr("cost.price_per_gpu_hour: 3.78 USD on 2026-05-07")));
  EXPECT_THAT(job.assumed, Contains(HasSubstr("419 unexpected interruptions in 54 days")));
  EXPECT_EQ(ReadCampaign(kJob, {"cost.price_per_gpu_hour=2"}).cost->usd_per_gpu_hour, 2);
  EXPECT_EQ(ReadCampaign(kJob, {"cluster.device.price_per_hour=1.5"}).cost->usd_per_gpu_hour, 1.5);
  EXPECT_EQ(ReadCampaign(kJob, {"cost.region=france"}).cost->g_per_kwh, 56);
  EXPECT_FALSE(ReadCampaign(kJob, {"training.tokens=null"}).cost.has_value());
}

// The resolved job is the job.
TEST(Campaign, ResolvedJobsReadBack) {
  for (const char* set : {"cost.region=norway", "goodput.failures=none", "goodput.elastic=true"}) {
    const Job job = ReadCampaign(kJob, {set});
    const Job again = ReadCampaign(job.config_json);
    EXPECT_EQ(again.config_json, job.config_json) << set;
    EXPECT_EQ(again.config_hash, job.config_hash) << set;
  }
}

// Mixed precision with Adam keeps 14 bytes a parameter: 2 of weights, 12 of main copy and moments.
TEST(Campaign, CheckpointHoldsTheStateOnce) {
  for (const char* set : {"training.sharding=none", "training.sharding=zero1"}) {
    const Job job = ReadCampaign(kJob, {set, "parallel.pp=1"});  // no copy of tied embeddings
    const auto result = Simulate(job);
    ASSERT_TRUE(result.ok()) << result.status().message();
    const results::JobResult& one = result->jobs.front();
    ASSERT_TRUE(one.goodput.has_value() && one.cost.has_value());
    const double parameters = static_cast<double>(job.workloads[0].model.parameters());
    EXPECT_NEAR(one.goodput->checkpoint_bytes / (14 * parameters), 1, 0.02) << set;
    // 90 s of training, unless the checkpoint takes longer to store.
    EXPECT_GE(one.goodput->interval_s, 90);
    EXPECT_LE(one.goodput->low, one.goodput->expected);
    EXPECT_GE(one.goodput->high, one.goodput->expected);
    const double steps = std::ceil(1e12 / (64 * 1024));
    EXPECT_NEAR(one.cost->run->days,
                steps * ToSeconds(one.step_time) / 86400 / one.goodput->expected, 1e-6);
    EXPECT_GT(one.cost->watts_per_gpu, 70);
    EXPECT_LT(one.cost->watts_per_gpu, 700);
  }
}

TEST(Campaign, ElasticNeedsSpares) {
  EXPECT_THAT(
      ReadJobText(kJob, "job.yaml", "", {.set = {"goodput.elastic=true", "goodput.spares=null"}})
          .status()
          .message(),
      HasSubstr("say how many there are"));
}

}  // namespace
}  // namespace orrery::job
