#include <gtest/gtest.h>

#include "orrery/collective/collective.h"
#include "orrery/collective/nccl_tables.h"
#include "orrery/collective/white_box.h"

namespace orrery::collective {
namespace {

using graph::Collective;
using graph::DType;

cluster::Cluster Machine(const char* preset, int nodes) {
  cluster::Spec spec = *cluster::FindPreset(preset);
  spec.nodes = nodes;
  return *cluster::Cluster::Build(spec);
}

GroupShape Whole(const cluster::Cluster& cluster) {
  std::vector<DeviceId> members;
  for (std::size_t i = 0; i < cluster.devices(); ++i) members.emplace_back(i);
  return ShapeOf(cluster, members);
}

// Channel counts of NCCL for whole nodes: the search's steps, duplication and doubling by hand.
TEST(Channels, OfWholeNodes) {
  struct Row {
    const char* preset;
    int nodes, nics_per_node, graph, channels;
    double each;
  };
  const Row rows[] = {
      {"a100-80g-ib-200g", 1, 8, 12, 24, 20},  // 240 / 40 = 6, doubled to 12 x 20; twice that
      {"h100-ib-400g", 1, 8, 12, 24, 30},      // 370.8 / 60 = 6 -> 12 x 30
      {"b200-ib-400g", 1, 8, 16, 32, 45},      // 721.8 / 90 = 8 -> 16 x 45
      {"h100-ib-400g", 2, 8, 8, 16, 48},  // a ring a NIC at PCIe's 48; not doubled: 8 > 4, 48 < 50
      {"a100-80g-ib-200g", 2, 8, 8, 16, 24},  // 24 < 25: not doubled
      {"b200-ib-400g", 2, 8, 8, 16, 48},
      {"h100-ib-400g", 2, 4, 8, 16, 24},           // 4 x 48, doubled to 8 x 24
      {"gb200-nvl72-ib-400g", 18, 4, 16, 32, 45},  // one rack is one domain
      // 164.8 GB/s of NVLink: 3 x 48, 4 x 40, 8 x 22, as 8 · floor(164.8 / 22) / 7 rings leave 8
      // GPUs. Moye's Table 5 shows 16 channels.
      {"h800-ib-400g", 4, 8, 8, 16, 22},
      {"h800-ib-400g", 1, 8, 8, 16, 20},      // 2 x 60, 3 x 50, 4 x 40 -> 8 x 20
      {"a800-80g-ib-200g", 2, 8, 8, 16, 20},  // 160 GB/s: 6 x 24, 8 x 20
      {"v100-32g-ib-100g", 1, 8, 6, 12, 20},  // 120 = 3 x 40
  };
  for (const Row& row : rows) {
    cluster::Spec spec = *cluster::FindPreset(row.preset);
    spec.nodes = row.nodes;
    spec.nics_per_node = row.nics_per_node;
    const cluster::Cluster cluster = *cluster::Cluster::Build(spec);
    const nccl::Channels found = nccl::SearchChannels(spec, Whole(cluster), Environment());
    EXPECT_EQ(found.graph, row.graph) << row.preset << " x " << row.nodes;
    EXPECT_EQ(found.channels, row.channels) << row.preset << " x " << row.nodes;
    EXPECT_DOUBLE_EQ(found.bandwidth_GBps, row.each) << row.preset << " x " << row.nodes;
  }
}

TEST(Channels, LimitsOfTheEnvironment) {
  const cluster::Cluster cluster = Machine("h100-ib-400g", 2);
  Environment environment;
  environment.max_channels = 8;
  EXPECT_EQ(nccl::SearchChannels(cluster.spec(), Whole(cluster), environment).channels, 8);
  environment.min_channels = environment.max_channels = 32;
  EXPECT_EQ(nccl::SearchChannels(cluster.spec(), Whole(cluster), environment).channels, 32);
}

TEST(Shape, CountsDomainsNicsAndSwitches) {
  const cluster::Cluster cluster = Machine("h100-ib-400g", 64);
  const auto shape = [&](std::vector<DeviceId> members) { return ShapeOf(cluster, members); };
  EXPECT_EQ(shape({DeviceId(0), DeviceId(1)}), (GroupShape{2, 1, 2, 2, true, 0}));
  EXPECT_EQ(shape({DeviceId(3), DeviceId(11)}), (GroupShape{2, 2, 1, 1, true, 1}));  // a rail
  EXPECT_EQ(shape({DeviceId(3), DeviceId(12)}), (GroupShape{2, 2, 1, 1, true, 3}));  // two rails
  EXPECT_EQ(shape({DeviceId(3), DeviceId(8 * 32 + 3)}), (GroupShape{2, 2, 1, 1, true, 3}));
  EXPECT_EQ(shape({DeviceId(0), DeviceId(1), DeviceId(8)}), (GroupShape{3, 2, 2, 1, false, 1}));
}

// Rings enter a domain on one rail and leave it on the next one, in turn: only of an odd number of
// domains does the last one's ring come to another rail than it began on, over leaf, spine, leaf.
TEST(Shape, ARingOfOddDomainsLeavesItsRailOnce) {
  const cluster::Cluster cluster = Machine("h100-ib-400g", 8);
  const auto wrap = [&](std::size_t nodes, std::size_t ranks) {
    std::vector<DeviceId> members;
    for (std::size_t n = 0; n < nodes; ++n) {
      for (std::size_t i = 0; i < ranks; ++i) members.emplace_back(8 * n + i);
    }
    const GroupShape shape = ShapeOf(cluster, members);
    EXPECT_EQ(shape.network_hops, nodes > 1 ? 1 : 0);
    return shape.wrap_hops;
  };
  EXPECT_EQ(wrap(3, 2), 3);
  EXPECT_EQ(wrap(5, 8), 3);
  EXPECT_EQ(wrap(4, 2), 0);
  EXPECT_EQ(wrap(3, 1), 0);  // one rail
  EXPECT_EQ(wrap(1, 8), 0);
}

// 8 H100, all-reduce of 1 GiB, NCCL 2.27, NVLS off: busBw 12 * 30 = 360. Ring Simple: 8.4 + 14
// * 3.4 + 2^30 / (360e3 * 8/14) = 5,275 us; Ring LL128: 0.92 * 360 = 331.2 -> 5,715; LL: 141 ->
// 13,328; Tree Simple (level 23+: no correction): 0.92 * 360 / 2 = 165.6 -> 6,540. Ring Simple it
// is. With NVLS: busBw 8 * 40 * .85 * 7/8 * 2 = 476, 25 + 2^30 / (476e3 * 8/14) = 3,973: 16
// channels, 8 heads, chunks of 128 KiB (2^30 is 64 of 16 * 8 * 128 KiB).
TEST(Planner, LargeOnOneNode) {
  const cluster::Cluster cluster = Machine("h100-ib-400g", 1);
  Environment environment;
  environment.version = 22700;
  const Plan nvls = *Planner(cluster, environment)
                         .MakePlan(Collective::kAllReduce, DType::kBf16, 1 << 30, Whole(cluster));
  EXPECT_EQ(nvls.algorithm, Algorithm::kNvls);
  EXPECT_EQ(nvls.channels, 16);
  EXPECT_EQ(nvls.heads, 8);
  EXPECT_EQ(nvls.chunk_bytes, 128 << 10);
  environment.nvls = false;
  const Plan plan = *Planner(cluster, environment)
                         .MakePlan(Collective::kAllReduce, DType::kBf16, 1 << 30, Whole(cluster));
  EXPECT_EQ(plan.algorithm, Algorithm::kRing);
  EXPECT_EQ(plan.protocol, Protocol::kSimple);
  EXPECT_EQ(plan.channels, 24);
  EXPECT_EQ(plan.threads, 512);
  EXPECT_EQ(plan.chunk_bytes, 2 << 20);
  EXPECT_EQ(plan.slice_bytes, 1 << 20);
  EXPECT_EQ(plan.credits, 4);
  EXPECT_FALSE(plan.restricted());
}

// The same of 16 kB: Ring LL: 6.6 + 14 * 0.6 + 16384 / (141e3 * 8/14) = 15.2; Tree LL: 6.8 + 14 *
// .6 + level 8: .7 * min(331.2 / 3.8, 141) = 61 / 2 -> 0.5 = 15.7. One channel: 16384 / (8 * 8 *
// 512) < 1.
TEST(Planner, SmallOnOneNode) {
  const cluster::Cluster cluster = Machine("h100-ib-400g", 1);
  const Plan plan =
      *Planner(cluster, {}).MakePlan(Collective::kAllReduce, DType::kBf16, 16384, Whole(cluster));
  EXPECT_EQ(plan.algorithm, Algorithm::kRing);
  EXPECT_EQ(plan.protocol, Protocol::kLL);
  EXPECT_EQ(plan.channels, 1);
  EXPECT_EQ(plan.threads, 256);  // 16384 < 512 * 64: halved once
  EXPECT_FALSE(plan.restricted());
}

TEST(Planner, OneRankPerNodeHasOneNicsRings) {
  // One ring at 48, doubled to 2 x 24: 4 channels.
  const cluster::Cluster cluster = Machine("h100-ib-400g", 16);
  std::vector<DeviceId> members;
  for (std::size_t n = 0; n < 16; ++n) members.emplace_back(8 * n);
  const Plan plan =
      *Planner(cluster, {})
           .MakePlan(Collective::kReduceScatter, DType::kFp32, 1 << 30, ShapeOf(cluster, members));
  EXPECT_EQ(plan.channels, 4);
  EXPECT_EQ(plan.algorithm, Algorithm::kRing);
}

TEST(Planner, PointToPointDoublesChannels) {
  // Two ranks on NVLink: pool 32, per peer 32, at least 16. 1 MiB: parts of 64 KiB: 16. Network: 48
  // / 14 -> 4.
  const cluster::Cluster one = Machine("h100-ib-400g", 1);
  const GroupShape near{2, 1, 2, 2, true, 0};
  const Planner planner(one, {});
  EXPECT_EQ(planner.MakePlan(Collective::kSend, DType::kBf16, 1 << 20, near)->channels, 16);
  EXPECT_EQ(planner.MakePlan(Collective::kSend, DType::kBf16, 1 << 30, near)->channels, 32);
  const cluster::Cluster two = Machine("h100-ib-400g", 2);
  const GroupShape far{2, 2, 1, 1, true, 1};
  const Plan plan = *Planner(two, {}).MakePlan(Collective::kSend, DType::kBf16, 1 << 26, far);
  EXPECT_EQ(plan.channels, 4);
  EXPECT_EQ(plan.chunk_bytes, 128 << 10);
}

TEST(Planner, ForcedChoiceThatDoesNotExistIsRefused) {
  const cluster::Cluster cluster = Machine("h100-ib-400g", 1);
  const auto plan = [&](const char* version) {
    const Environment tree = *ParseEnvironment(std::vector<std::pair<std::string, std::string>>{
        {"NCCL_ALGO", "Tree"}, {"NCCL_VERSION", version}});
    return Planner(cluster, tree)
        .MakePlan(Collective::kAllGather, DType::kBf16, 1 << 20, Whole(cluster));
  };
  ASSERT_FALSE(plan("2.24.3").ok());
  EXPECT_EQ(plan("2.24.3").status().message(),
            "NCCL_ALGO and NCCL_PROTO leave no algorithm for all-gather over 8 ranks (NCCL before "
            "2.24 would take Ring); allow Ring");
  // Before 2.24 "real apps" ran with NCCL_ALGO=Tree: what has no tree takes Ring.
  ASSERT_TRUE(plan("2.23.4").ok());
  EXPECT_EQ(plan("2.23.4")->algorithm, Algorithm::kRing);
  EXPECT_NE(plan("2.23.4")->note, "");
}

// 64 nodes of one GPU, 64 KiB: 63 steps of a ring cost 6.6 + 63 · 5 us (LL), PAT 8 + 6 · 14 / 3.5 +
// 2.8 · 64 = 211. From 2.23 on, where nothing rules it out, and not with two GPUs a node.
TEST(Planner, PatWithOneGpuANode) {
  const cluster::Cluster cluster = Machine("h100-ib-400g", 64);
  std::vector<DeviceId> one, two;
  for (std::size_t n = 0; n < 64; ++n) {
    one.emplace_back(8 * n);
    two.emplace_back(8 * n);
    two.emplace_back(8 * n + 1);
  }
  const auto chosen = [&](int version, bool pat, const std::vector<DeviceId>& members) {
    Environment environment;
    environment.version = version;
    environment.pat = pat;
    return Planner(cluster, environment)
        .MakePlan(Collective::kAllGather, DType::kBf16, 64 << 10, ShapeOf(cluster, members))
        ->algorithm;
  };
  EXPECT_EQ(chosen(22304, true, one), Algorithm::kPat);
  EXPECT_EQ(chosen(22203, true, one), Algorithm::kRing);
  EXPECT_EQ(chosen(22304, false, one), Algorithm::kRing);
  EXPECT_EQ(chosen(22304, true, two), Algorithm::kRing);
}

TEST(Planner, NvlsNeedsAMulticastingSwitch) {
  const auto algorithm = [](const char* preset, int nodes, Collective c) {
    const cluster::Cluster cluster = Machine(preset, nodes);
    return Planner(cluster, {}).MakePlan(c, DType::kBf16, 1 << 30, Whole(cluster))->algorithm;
  };
  EXPECT_EQ(algorithm("a100-80g-ib-200g", 1, Collective::kAllReduce), Algorithm::kRing);
  EXPECT_EQ(algorithm("h100-ib-400g", 1, Collective::kAllReduce), Algorithm::kNvls);
  EXPECT_EQ(algorithm("h100-ib-400g", 2, Collective::kAllReduce), Algorithm::kNvlsTree);
  EXPECT_EQ(algorithm("h100-ib-400g", 2, Collective::kAllGather), Algorithm::kRing);
  EXPECT_EQ(algorithm("h100-ib-400g", 1, Collective::kBroadcast), Algorithm::kRing);
}

// One slice over NVLink, H100, Simple, 64 KiB in one channel: set-up 6.6 us, send 1 us + 65536 / 21
// GB/s = 4.121, post 2.05, latency 0.35, wire 65536 * 155/128 / 450 GB/s = 0.176 (its head passes
// the second link in 0.0003), and the receiver's look at the flag 1: 14.297 us.
TEST(ClosedForm, OneSliceByHand) {
  const cluster::Cluster cluster = Machine("h100-ib-400g", 1);
  Environment environment;
  environment.max_p2p_channels = 1;
  environment.p2p_ll_threshold_bytes = 0;
  const Planner planner(cluster, environment);
  const Plan plan =
      *planner.MakePlan(Collective::kSend, DType::kBf16, 65536, {2, 1, 2, 2, true, 0});
  EXPECT_NEAR(static_cast<double>(planner.ClosedForm(plan).total()), 14.297e6, 0.002e6);
}

// A ring as a packet simulator runs it: no set-up, no CTA, whole chunks, 3 us a step. 8 GPUs, one
// channel, 16 MiB: 14 steps of 3 us, the link's latency and 2 MiB with headers at its rate.
TEST(ClosedForm, StepsThatNcclDoesNotRun) {
  const cluster::Cluster cluster = Machine("a100-80g-roce-200g", 1);
  const std::vector<std::pair<std::string, std::string>> variables = {
      {"ORRERY_SETUP_NS", "0"},
      {"ORRERY_SYNC_NS", "0"},
      {"ORRERY_POST_NVLINK_NS", "3000"},
      {"ORRERY_CHANNEL_GBPS", "100000"},
      {"ORRERY_RING_SLICES", "1"},
      {"NCCL_BUFFSIZE", "67108864"},
      {"NCCL_MAX_CTAS", "1"}};
  const Planner planner(cluster, *ParseEnvironment(variables));
  const Plan plan = planner.Shape(Collective::kAllReduce, Algorithm::kRing, Protocol::kSimple,
                                  16 << 20, {8, 1, 8, 8, true, 0});
  EXPECT_EQ(plan.channels, 1);
  const cluster::Spec& spec = cluster.spec();
  const double packets = (2 << 20) / static_cast<double>(spec.nvlink_packet_bytes);
  const double wire = packets * (spec.nvlink_packet_bytes + spec.nvlink_header_bytes);
  const double step = 3e6 + static_cast<double>(spec.nvlink_latency) +
                      1e12 * wire / static_cast<double>(spec.nvlink_reached_Bps());
  EXPECT_NEAR(static_cast<double>(planner.ClosedForm(plan).total()), 14 * step, 0.01 * 14 * step);
}

TEST(ClosedForm, EmptyAndAlone) {
  const cluster::Cluster cluster = Machine("h100-ib-400g", 1);
  const Planner planner(cluster, {});
  const Plan empty =
      *planner.MakePlan(Collective::kAllReduce, DType::kBf16, 0, {8, 1, 8, 8, true, 0});
  EXPECT_EQ(planner.ClosedForm(empty).total(), FromMicroseconds(6.6));  // LL's launch
  const Plan alone =
      *planner.MakePlan(Collective::kAllReduce, DType::kBf16, 1 << 20, {1, 1, 1, 1, true, 0});
  EXPECT_EQ(planner.ClosedForm(alone).total(), 0);
}

TEST(ClosedForm, NoPortAboveItsRate) {
  for (const cluster::Preset& preset : cluster::Presets()) {
    for (int nodes : {1, 4}) {
      const cluster::Cluster cluster = Machine(preset.name.data(), nodes);
      const Planner planner(cluster, {});
      const GroupShape shape = Whole(cluster);
      if (shape.ranks == 1) continue;  // a host of one GPU: nothing to do
      for (Collective c :
           {Collective::kAllReduce, Collective::kAllGather, Collective::kBroadcast}) {
        for (std::int64_t bytes = 1 << 10; bytes <= std::int64_t{4} << 30; bytes *= 4) {
          const Cost cost = planner.ClosedForm(*planner.MakePlan(c, DType::kBf16, bytes, shape));
          const double seconds = ToSeconds(cost.transfer);
          EXPECT_GT(cost.fixed, 0);
          EXPECT_LE(static_cast<double>(cost.member.nvlink_out),
                    1.001 * seconds * static_cast<double>(cluster.spec().nvlink_Bps));
          EXPECT_LE(static_cast<double>(cost.member.nic_out),
                    1.001 * seconds * static_cast<double>(cluster.spec().nic_Bps));
        }
      }
    }
  }
}

}  // namespace
}  // namespace orrery::collective
