// The first rounds of trees and NVLS, played for what is alike, against all of it.
#include "orrery/collective/playback/playback.h"

#include <gtest/gtest.h>

#include "orrery/collective/ideal_executor_test.h"

namespace orrery::collective {
namespace {

using graph::Collective;

struct Group {
  cluster::Cluster cluster;
  std::vector<DeviceId> members;

  Group(const char* preset, int nodes, int ranks) : cluster(Build(preset, nodes)) {
    for (int n = 0; n < nodes; ++n) {
      for (int i = 0; i < ranks; ++i) members.emplace_back(static_cast<std::size_t>(n * 8 + i));
    }
  }
  static cluster::Cluster Build(const char* preset, int nodes) {
    cluster::Spec spec = *cluster::FindPreset(preset);
    spec.nodes = nodes;
    return *cluster::Cluster::Build(spec);
  }
  Plan Shape(Collective c, Algorithm a, Protocol p, std::int64_t bytes) const {
    return Planner(cluster, {}).Shape(c, a, p, bytes, ShapeOf(cluster, members));
  }
  double All(const Plan& plan) const {
    const Schedule schedule(plan, cluster, members);
    const SimTime setup = schedule.setup();
    return static_cast<double>(IdealExecutor(schedule, cluster, members).Run() - setup);
  }
};

// 24 channels on 8 GPUs: each is head of three, all ports carry the same. What is played is all.
TEST(Playback, ChainsThatDivideAreExact) {
  const Group group("h100-ib-400g", 1, 8);
  for (const Protocol p : {Protocol::kLL, Protocol::kLL128, Protocol::kSimple}) {
    const Plan plan = group.Shape(Collective::kAllReduce, Algorithm::kTree, p, 4 << 20);
    const Playback played = PlayTree(plan, model::MakeWhiteBox(plan, group.cluster.spec()));
    if (model::Cut(plan).rounds == 0) {
      EXPECT_EQ(played.time, 0) << "a tree of one chunk has nothing to meet";
      continue;
    }
    EXPECT_EQ(played.rounds, model::Cut(plan).rounds);
    EXPECT_NEAR(static_cast<double>(played.time) / group.All(plan), 1, 0.002);
  }
}

// Two domains are each other's mirror: one stands for both.
TEST(Playback, TwoDomainsAreExact) {
  const Group group("h100-ib-400g", 2, 4);
  for (const Protocol p : {Protocol::kLL, Protocol::kLL128, Protocol::kSimple}) {
    const Plan plan = group.Shape(Collective::kAllReduce, Algorithm::kTree, p, 32 << 20);
    const Playback played = PlayTree(plan, model::MakeWhiteBox(plan, group.cluster.spec()));
    ASSERT_GT(played.rounds, 0);
    if (played.rounds < model::Cut(plan).rounds) continue;
    EXPECT_NEAR(static_cast<double>(played.time) / group.All(plan), 1, 0.005);
  }
}

TEST(Playback, Nvls) {
  const Group group("h100-ib-400g", 1, 4);
  for (const Collective c :
       {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter}) {
    const Plan plan = group.Shape(c, Algorithm::kNvls, Protocol::kSimple, 16 << 20);
    const Playback played = PlayNvls(plan, model::MakeWhiteBox(plan, group.cluster.spec()));
    ASSERT_EQ(played.rounds, model::Cut(plan).rounds);
    EXPECT_NEAR(static_cast<double>(played.time) / group.All(plan), 1, 0.01);
  }
}

// NCCL's latency of NVLS, 25 us, is of the whole: the copies of the least data are in it.
TEST(Playback, LatencyOfNvlsIsOfTheWhole) {
  const Group group("h100-ib-400g", 1, 4);
  const Plan plan = group.Shape(Collective::kAllReduce, Algorithm::kNvls, Protocol::kSimple, 8);
  EXPECT_NEAR(ToSeconds(Planner(group.cluster, {}).ClosedForm(plan).total()), 25e-6, 1e-6);
}

// A plan's price is what was played where all of it was, and goes on from there.
TEST(Playback, IsInThePrice) {
  const Group group("b200-ib-400g", 2, 8);
  const Planner planner(group.cluster, {});
  Plan plan = group.Shape(Collective::kAllReduce, Algorithm::kNvlsTree, Protocol::kSimple, 8 << 20);
  const model::WhiteBox box = model::MakeWhiteBox(plan, group.cluster.spec());
  const Playback played = PlayNvls(plan, box);
  ASSERT_EQ(played.rounds, model::Cut(plan).rounds);
  EXPECT_NEAR(static_cast<double>(planner.ClosedForm(plan).total()),
              box.setup + static_cast<double>(played.time), 2);
  const SimTime with = planner.ClosedForm(plan).total(), phases = plan.phases;
  plan.phases = 0;
  EXPECT_EQ(planner.ClosedForm(plan).total() + phases, with);
}

// Over several domains rounds are slower until all windows are full: 32 of them, which once were
// left to the formula's pace, took 16 % longer than it.
TEST(Playback, TreesOfHeadsPlayTheirWindows) {
  const Group group("h100-ib-400g", 4, 8);
  const Plan plan =
      group.Shape(Collective::kAllReduce, Algorithm::kNvlsTree, Protocol::kSimple, 256 << 20);
  ASSERT_EQ(model::Cut(plan).rounds, 32);
  const Planner planner(group.cluster, {});
  const Schedule schedule(plan, group.cluster, group.members);
  const auto all = static_cast<double>(IdealExecutor(schedule, group.cluster, group.members).Run());
  EXPECT_NEAR(static_cast<double>(planner.ClosedForm(plan).total()) / all, 1, 0.03);
}

// A gather's messages come to the root's NIC together: senders in their order decide whose copies
// share a CTA last (8 % for the other order). PAT and exchanges with a root are played whole, once.
TEST(Playback, ExchangesWithARootAndPatAreWhollyPlayed) {
  const Group group("a100-80g-ib-200g", 5, 2), rail("h100-ib-400g", 4, 1);
  const auto price = [](const Group& g, const Plan& plan) {
    const Planner planner(g.cluster, {});
    EXPECT_GT(plan.phases, 0);
    const Cost cost = planner.ClosedForm(plan);
    EXPECT_NEAR(
        static_cast<double>(cost.total()),
        model::MakeWhiteBox(plan, g.cluster.spec()).setup + static_cast<double>(plan.phases), 1);
    EXPECT_NEAR(static_cast<double>(plan.phases) / g.All(plan), 1, 0.01);
  };
  for (const Collective c : {Collective::kGather, Collective::kScatter}) {
    price(
        group,
        *Planner(group.cluster, {}).MakePlan(c, 256 << 10, ShapeOf(group.cluster, group.members)));
  }
  price(rail, rail.Shape(Collective::kAllGather, Algorithm::kPat, Protocol::kSimple, 64 << 20));
}

// A domain of more messages than a plan may take is left to the formula.
TEST(Playback, LargeDomainsAreNotPlayed) {
  Plan plan;
  plan.algorithm = Algorithm::kTree;
  plan.channels = 16;
  plan.bytes = std::int64_t{1} << 30;
  plan.chunk_bytes = plan.slice_bytes = 512 << 10;
  plan.shape.ranks = 8 * 200;
  plan.shape.domains = 8;
  plan.shape.ranks_per_domain = plan.shape.nics = 200;
  EXPECT_EQ(PlayTree(plan, model::WhiteBox()).rounds, 0);
}

}  // namespace
}  // namespace orrery::collective
