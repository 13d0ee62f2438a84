#include "orrery/collective/formula/moye.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "orrery/cluster/cluster.h"

namespace orrery::collective {
namespace {

using graph::Collective;
using testing::HasSubstr;

constexpr std::int64_t kMiB = 1 << 20;

class Moye : public testing::Test {
 protected:
  explicit Moye() {
    cluster::Spec spec = *cluster::FindPreset("h800-ib-400g");
    spec.nodes = 4;
    cluster_.emplace(*cluster::Cluster::Build(spec));
  }
  Result<Plan> PlanOf(Collective collective, std::int64_t bytes, const char* algorithm,
                      const char* protocol, int ranks, const Pricing& pricing) {
    const std::pair<std::string, std::string> variables[] = {{"NCCL_ALGO", algorithm},
                                                             {"NCCL_PROTO", protocol}};
    std::vector<DeviceId> members;
    for (int r = 0; r < ranks; ++r) members.emplace_back(r);
    planner_.emplace(*cluster_, *ParseEnvironment(variables), pricing);
    return planner_->MakePlan(collective, bytes, ShapeOf(*cluster_, members));
  }
  Result<Plan> PlanOf(Collective collective, std::int64_t bytes, const char* algorithm,
                      const char* protocol = "LL128", int ranks = 32) {
    return PlanOf(collective, bytes, algorithm, protocol, ranks, {PriceModel::kMoye, false, 0});
  }
  double Microseconds(const Plan& plan) {
    return ToSeconds(planner_->ClosedForm(plan).total()) * 1e6;
  }

