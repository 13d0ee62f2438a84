// All-to-all against bounds derived by hand.
#include "orrery/collective/algorithms/all_to_all.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <vector>

#include "orrery/collective/algorithms/p2p_rounds.h"
#include "orrery/collective/ideal_executor_test.h"

namespace orrery::collective {
namespace {

using graph::Collective;

struct Priced {
  Plan plan;
  Cost cost;
};

Priced Price(int nodes, std::int64_t bytes, std::vector<std::size_t> ranks = {}) {
  cluster::Spec spec = *cluster::FindPreset("h100-ib-400g");
  spec.nodes = nodes;
  const cluster::Cluster cluster = *cluster::Cluster::Build(spec);
  std::vector<DeviceId> members;
  for (std::size_t i = 0; ranks.empty() && i < cluster.devices(); ++i) members.emplace_back(i);
  for (std::size_t r : ranks) members.emplace_back(r);
  Environment environment;  // 2.29.2: four channels through a NIC, which they fill
  environment.version = 22902;
  const Planner planner(cluster, environment);
  const auto plan = planner.MakePlan(Collective::kAllToAll, bytes, ShapeOf(cluster, members));
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return {*plan, planner.ClosedForm(*plan)};
}

// 1 GiB a rank over 8 GPUs: 7/8 of it over NVLink at 450 GB/s is 2.088 ms, a fifth more with
// headers; the lanes (32 channels of 21 GB/s: 1.6 ms) do not bound it.
TEST(AllToAll, OneNodeIsBoundByNvlink) {
  const Priced p = Price(1, 1 << 30);
  EXPECT_EQ(p.plan.algorithm, Algorithm::kPointToPoint);
  EXPECT_EQ(p.plan.lanes, 32);
  const double ms = ToSeconds(p.cost.transfer) * 1e3;
  EXPECT_GT(ms, 2.088);
  EXPECT_LT(ms, 2.088 * 1.25);
  EXPECT_EQ(p.cost.member.nic_out, 0);
  EXPECT_GE(p.cost.member.nvlink_out, (std::int64_t{1} << 30) / 8 * 7);
}

// 1 GiB a rank over 16 GPUs of two nodes with a NIC each: 8/16 of it through the NIC at 50 GB/s is
// 10.74 ms. Over NVLink go 7/16 to the own node, and 7/8 of the other half on its way to the NIC
// of its rail; headers of NVLink's packets add 21 %, those of the NIC's less than 3 %.
TEST(AllToAll, TwoNodesAreBoundByTheNic) {
  const Priced p = Price(2, 1 << 30);
  const double ms = ToSeconds(p.cost.transfer) * 1e3;
  EXPECT_GT(ms, 10.73);
  EXPECT_LT(ms, 10.73 * 1.06);
  const double gib = 1 << 30;
  EXPECT_NEAR(static_cast<double>(p.cost.member.nic_out) / gib, 0.5, 0.03);
  EXPECT_NEAR(static_cast<double>(p.cost.member.nvlink_out) / gib, 7.0 / 16 * (1.21 + 1.015), 0.02);
}

// Before 2.29.2 a node's 8 messages go on two channels, 256 MiB each at 21 GB/s and less: 12.78 ms.
TEST(AllToAll, TwoNodesAreBoundByTwoChannelsBefore2292) {
  cluster::Spec spec = *cluster::FindPreset("h100-ib-400g");
  spec.nodes = 2;
  const cluster::Cluster cluster = *cluster::Cluster::Build(spec);
  std::vector<DeviceId> members;
  for (std::size_t i = 0; i < 16; ++i) members.emplace_back(i);
  const Planner planner(cluster, {});
  const auto plan = planner.MakePlan(Collective::kAllToAll, 1 << 30, ShapeOf(cluster, members));
  EXPECT_NEAR(ToSeconds(planner.ClosedForm(*plan).transfer) * 1e3, 12.78, 0.05 * 12.78);
}

// More ranks, more of the buffer leaves the node: (R - 8) / R of it.
TEST(AllToAll, NicShareGrowsWithRanks) {
  const double two = ToSeconds(Price(2, 1 << 30).cost.transfer);
  const double eight = ToSeconds(Price(8, 1 << 30).cost.transfer);
  EXPECT_NEAR(eight / two, (56.0 / 64) / 0.5, 0.05);
}

// Nothing but set-up and one step's latency is left of a tiny one; the time never falls with size.
TEST(AllToAll, LatencyAndMonotony) {
  const double small = ToSeconds(Price(4, 64 << 10).cost.total());
  EXPECT_GT(small, 10e-6);
  EXPECT_LT(small, 100e-6);
  SimTime last = 0;
  for (std::int64_t bytes = 1 << 10; bytes <= std::int64_t{1} << 32; bytes *= 2) {
    const SimTime now = Price(4, bytes).cost.total();
    EXPECT_GE(now, last) << bytes;
    last = now;
  }
  EXPECT_GT(Price(1, 0).cost.total(), 0);
  EXPECT_EQ(Price(1, 1 << 20, {3}).cost.total(), 0);  // alone: a copy that the caller prices
}

// 16 nodes of 8: groups are visited at triangular distances, modulo 16; 16 groups begin on 16 of 32
// channels, the group's number with its 5 bits reversed.
TEST(AllToAll, RoundsByHand) {
  Plan plan;
  plan.collective = Collective::kAllToAll;
  plan.shape = {.ranks = 128, .domains = 16, .ranks_per_domain = 8, .nics = 8};
  plan.lanes = 32;
  plan.channels = 2;
  const p2p::Rounds rounds(plan);
  EXPECT_EQ(rounds.group, 8);
  EXPECT_EQ(rounds.GroupDistances(),
            (std::vector<int>{0, 1, 3, 6, 10, 15, 5, 12, 4, 13, 7, 2, 14, 11, 9, 8}));
  EXPECT_EQ(rounds.Base(7), 0);    // of group 0
  EXPECT_EQ(rounds.Base(8), 16);   // 00001 reversed
  EXPECT_EQ(rounds.Base(24), 24);  // 00011
  EXPECT_EQ(rounds.BasesOn(16), 1);
  EXPECT_EQ(rounds.BasesOn(1), 0);  // 10000 reversed is group 16, which is not there
}

// A part just above a chunk: the small last chunk leaves at once and comes with the full one before
// it, which is longer under way. The price once had only the last one's way (-3.9 %).
TEST(AllToAll, ASmallLastChunkWaitsForTheFullOne) {
  cluster::Spec spec = *cluster::FindPreset("h100-ib-400g");
  for (const auto& [nodes, bytes] : {std::pair{3, 105'300}, {2, 143'489}, {4, 143'489}}) {
    spec.nodes = nodes;
    const cluster::Cluster cluster = *cluster::Cluster::Build(spec);
    std::vector<DeviceId> members;
    for (int n = 0; n < nodes; ++n) members.emplace_back(static_cast<std::size_t>(n * 8));
    const Planner planner(cluster, {});
    const Plan plan = *planner.MakePlan(Collective::kAllToAll, bytes, ShapeOf(cluster, members));
    const model::Pieces pieces = model::Cut(plan);
    EXPECT_EQ(pieces.rounds, 1);
    EXPECT_GT(pieces.tail.slices, 0);
    IdealExecutor executor(Schedule(plan, cluster, members), cluster, members);
    const auto run = static_cast<double>(executor.Run());
    EXPECT_NEAR(static_cast<double>(planner.ClosedForm(plan).total()) / run, 1, 0.01) << nodes;
  }
}

// Every distance is there once, and nobody waits for ever, in groups of any size.
TEST(AllToAll, EveryPairOnceInEveryShape) {
  for (const auto& [nodes, ranks] : {std::pair{1, 8}, {2, 3}, {3, 8}, {5, 2}, {4, 6}}) {
    cluster::Spec spec = *cluster::FindPreset("h100-ib-400g");
    spec.nodes = nodes;
    const cluster::Cluster cluster = *cluster::Cluster::Build(spec);
    std::vector<DeviceId> members;
    for (int n = 0; n < nodes; ++n) {
      for (int i = 0; i < ranks; ++i) members.emplace_back(static_cast<std::size_t>(n * 8 + i));
    }
    std::swap(members.front(), members.back());  // members need not stand in order
    const Planner planner(cluster, {});
    const Plan plan = *planner.MakePlan(Collective::kAllToAll, 1 << 22, ShapeOf(cluster, members));
    const Schedule schedule(plan, cluster, members);
    std::set<std::pair<std::uint32_t, std::uint32_t>> pairs;
    for (const Connection& c : schedule.connections()) pairs.insert({c.from, c.to});
    EXPECT_EQ(pairs.size(), members.size() * (members.size() - 1)) << nodes;
    IdealExecutor executor(schedule, cluster, members);
    EXPECT_GT(executor.Run(), 0) << nodes;
    // A node's GPUs send what their messages to others hold, headers besides.
    std::int64_t out = 0;
    for (std::size_t i = 0; i < members.size(); ++i) {
      out += executor.bytes_sent(cluster.pcie_out(members[i]));
    }
    const auto n = static_cast<std::int64_t>(members.size());
    const std::int64_t payload = plan.bytes / n * (n - ranks) * n;
    EXPECT_GE(out, payload);
    EXPECT_LE(out, payload + payload / 16 + 1) << nodes;
  }
}

}  // namespace
}  // namespace orrery::collective
