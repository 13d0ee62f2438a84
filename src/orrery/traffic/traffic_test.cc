#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "orrery/traffic/flows.h"
#include "orrery/traffic/report.h"
#include "orrery/traffic/run.h"
#include "orrery/traffic/sweep.h"

namespace orrery::traffic {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

cluster::Cluster Build(int nodes, std::string_view preset = "h100-ib-400g") {
  auto spec = cluster::FindPreset(preset);
  EXPECT_TRUE(spec.ok());
  spec->nodes = nodes;
  auto cluster = cluster::Cluster::Build(*spec);
  EXPECT_TRUE(cluster.ok());
  return *std::move(cluster);
}
std::vector<Flow> Make(std::string_view pattern, const cluster::Cluster& cluster,
                       const PatternOptions& options = {}) {
  auto flows = MakeFlows(pattern, cluster, options);
  EXPECT_TRUE(flows.ok()) << flows.status().message();
  return flows.ok() ? *flows : std::vector<Flow>{};
}
FlowRun Simulated(const cluster::Cluster& cluster, std::string_view network,
                  const std::vector<Flow>& flows) {
  auto run = RunFlows(cluster, network, {}, flows, 1, {});
  EXPECT_TRUE(run.ok()) << run.status().message();
  return run.ok() ? *run : FlowRun{};
}

TEST(Patterns, APermutationIsOne) {
  const cluster::Cluster cluster = Build(4);
  const std::vector<Flow> flows = Make("permutation", cluster);
  ASSERT_EQ(flows.size(), 32u);
  std::set<std::size_t> from, to;
  for (const Flow& flow : flows) {
    EXPECT_NE(flow.from, flow.to);
    from.insert(flow.from.index());
    to.insert(flow.to.index());
  }
  EXPECT_EQ(from.size(), 32u);
  EXPECT_EQ(to.size(), 32u);
  const auto same = [](const Flow& a, const Flow& b) { return a.to == b.to; };
  EXPECT_TRUE(std::ranges::equal(flows, Make("permutation", cluster), same));
  EXPECT_FALSE(std::ranges::equal(flows, Make("permutation", cluster, {.seed = 2}), same));
}

TEST(Patterns, ALoadOfPoissonIsMet) {
  const cluster::Cluster cluster = Build(4);
  PatternOptions options;
  options.load = 0.4;
  options.duration = 100 * kMillisecond;
  double bytes = 0;
  const std::vector<Flow> flows = Make("poisson", cluster, options);
  for (const Flow& flow : flows) {
    bytes += static_cast<double>(flow.bytes);
    EXPECT_NE(cluster.node(flow.from), cluster.node(flow.to));
  }
  // About 39,000 flows; the sum's standard deviation is about 1 %.
  const double offered = bytes / 0.1 / (32.0 * 50e9);
  EXPECT_NEAR(offered, 0.4, 0.02);
  // Exponential gaps: mean and standard deviation are equal.
  double sum = 0, squares = 0;
  for (std::size_t i = 1; i < flows.size(); ++i) {
    const auto gap = static_cast<double>(flows[i].start - flows[i - 1].start);
    sum += gap;
    squares += gap * gap;
  }
  const auto n = static_cast<double>(flows.size() - 1);
  EXPECT_NEAR(std::sqrt(squares / n - sum / n * sum / n) / (sum / n), 1, 0.03);
}

TEST(SizeDistributions, FollowTheirCurve) {
  const auto sizes = SizeDistribution::Parse("0 0\n100 50\n300 100\n", "f");
  ASSERT_TRUE(sizes.ok()) << sizes.status().message();
  EXPECT_EQ(sizes->At(0.25), 50);
  EXPECT_EQ(sizes->At(0.5), 100);
  EXPECT_EQ(sizes->At(0.75), 200);
  EXPECT_EQ(sizes->At(0), 1);
  EXPECT_DOUBLE_EQ(sizes->mean(), 125);  // 0.5 · 50 + 0.5 · 200
  EXPECT_THAT(SizeDistribution::Parse("0 0\n100 x\n", "f").status().message(), HasSubstr("f:2:"));
  EXPECT_THAT(SizeDistribution::Parse("0 0\n100 50\n", "f").status().message(),
              HasSubstr("ends at 100 per cent"));
  EXPECT_THAT(SizeDistribution::Parse("0 0\n1e300 100\n", "f").status().message(),
              HasSubstr("f:2: '1e300 100': a flow has at most"));
  EXPECT_THAT(SizeDistribution::Find("web-serach").status().message(),
              HasSubstr("did you mean 'web-search'"));
}

TEST(SweepSizes, EndAtTheLargest) {
  EXPECT_THAT(*SweepSizes(1, 100, 4), ElementsAre(1, 4, 16, 64));
  EXPECT_THAT(*SweepSizes(64, 64, 2), ElementsAre(64));
  // The size after the last one is beyond 64 bits.
  const std::int64_t factor = std::int64_t{1} << 40, most = std::int64_t{1} << 50;
  EXPECT_THAT(*SweepSizes(1, most, factor), ElementsAre(1, factor));
  EXPECT_THAT(SweepSizes(1, most + 1, factor).status().message(), HasSubstr("at most 1.0 PiB"));
}

TEST(ConnectionMatrix, ReadsHtsims) {
  const cluster::Cluster cluster = Build(2);
  const auto flows = ParseConnectionMatrix(
      "Nodes 16\nConnections 2\n0->8 id 1 start 0 size 2000000\n# a comment\n"
      "3->9 start 12.5 size 64\n",
      "m.cm", cluster);
  ASSERT_TRUE(flows.ok()) << flows.status().message();
  ASSERT_EQ(flows->size(), 2u);
  EXPECT_EQ((*flows)[1].start, 12'500'000);
  EXPECT_EQ((*flows)[1].bytes, 64);
  const auto error = [&](std::string_view text) {
    return ParseConnectionMatrix(text, "m.cm", cluster).status().message();
  };
  EXPECT_THAT(error("Nodes 17\n"), HasSubstr("m.cm:1: Nodes 17: the cluster has 16 GPUs"));
  EXPECT_THAT(error("Nodes 16\n0->16 start 0 size 5\n"), HasSubstr("m.cm:2: to = '16'"));
  EXPECT_THAT(error("Nodes 16\n0->1 trigger 1 size 5\n"), HasSubstr("'trigger' is not modelled"));
  EXPECT_THAT(error("Nodes 16\n0->1 start 0\n"), HasSubstr("'size BYTES' is missing"));
  EXPECT_THAT(error("Nodes 16\nConnections 3\n0->1 start 0 size 5\n"), HasSubstr("the file has 1"));
}

TEST(RunFlows, OneFlowIsNotSlowedAndAnIncastIs) {
  const cluster::Cluster cluster = Build(4);
  for (const std::string_view network : {"flow", "links"}) {
    const FlowRun one = Simulated(cluster, network, {{5, DeviceId(0), DeviceId(17), 1 << 20}});
    EXPECT_DOUBLE_EQ(one.slowdown.mean, 1) << network;
    EXPECT_EQ(one.finish, one.completion[0] + 5);
    // 8 of 64 MiB into one NIC take 8 times as long, latencies aside.
    const FlowRun incast =
        Simulated(cluster, network, Make("incast", cluster, {.bytes = 64 << 20}));
    EXPECT_NEAR(incast.slowdown.most, 8, 0.1) << network;
    const std::vector<LinkUse> worst = WorstLinks(cluster, incast.links, incast.finish, 1);
    ASSERT_EQ(worst.size(), 1u);
    EXPECT_GT(worst[0].bytes, 8ll * (64 << 20)) << "headers are counted";
    EXPECT_GT(static_cast<double>(worst[0].busy), 0.99 * static_cast<double>(incast.finish));
    // The receiver's NIC is full; of the senders' each carries an eighth of that.
    EXPECT_NEAR(worst[0].utilisation, 1, 0.02);
    for (const LinkClass& c : LinkClasses(cluster, incast.links, incast.finish)) {
      EXPECT_LE(c.most_used, 1.001) << c.name;
      EXPECT_LE(c.utilisation, c.most_used) << c.name;
    }
  }
}

// Fair sharing ends all at once, first come first served one after another.
TEST(RunFlows, NetworksDifferWhereTheyShould) {
  const cluster::Cluster cluster = Build(4);
  const std::vector<Flow> incast = Make("incast", cluster, {.bytes = 64 << 20});
  const FlowRun fair = Simulated(cluster, "flow", incast);
  const FlowRun fifo = Simulated(cluster, "links", incast);
  EXPECT_NEAR(fair.slowdown.p50, 8, 0.1);
  EXPECT_NEAR(fifo.slowdown.p50, 4, 0.1);
}

// A permutation over a full fat tree: hashed paths collide, the least loaded ones hardly do.
TEST(RunFlows, AdaptiveRoutingAvoidsCollisions) {
  auto spec = cluster::FindPreset("h100-ib-400g");
  ASSERT_TRUE(spec.ok());
  spec->nodes = 16;
  spec->nodes_per_leaf = 2;
  spec->topology.name = "fat-tree-2";
  const auto hashed = cluster::Cluster::Build(*spec);
  spec->topology.routing = cluster::Routing::kAdaptive;
  const auto adaptive = cluster::Cluster::Build(*spec);
  ASSERT_TRUE(hashed.ok() && adaptive.ok());
  const std::vector<Flow> flows = Make("permutation", *hashed, {.bytes = 16 << 20});
  for (const std::string_view network : {"flow", "links"}) {
    const FlowRun a = Simulated(*hashed, network, flows), b = Simulated(*adaptive, network, flows);
    EXPECT_GE(a.slowdown.most, 1.9) << network;
    EXPECT_LT(b.slowdown.mean, a.slowdown.mean) << network;
    EXPECT_LE(b.finish, a.finish) << network;
  }
}

TEST(RunFlows, CountsEveryByteOnce) {
  const cluster::Cluster cluster = Build(4);
  const std::vector<Flow> flows = Make("all-to-all", cluster, {.bytes = 100'000});
  const FlowRun run = Simulated(cluster, "flow", flows);
  EXPECT_EQ(run.flows, 32u * 31u);
  // 7 GPUs of its host get a message from each GPU, by NVLink; the rest leave by its PCIe link.
  const std::int64_t packets =
      (100'000 + cluster.spec().nvlink_packet_bytes - 1) / cluster.spec().nvlink_packet_bytes;
  const std::int64_t wire = 100'000 + packets * cluster.spec().nvlink_header_bytes;
  const std::int64_t frames =
      (100'000 + cluster.spec().nic_mtu_bytes - 1) / cluster.spec().nic_mtu_bytes;
  const std::int64_t outside = 100'000 + frames * cluster.spec().nic_header_bytes;
  for (std::size_t d = 0; d < cluster.devices(); ++d) {
    EXPECT_EQ(run.links[cluster.nvlink_out(DeviceId(d)).index()].bytes, 7 * wire);
    EXPECT_EQ(run.links[cluster.pcie_out(DeviceId(d)).index()].bytes, 24 * outside);
  }
}

// 1 GiB a GPU over NVLink between eight: all give 8 times as much to GPU 2 as to another, so 8 x
// 8/15 GiB x 7/8 come in through one port, where even shares bring 7/8 GiB: 4.27 times as much.
TEST(Sweep, SharesOfAnAllToAll) {
  const cluster::Cluster cluster = Build(1);
  SweepOptions options;
  options.collective = graph::Collective::kAllToAll;
  options.sizes = {1 << 30};
  const auto even = RunSweep(cluster, {}, options);
  ASSERT_TRUE(even.ok());
  options.shares = *ParseShares("# to GPU 2\n1, 1, 8,1,1,1,1,1\n", "shares.csv", 8);
  for (const char* network : {"analytic", "flow", "links"}) {
    options.network = network;
    const auto uneven = RunSweep(cluster, {}, options);
    ASSERT_TRUE(uneven.ok()) << uneven.status().message();
    const double ratio =
        static_cast<double>(uneven->rows[0].time) / static_cast<double>(even->rows[0].time);
    EXPECT_NEAR(ratio, 64.0 / 15, 0.2) << network;
  }
  for (const char* wrong : {"", "1,1,1", "1,1,1,1,1,1,1,x", "0,0,0,0,0,0,0,0",
                            "1,1,1,1,1,1,1,1\n1,1,1,1,1,1,1,1\n", "1,1,1,1,1,1,1,-1"}) {
    EXPECT_FALSE(ParseShares(wrong, "shares.csv", 8).ok()) << wrong;
  }
}

TEST(Sweep, AgreesWithTheClosedFormAlone) {
  const cluster::Cluster cluster = Build(4);
  const collective::Environment environment;
  SweepOptions options;
  options.sizes = *SweepSizes(1 << 20, 1 << 28, 16);
  options.network = "analytic";
  const auto analytic = RunSweep(cluster, environment, options);
  ASSERT_TRUE(analytic.ok()) << analytic.status().message();
  options.network = "flow";
  const auto flow = RunSweep(cluster, environment, options);
  ASSERT_TRUE(flow.ok()) << flow.status().message();
  const collective::Planner planner(cluster, environment);
  std::vector<DeviceId> members;
  for (std::size_t d = 0; d < cluster.devices(); ++d) members.emplace_back(d);
  const auto shape = collective::ShapeOf(cluster, members);
  for (std::size_t i = 0; i < options.sizes.size(); ++i) {
    const auto plan = planner.MakePlan(options.collective, options.sizes[i], shape);
    ASSERT_TRUE(plan.ok());
    const SweepRow& row = analytic->rows[i];
    EXPECT_EQ(row.time, planner.ClosedForm(*plan).total()) << row.bytes;
    EXPECT_NEAR(static_cast<double>(flow->rows[i].time) / static_cast<double>(row.time), 1, 0.03);
    EXPECT_NEAR(row.busbw_GBps / row.algbw_GBps, 2 * 31.0 / 32, 1e-9);
  }
}

// nccl-tests' loop keeps ahead of the GPUs, which a training step in Python does not on an A100's
// host (21.7 us a collective).
TEST(Sweep, SmallCollectivesDoNotWaitForTheHost) {
  const cluster::Cluster cluster = Build(1, "a100-80g-ib-200g");
  SweepOptions options;
  options.sizes = {8, 8192};
  const auto sweep = RunSweep(cluster, {}, options);
  ASSERT_TRUE(sweep.ok()) << sweep.status().message();
  const collective::Planner planner(cluster, {});
  std::vector<DeviceId> members;
  for (std::size_t d = 0; d < cluster.devices(); ++d) members.emplace_back(d);
  const auto plan = planner.MakePlan(options.collective, 8, collective::ShapeOf(cluster, members));
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(sweep->rows[0].time, planner.ClosedForm(*plan).total());
}

// Between whole messages one after the other and, but for packets' own time, the next messages of
// all queue pairs sharing: queue pairs take turns, and each sends its messages in order.
TEST(Sweep, PacketsLieBetweenLinksAndSharedChunks) {
  const cluster::Cluster cluster = Build(4);
  for (const auto collective : {graph::Collective::kAllReduce, graph::Collective::kAllGather}) {
    SweepOptions options;
    options.collective = collective;
    options.sizes = *SweepSizes(1 << 20, 1 << 28, 4);
    std::map<std::string, Sweep> by;
    for (const char* network : {"analytic", "links", "packet", "flow-chunks"}) {
      options.network = network;
      auto sweep = RunSweep(cluster, {}, options);
      ASSERT_TRUE(sweep.ok()) << sweep.status().message();
      by[network] = *std::move(sweep);
    }
    for (std::size_t i = 0; i < options.sizes.size(); ++i) {
      const auto time = [&](const char* network) { return ToSeconds(by[network].rows[i].time); };
      EXPECT_GT(time("packet"), 0.9999 * time("links")) << options.sizes[i];
      // Where shared chunks, in order, are as fast as links, packets still wait for packets.
      EXPECT_LT(time("packet"), std::max(1.005 * time("flow-chunks"), 1.014 * time("links")))
          << options.sizes[i];
      EXPECT_NEAR(time("packet") / time("analytic"), 1, 0.1) << options.sizes[i];
    }
  }
}

}  // namespace
}  // namespace orrery::traffic