  std::optional<cluster::Cluster> cluster_;
  std::optional<Planner> planner_;
};

// Why Table 5 is read as Tree LL128: the chunk that NCCL takes for that is the printed one in every
// column, over 16 channels. Tree Simple and LL would take 524,288 and 32,768 bytes throughout, a
// ring 1/32 of a channel's share.
TEST_F(Moye, ChunksOfTableFiveAreThoseOfTreeLL128) {
  for (const MoyeProfile& column : MoyeTable()) {
    const Result<Plan> plan = PlanOf(Collective::kAllReduce, column.tensor_bytes, "Tree");
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_EQ(plan->channels, 16);
    EXPECT_EQ(plan->nccl_chunk_bytes, column.chunk_bytes) << column.tensor_bytes;
    EXPECT_EQ(plan->note, "");
  }
}

// Equation 5 by hand. 4 MiB over 16 channels is 262,144 bytes, 15 chunks of 18,000: γ = 54.3 / 4 =
// 13.575 us, so 14 γ = 190.05; the intra-server round trip 57.43, the inter-server one 54.3, the
// reduction 50.14. 256 MiB: 16,777,216 / 288,000 → 59 chunks; 58 · 278.98 / 4 = 4045.21, and 99.23
// + 278.98 + 1657.72.
TEST_F(Moye, TreeIsEquationFive) {
  EXPECT_NEAR(Microseconds(*PlanOf(Collective::kAllReduce, 4 * kMiB, "Tree")),
              190.05 + 57.43 + 54.3 + 50.14, 1e-3);
  EXPECT_NEAR(Microseconds(*PlanOf(Collective::kAllReduce, 256 * kMiB, "Tree")),
              4045.21 + 99.23 + 278.98 + 1657.72, 1e-3);
  // Two servers: NCCL takes 36,000 bytes for the same share, 8 chunks; log2 2 = 1, so the
  // inter-server round trip is half.
  const Result<Plan> two = PlanOf(Collective::kAllReduce, 4 * kMiB, "Tree", "LL128", 16);
  ASSERT_TRUE(two.ok());
  ASSERT_EQ(two->nccl_chunk_bytes, 36'000);
  EXPECT_NEAR(Microseconds(*two), 7 * 72.32 / 4 + 64.36 + 72.32 / 2 + 65.86 / 2, 1e-3);
}

// Equations 2 to 4 by hand at 18,000 and 36,000 bytes a chunk. A ring's round gives each of 32
// ranks a chunk: 16 channels · 32 · 18,000 = 9,216,000 bytes are one round. β = 57.43 / 14, γ
// = 54.3 / 4, δ = 50.14 us / 4 MiB.
TEST_F(Moye, RingsAreEquationsTwoToFour) {
  const std::int64_t bytes = 16 * 32 * 18'000;
  const double beta = 57.43 / 14, gamma = 54.3 / 4;
  const double delta = 50.14 / 4 / kMiB * static_cast<double>(bytes);
  const Result<Plan> reduce = PlanOf(Collective::kAllReduce, bytes, "Ring");
  ASSERT_TRUE(reduce.ok());
  ASSERT_EQ(reduce->channels, 16);
  ASSERT_EQ(MoyeParametersOf(*reduce).rounds, 1);
  ASSERT_EQ(MoyeParametersOf(*reduce).chunk_bytes, 18'000);
  EXPECT_NEAR(Microseconds(*reduce), 31 * beta + 62 * gamma + delta, 1e-3);
  EXPECT_NEAR(Microseconds(*PlanOf(Collective::kReduceScatter, bytes, "Ring")),
              31 * beta + 31 * gamma + delta, 1e-3);
  EXPECT_NEAR(Microseconds(*PlanOf(Collective::kAllGather, bytes, "Ring")), 31 * gamma, 1e-3);
  // Between two columns: 27,000 bytes, rounded up to 16, are 27,008.
  EXPECT_NEAR(Microseconds(*PlanOf(Collective::kAllGather, bytes * 3 / 2, "Ring")),
              31 * (54.3 + (72.32 - 54.3) * 9008 / 18'000) / 4, 1e-3);
}

// In one server every hop is β: 8 ranks, 16 or more channels.
TEST_F(Moye, InOneServerThereIsNoOtherHop) {
  const Result<Plan> plan = PlanOf(Collective::kAllGather, 8 * kMiB, "Ring", "LL128", 8);
  ASSERT_TRUE(plan.ok());
  const MoyeParameters p = MoyeParametersOf(*plan);
  EXPECT_EQ(p.gamma, p.beta);
  EXPECT_NEAR(Microseconds(*plan), static_cast<double>(p.rounds) * 7 * p.beta * 1e-6, 1e-3);
}

TEST_F(Moye, SetupIsAddedOnce) {
  const double without = Microseconds(*PlanOf(Collective::kAllReduce, 4 * kMiB, "Tree"));
  const Pricing pricing{PriceModel::kMoye, false, 352'500'000};
  const Result<Plan> plan = PlanOf(Collective::kAllReduce, 4 * kMiB, "Tree", "LL128", 32, pricing);
  EXPECT_NEAR(Microseconds(*plan), without + 352.5, 1e-3);
}

TEST_F(Moye, WhatThePaperLacksIsRefusedByName) {
  const auto error = [&](Collective c, const char* algorithm, const char* protocol,
                         int ranks = 32) {
    const Result<Plan> plan = PlanOf(c, 4 * kMiB, algorithm, protocol, ranks);
    return plan.ok() ? "accepted" : plan.status().message();
  };
  EXPECT_THAT(error(Collective::kAllReduce, "Ring", "Simple"),
              HasSubstr("no parameters for Simple"));
  EXPECT_THAT(error(Collective::kAllReduce, "Ring", "Simple"), HasSubstr("NCCL_PROTO to LL128"));
  EXPECT_THAT(error(Collective::kAllReduce, "NVLSTree", "Simple"),
              HasSubstr("no equation for NVLSTree"));
  EXPECT_THAT(error(Collective::kBroadcast, "Ring", "LL128"),
              HasSubstr("no equation for broadcast"));
  EXPECT_THAT(error(Collective::kSend, "Ring", "LL128", 2), HasSubstr("collective.otherwise"));
  EXPECT_THAT(error(Collective::kAllReduce, "Tree", "LL128", 12), HasSubstr("K = N / M"));
}

TEST_F(Moye, OtherwiseOrreryPricesAndSaysSo) {
  const Result<Plan> plan =
      PlanOf(Collective::kAllReduce, 4 * kMiB, "Ring", "Simple", 32, {PriceModel::kMoye, true, 0});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->priced_by, PriceModel::kOrrery);
  EXPECT_THAT(std::string(plan->note), HasSubstr("Orrery's formula"));
  const SimTime time = planner_->ClosedForm(*plan).total();
  const Result<Plan> own =
      PlanOf(Collective::kAllReduce, 4 * kMiB, "Ring", "Simple", 32, Pricing{});
  EXPECT_EQ(planner_->ClosedForm(*own).total(), time);
}

// 2 GiB in rings of LL128: chunks of 576,000 bytes. γ by the line through the last two columns:
// (278.98 + 2 · (278.98 - 174.2)) / 4 us.
TEST_F(Moye, BeyondTheTableItsLastLineIsDrawnOnAndNoted) {
  const Result<Plan> plan = PlanOf(Collective::kAllGather, 2048 * kMiB, "Ring");
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(std::string(plan->note), HasSubstr("beyond Moye's Table 5"));
  const MoyeParameters p = MoyeParametersOf(*plan);
  EXPECT_EQ(p.chunk_bytes, 576'000);
  EXPECT_NEAR(p.gamma * 1e-6, (278.98 + 2 * (278.98 - 174.2)) / 4, 1e-6);
}

}  // namespace
}  // namespace orrery::collective
