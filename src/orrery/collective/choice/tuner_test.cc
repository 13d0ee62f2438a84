#include "orrery/collective/choice/tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "orrery/cluster/cluster.h"

namespace orrery::collective {
namespace {

using graph::Collective;
using testing::HasSubstr;

constexpr std::int64_t kMiB = 1 << 20;

std::string Error(std::string_view text) {
  const Result<std::vector<TunerRow>> rows = ParseTunerFile(text, "tuner.conf");
  return rows.ok() ? "accepted" : rows.status().message();
}

TEST(Tuner, RowsOfEightToTenFields) {
  const Result<std::vector<TunerRow>> rows = ParseTunerFile(
      "# collective_type,min_bytes,max_bytes,algorithm,...\n"
      "\n"
      "allreduce,0,65536,tree,ll,2,1,-1,-1,1\r\n"
      " reducescatter , 1 , 4294967295 , nvls , simple , -1 , 4 , 32\n"
      "reduce,0,1,ring,ll128,8,-1,-1,4",
      "tuner.conf");
  ASSERT_TRUE(rows.ok()) << rows.status().message();
  ASSERT_EQ(rows->size(), 3u);
  const TunerRow& first = rows->front();
  EXPECT_EQ(first.collective, Collective::kAllReduce);
  EXPECT_EQ(first.algorithm, Algorithm::kTree);
  EXPECT_EQ(first.protocol, Protocol::kLL);
  EXPECT_EQ(first.max_bytes, 65536);
  EXPECT_EQ(first.channels, 2);
  EXPECT_EQ(first.nodes, 1);
  EXPECT_EQ(first.ranks, -1);
  EXPECT_EQ(first.registered, 1);
  EXPECT_EQ(first.line, 3);
  const TunerRow& second = (*rows)[1];
  EXPECT_EQ(second.algorithm, Algorithm::kNvls);
  EXPECT_EQ(second.channels, -1);
  EXPECT_EQ(second.registered, -1);
  EXPECT_EQ(rows->back().collective, std::nullopt);  // nothing here reduces to one rank
  EXPECT_EQ(rows->back().pipe_ops, 4);
}

TEST(Tuner, ErrorsNameFileLineColumnAndValue) {
  EXPECT_EQ(
      Error("\nallreduce,0,1,rng,ll,1,1,1\n"),
      "tuner.conf:2:15: algorithm: unknown algorithm 'rng'; did you mean 'ring'? valid: tree, "
      "ring, collnet_direct, collnet_chain, nvls, nvls_tree, pat");
  EXPECT_THAT(Error("all_reduce,0,1,ring,ll,1,1,1"),
              HasSubstr("tuner.conf:1:1: collective: unknown collective 'all_reduce'; did you mean "
                        "'allreduce'?"));
  EXPECT_THAT(Error("allreduce,0,1,ring,ll256,1,1,1"), HasSubstr("unknown protocol 'll256'"));
  EXPECT_EQ(Error("allreduce,0,64K,ring,ll,1,1,1"),
            "tuner.conf:1:13: max_bytes: '64K' is not a whole number from 0 to "
            "4611686018427387904");
  EXPECT_EQ(Error("allreduce,9,8,ring,ll,1,1,1"),
            "tuner.conf:1:13: max_bytes: 8 is below min_bytes = 9: the row fits nothing");
  EXPECT_THAT(Error("allreduce,0,1,ring,ll,0,1,1"), HasSubstr("1 to 64, or -1 for any"));
  EXPECT_THAT(Error("allreduce,0,1,ring,ll,1,1"), HasSubstr("tuner.conf:1: 7 fields; a row has 8"));
  EXPECT_THAT(Error("allreduce,0,1,ring,ll,1,1,1,-1,2"), HasSubstr("regBuff: '2'"));
  EXPECT_THAT(Error("# nothing\n"), HasSubstr("no row"));
}

class TunedPlan : public testing::Test {
 protected:
  TunedPlan() {
    cluster::Spec spec = *cluster::FindPreset("h100-ib-400g");
    spec.nodes = 2;
    cluster_.emplace(*cluster::Cluster::Build(spec));
    for (int r = 0; r < 16; ++r) members_.emplace_back(r);
  }
  Plan Of(std::string_view text, Collective collective, std::int64_t bytes, int ranks = 16) {
    Environment environment;
    if (!text.empty()) environment.tuner = *ParseTunerFile(text, "tuner.conf");
    const Planner planner(*cluster_, environment);
    const GroupShape shape = ShapeOf(*cluster_, {members_.data(), static_cast<std::size_t>(ranks)});
    return *planner.MakePlan(collective, bytes, shape);
  }
  std::optional<cluster::Cluster> cluster_;
  std::vector<DeviceId> members_;
};

TEST_F(TunedPlan, TheFirstRowThatFitsDecides) {
  const std::string_view text =
      "allreduce,0,1048576,tree,ll,4,2,16\n"
      "allreduce,0,4294967295,ring,ll128,-1,-1,-1\n"
      "allgather,0,4294967295,ring,simple,2,1,-1\n";
  const Plan small = Of(text, Collective::kAllReduce, kMiB);  // 1,048,576 is still in
  EXPECT_EQ(small.algorithm, Algorithm::kTree);
  EXPECT_EQ(small.protocol, Protocol::kLL);
  EXPECT_EQ(small.channels, 4);
  const Plan large = Of(text, Collective::kAllReduce, 256 * kMiB);
  EXPECT_EQ(large.algorithm, Algorithm::kRing);
  EXPECT_EQ(large.protocol, Protocol::kLL128);
  EXPECT_EQ(large.channels, 16);  // NCCL's own
  // Of one node, not of two.
  EXPECT_EQ(Of(text, Collective::kAllGather, 256 * kMiB, 8).channels, 2);
  const Plan own = Of("", Collective::kAllGather, 256 * kMiB);
  const Plan two = Of(text, Collective::kAllGather, 256 * kMiB);
  EXPECT_EQ(two.channels, own.channels);
  EXPECT_EQ(two.protocol, own.protocol);
  EXPECT_EQ(two.note, "");
}

TEST_F(TunedPlan, ChannelsAreNotMoreThanTheCommunicatorHas) {
  EXPECT_EQ(
      Of("allreduce,0,999999999,ring,simple,64,-1,-1", Collective::kAllReduce, 256 * kMiB).channels,
      16);
}

TEST_F(TunedPlan, GroupsAndRegisteredBuffersAreNotMatched) {
  const Plan own = Of("", Collective::kAllReduce, 64 * kMiB);
  for (const char* text :
       {"allreduce,0,999999999,tree,ll,1,-1,-1,2", "allreduce,0,999999999,tree,ll,1,-1,-1,-1,1"}) {
    EXPECT_EQ(Of(text, Collective::kAllReduce, 64 * kMiB).algorithm, own.algorithm) << text;
  }
  EXPECT_EQ(
      Of("allreduce,0,999999999,tree,ll,1,-1,-1,1,0", Collective::kAllReduce, 64 * kMiB).algorithm,
      Algorithm::kTree);
}

// NCCL has no tree of an all-gather, NVLS no LL, CollNet is off: the next row counts, and the
// result says so.
TEST_F(TunedPlan, WhatIsNotAvailableIsPassedOverAndNoted) {
  const std::string_view text =
      "allgather,0,999999999,tree,simple,1,-1,-1\n"
      "allgather,0,999999999,nvls,ll,1,-1,-1\n"
      "allgather,0,999999999,collnet_direct,simple,1,-1,-1\n"
      "allgather,0,999999999,ring,ll,3,-1,-1\n";
  const Plan plan = Of(text, Collective::kAllGather, 64 * kMiB);
  EXPECT_EQ(plan.algorithm, Algorithm::kRing);
  EXPECT_EQ(plan.protocol, Protocol::kLL);
  EXPECT_EQ(plan.channels, 3);
  EXPECT_THAT(std::string(plan.note), HasSubstr("not available here"));
  const Plan own = Of("", Collective::kAllGather, 64 * kMiB);
  const Plan passed =
      Of("allgather,0,999999999,pat,simple,1,-1,-1", Collective::kAllGather, 64 * kMiB);
  EXPECT_EQ(passed.channels, own.channels);
  EXPECT_NE(passed.note, "");
}

}  // namespace
}  // namespace orrery::collective
