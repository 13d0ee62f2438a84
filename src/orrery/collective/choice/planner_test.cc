#include <gtest/gtest.h>

#include <tuple>

#include "orrery/collective/choice/nccl_tables.h"
#include "orrery/collective/collective.h"
#include "orrery/collective/white_box.h"

namespace orrery::collective {
namespace {

using graph::Collective;

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

// What NCCL finds over all of a preset's hosts; by default the release for its GPUs.
nccl::Channels ChannelsOf(const char* preset, int nodes, int nics_per_node, int version = 0) {
  cluster::Spec spec = *cluster::FindPreset(preset);
  spec.nodes = nodes;
  spec.nics_per_node = nics_per_node;
  const cluster::Cluster cluster = *cluster::Cluster::Build(spec);
  Environment environment;
  environment.version = version > 0 ? version : ReleaseOn(spec.device.arch, environment);
  return nccl::SearchChannels(spec, Whole(cluster), environment);
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
    const nccl::Channels found = ChannelsOf(row.preset, row.nodes, row.nics_per_node);
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

// NCCL's connect.cc: the four CTAs a ring that are for few NICs were for all of Hopper up to 2.19;
// from 2.22 to 2.27 a communicator has at least NVLS's channels (Blackwell 32, over three hosts and
// more 24 from 2.27 on), which counts for rings and trees, too.
TEST(Channels, ByRelease) {
  const auto channels = [](const char* preset, int nodes, int version, bool nvls = true) {
    const cluster::Cluster cluster = Machine(preset, nodes);
    Environment environment;
    environment.version = version;
    environment.nvls = nvls;
    return nccl::SearchChannels(cluster.spec(), Whole(cluster), environment).channels;
  };
  EXPECT_EQ(channels("h100-ib-400g", 2, 21903), 32);
  EXPECT_EQ(channels("h100-ib-400g", 2, 22003), 16);
  EXPECT_EQ(channels("h100-ib-400g", 1, 21903), 24);
  EXPECT_EQ(channels("a100-80g-ib-200g", 2, 21903), 16);
  EXPECT_EQ(channels("b200-ib-400g", 2, 22707), 32);
  EXPECT_EQ(channels("b200-ib-400g", 4, 22707), 24);
  EXPECT_EQ(channels("b200-ib-400g", 4, 22602), 32);
  EXPECT_EQ(channels("b200-ib-400g", 2, 22707, false), 16);
  EXPECT_EQ(channels("b200-ib-400g", 2, 22803), 16);
}

// The trees' own search. A second GPU reaches a NIC as the first one does only where two share it,
// or a Grace: else Hopper and Blackwell take plain chains, and so does a host's single GPU. In two
// domains channels become faster inside while NVLink carries them: 8 A100, 8 chains of 30 from 7 of
// 8 GPUs each, 210 of 240; not 48. 8 B200: 672 of 721.8, where the list has 96 (from 2.27.6 on).
TEST(Channels, OfTrees) {
  struct Row {
    const char* preset;
    int nodes, nics_per_node, version;
    double each;
    bool plain;
  };
  const Row rows[] = {
      {"h100-ib-400g", 2, 8, 22203, 48, true},
      {"h100-ib-400g", 2, 8, 21801, 48, false},
      {"h100-ib-400g", 2, 4, 22203, 48, false},
      {"h100-ib-400g", 4, 4, 22203, 24, false},
      {"a100-80g-ib-200g", 2, 8, 22203, 30, false},
      {"a100-80g-ib-200g", 3, 8, 22203, 24, false},
      {"b200-ib-400g", 2, 8, 22602, 48, true},
      {"b200-ib-400g", 2, 8, 22706, 96, true},
      {"b200-ib-400g", 4, 8, 22706, 48, true},
      {"gb200-nvl72-ib-400g", 36, 4, 22902, 45.1, false},
  };
  for (const Row& row : rows) {
    const nccl::Channels found = ChannelsOf(row.preset, row.nodes, row.nics_per_node, row.version);
    EXPECT_DOUBLE_EQ(found.tree_GBps, row.each) << row.preset << " x " << row.nodes;
    EXPECT_EQ(found.plain_trees, row.plain) << row.preset << " x " << row.nodes;
  }
}

// Two racks of GB200. To 2.27.3 18 links are 720 GB/s to NCCL, and 15 rings of 48 fill them; then
// the list begins at 47.9, of which 15 do not.
TEST(Channels, BlackwellsStepsByRelease) {
  const cluster::Cluster cluster = Machine("gb200-nvl72-ib-400g", 36);
  const auto found = [&](int version) {
    Environment environment;
    environment.version = version;
    const nccl::Channels channels =
        nccl::SearchChannels(cluster.spec(), Whole(cluster), environment);
    return std::pair{channels.graph, channels.bandwidth_GBps};
  };
  EXPECT_EQ(found(22602), (std::pair{15, 48.0}));
  EXPECT_EQ(found(22703), (std::pair{16, 45.0}));
  EXPECT_EQ(found(22705), (std::pair{16, 45.1}));
  EXPECT_EQ(found(22902), (std::pair{16, 45.1}));
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
  const Plan nvls =
      *Planner(cluster, environment).MakePlan(Collective::kAllReduce, 1 << 30, Whole(cluster));
  EXPECT_EQ(nvls.algorithm, Algorithm::kNvls);
  EXPECT_EQ(nvls.channels, 16);
  EXPECT_EQ(nvls.heads, 8);
  EXPECT_EQ(nvls.chunk_bytes, 128 << 10);
  environment.nvls = false;
  const Plan plan =
      *Planner(cluster, environment).MakePlan(Collective::kAllReduce, 1 << 30, Whole(cluster));
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
  const Plan plan = *Planner(cluster, {}).MakePlan(Collective::kAllReduce, 16384, Whole(cluster));
  EXPECT_EQ(plan.algorithm, Algorithm::kRing);
  EXPECT_EQ(plan.protocol, Protocol::kLL);
  EXPECT_EQ(plan.channels, 1);
  EXPECT_EQ(plan.threads, 256);  // 16384 < 512 * 64: halved once
  EXPECT_FALSE(plan.restricted());
}

// A library that is not NCCL, as the device says: RCCL's channels have 256 threads, so that as many
// bytes are cut among twice as many, and its kernels begin 20.5 us after their launch, not 6.6.
TEST(Planner, DevicesOfAnotherLibrary) {
  const cluster::Cluster amd = Machine("mi300x-ib-400g", 1);
  cluster::Spec spec = amd.spec();
  spec.device.collective_setup = 0;
  spec.device.collective_threads = 0;
  const cluster::Cluster nvidia = *cluster::Cluster::Build(spec);
  const auto plan = [](const cluster::Cluster& cluster, std::int64_t bytes) {
    return *Planner(cluster, {}).MakePlan(Collective::kAllReduce, bytes, Whole(cluster));
  };
  EXPECT_EQ(plan(amd, 256 << 10).threads, 256);
  EXPECT_EQ(plan(amd, 256 << 10).channels, 2 * plan(nvidia, 256 << 10).channels);
  const auto total = [&](const cluster::Cluster& cluster) {
    return Planner(cluster, {}).ClosedForm(plan(cluster, 8)).total();
  };
  EXPECT_EQ(total(amd) - total(nvidia), kMicrosecond * 139 / 10);
}

TEST(Planner, OneRankPerNodeHasOneNicsRings) {
  // One ring at 48, doubled to 2 x 24: 4 channels.
  const cluster::Cluster cluster = Machine("h100-ib-400g", 16);
  std::vector<DeviceId> members;
  for (std::size_t n = 0; n < 16; ++n) members.emplace_back(8 * n);
  const Plan plan = *Planner(cluster, {})
                         .MakePlan(Collective::kReduceScatter, 1 << 30, ShapeOf(cluster, members));
  EXPECT_EQ(plan.channels, 4);
  EXPECT_EQ(plan.algorithm, Algorithm::kRing);
}

TEST(Planner, PointToPointDoublesChannels) {
  // Two ranks on NVLink: pool 32, per peer 32, at least 16. 1 MiB: parts of 64 KiB: 16.
  const cluster::Cluster one = Machine("h100-ib-400g", 1);
  const GroupShape near{2, 1, 2, 2, true, 0};
  const Planner planner(one, {});
  EXPECT_EQ(planner.MakePlan(Collective::kSend, 1 << 20, near)->channels, 16);
  EXPECT_EQ(planner.MakePlan(Collective::kSend, 1 << 30, near)->channels, 32);
}

// Over NICs: 2 of the pool of 16 (a pair alone: 4), 1 from 2.20 on where 64 ranks would be 8 a
// channel; from 2.29.2 on 48 / 14 -> 4, and of 64 ranks 2: 8 at a time on 16 channels.
TEST(Planner, PointToPointOverNicsByRelease) {
  const cluster::Cluster cluster = Machine("h100-ib-400g", 8);
  const auto plan = [&](int version, const GroupShape& all) {
    Environment environment;
    environment.version = version;
    environment.version_stated = true;
    return *Planner(cluster, environment)
                .MakePlan(Collective::kSend, 1 << 26, {2, 2, 1, 1, true, 1}, all);
  };
  const GroupShape pair{2, 2, 1, 1, true, 1};
  for (const auto& [version, alone, everyone] :
       {std::tuple{21903, 2, 2}, {22203, 2, 1}, {22807, 2, 1}, {22902, 4, 2}}) {
    EXPECT_EQ(plan(version, pair).channels, alone) << version;
    EXPECT_EQ(plan(version, pair).chunk_bytes, 128 << 10);
    EXPECT_EQ(plan(version, Whole(cluster)).channels, everyone) << version;
  }
}

TEST(Planner, PointToPointLLByRelease) {
  const cluster::Cluster cluster = Machine("b200-ib-400g", 1);
  const GroupShape pair{2, 1, 2, 2, true, 0};
  const auto plan = [&](std::int64_t bytes, int version) {
    Environment environment;
    environment.version = version;
    environment.version_stated = true;
    const Plan p =
        *Planner(cluster, environment).MakePlan(Collective::kSend, bytes, pair, Whole(cluster));
    return std::pair{p.protocol, p.channels};
  };
  EXPECT_EQ(plan(8 << 10, 22807), (std::pair{Protocol::kLL, 1}));
  EXPECT_EQ(plan(32 << 10, 22807), (std::pair{Protocol::kLL, 4}));
  EXPECT_EQ(plan(512 << 10, 22807), (std::pair{Protocol::kLL, 4}));
  EXPECT_EQ(plan((512 << 10) + 16, 22807), (std::pair{Protocol::kSimple, 4}));
  for (const int version : {22105, 22902}) {
    EXPECT_EQ(plan(16 << 10, version), (std::pair{Protocol::kLL, 1}));
    EXPECT_EQ(plan(32 << 10, version), (std::pair{Protocol::kSimple, 1}));
    EXPECT_EQ(plan(256 << 10, version), (std::pair{Protocol::kSimple, 4}));
  }
}

TEST(Planner, ForcedChoiceThatDoesNotExistIsRefused) {
  const cluster::Cluster cluster = Machine("h100-ib-400g", 1);
  const auto plan = [&](const char* version) {
    const Environment tree = *ParseEnvironment(std::vector<std::pair<std::string, std::string>>{
        {"NCCL_ALGO", "Tree"}, {"NCCL_VERSION", version}});
    return Planner(cluster, tree).MakePlan(Collective::kAllGather, 1 << 20, Whole(cluster));
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
        .MakePlan(Collective::kAllGather, 64 << 10, ShapeOf(cluster, members))
        ->algorithm;
  };
  EXPECT_EQ(chosen(22304, true, one), Algorithm::kPat);
  EXPECT_EQ(chosen(22203, true, one), Algorithm::kRing);
  EXPECT_EQ(chosen(22304, false, one), Algorithm::kRing);
  EXPECT_EQ(chosen(22304, true, two), Algorithm::kRing);
}

// Two racks of 72 GB200, all-reduce of 32 MiB, over 64 NICs: rings of 45.1 GB/s, 16 of which fill
// 18 links of 40.1. Grace's NICs stand behind the CPU, where LL128 goes from 2.27.3 on. 2.27.7:
// Tree LL128 14 + 2 (71 * 1.25 + 8.5) = 208.5 us and 2^25 B at 0.92 * 721.6 * 120/128 * .9 / 2 =
// 280 GB/s (two Hopper's 73.4 a channel are more), 328; Tree Simple 8.4 + 2 (71 * 4 + 14) = 604,
// Tree LL 107.2 and 2^25 / (39 * .9 / 2) = 1,912.
TEST(Planner, LL128BehindGraceByRelease) {
  const cluster::Cluster cluster = Machine("gb200-nvl72-ib-400g", 36);
  const auto plan = [&](int version) {
    Environment environment;
    environment.version = version;
    environment.version_stated = true;
    return *Planner(cluster, environment)
                .MakePlan(Collective::kAllReduce, 32 << 20, Whole(cluster));
  };
  EXPECT_EQ(plan(22602).protocol, Protocol::kSimple);
  EXPECT_EQ(plan(22703).protocol, Protocol::kLL128);
  EXPECT_EQ(plan(22703).channels, 32);
  EXPECT_EQ(Planner(cluster, {}).environment().version, 22807);
}

// 2 x 8 B200, reduce-scatter of 64 MiB, an Intel host; 8 rings of 48 GB/s: Ring Simple 8.4 + 14
// * 3.4
// + 14 = 70 us and 2^26 B at 384 * 16/15 = 409.6 GB/s: 233.8. LL128 14 + 14 * 1.9 + 4 = 44.6;
// by 2.27 at 0.92 * 384 * 16/15 = 376.8: 222.7; by 2.29.2 34.6 a channel, 295.3: 271.9.
TEST(Planner, BlackwellsTablesByRelease) {
  const cluster::Cluster cluster = Machine("b200-ib-400g", 2);
  const auto protocol = [&](int version) {
    Environment environment;
    environment.version = version;
    environment.version_stated = true;
    return Planner(cluster, environment)
        .MakePlan(Collective::kReduceScatter, 64 << 20, Whole(cluster))
        ->protocol;
  };
  EXPECT_EQ(protocol(22703), Protocol::kLL128);
  EXPECT_EQ(protocol(22902), Protocol::kSimple);
}

// 2 x 8 H100, all-reduce, 2.22.3. 512 KiB: Tree LL128 14 + 2 (7 * 1.25 + 8.5) = 48.5 us and 2^19 B
// at 8 * 36.7 * .85 * .6 / 2 = 74.9 GB/s: 55.5; NVLSTree 25 + 2 * 14 = 53 and at 8 * 40 * 5/6 =
// 266.7 GB/s: 55.0. 256 KiB: 52.0 and 54.0. Trees of 0.85 are those that are not spread over two
// GPUs.
TEST(Planner, PlainTreesOnHopper) {
  const cluster::Cluster cluster = Machine("h100-ib-400g", 2);
  const auto algorithm = [&](std::int64_t bytes) {
    return Planner(cluster, {}).MakePlan(Collective::kAllReduce, bytes, Whole(cluster))->algorithm;
  };
  EXPECT_EQ(algorithm(512 << 10), Algorithm::kNvlsTree);
  EXPECT_EQ(algorithm(256 << 10), Algorithm::kTree);
}

// 2 x 8 H100, all-reduce of 8 MiB, 2.22.3. InfiniBand: NVLSTree 53 us and 2^23 B at 266.7 GB/s:
// 84.5. On EFA its plugin says 75 us a crossing, twice for Simple: 353 + 31.5 = 384.5; Tree LL128
// 14
// + 2 (7 * 1.25 + 8.5 + 75) = 198.5 and 249.6 * .9 / 2: 273.2; Ring LL128 14 + 28 * 1.9 + 2 (4 +
// 75) = 225.2 and 293.6 * 16/30: 278.8. It has NVLS's chunks at 512 KiB where NCCL's own are 128,
// as far as 8 * 16 heads' chunks go into 1 GiB.
TEST(Planner, EfaSaysItsLatency) {
  const auto plan = [](const char* preset, std::int64_t bytes, int version) {
    const cluster::Cluster cluster = Machine(preset, 2);
    Environment environment;
    environment.version = version;
    return *Planner(cluster, environment).MakePlan(Collective::kAllReduce, bytes, Whole(cluster));
  };
  EXPECT_EQ(plan("h100-ib-400g", 8 << 20, 22203).algorithm, Algorithm::kNvlsTree);
  EXPECT_EQ(plan("h100-efa-400g", 8 << 20, 22203).algorithm, Algorithm::kTree);
  EXPECT_EQ(plan("h100-efa-400g", 8 << 20, 22203).protocol, Protocol::kLL128);
  EXPECT_EQ(plan("h100-efa-400g", 16 << 20, 22203).algorithm, Algorithm::kRing);
  const std::int64_t large = std::int64_t{4} << 30;
  EXPECT_EQ(plan("h100-ib-400g", large, 22203).nccl_chunk_bytes, 128 << 10);
  EXPECT_EQ(plan("h100-efa-400g", large, 22203).algorithm, Algorithm::kNvlsTree);
  EXPECT_EQ(plan("h100-efa-400g", large, 22203).nccl_chunk_bytes, 512 << 10);
}

// AWS's plugin of June 2025 on doubles buffers and has chunks of 512 KiB for sends: taken from 2.27
// on, where nobody else says so.
TEST(Planner, EfaSetsBuffers) {
  const cluster::Cluster hosts = Machine("h100-efa-400g", 2);
  const auto chunk = [&](int version, std::int64_t buffer) {
    Environment environment;
    environment.version = version;
    environment.buffer_bytes = buffer;
    const Planner planner(hosts, environment);
    return planner
        .Shape(Collective::kAllReduce, Algorithm::kTree, Protocol::kSimple, 1 << 30, Whole(hosts))
        .chunk_bytes;
  };
  constexpr std::int64_t kUnset = 0;
  EXPECT_EQ(chunk(22603, kUnset), 512 << 10);
  EXPECT_EQ(chunk(22707, kUnset), 1 << 20);
  EXPECT_EQ(chunk(22707, 4 << 20), 512 << 10);
  EXPECT_EQ(chunk(22707, 2 << 20), 256 << 10);
}

// 8 B200, reduce-scatter of 1 GiB by 32 rings: 8 steps of 4 MiB a CTA, which at the 21.4 GB/s of
// two domains would be 1,568 us; inside one NCCL's cap is 35. 7/8 GiB over 900 GB/s of NVLink:
// 1,044.
TEST(Planner, BlackwellsChannelsInOneDomain) {
  const cluster::Cluster cluster = Machine("b200-ib-400g", 1);
  Environment environment;
  environment.nvls = false;
  const Planner planner(cluster, environment);
  const Plan plan = *planner.MakePlan(Collective::kReduceScatter, 1 << 30, Whole(cluster));
  EXPECT_EQ(plan.channels, 32);
  const double us = static_cast<double>(planner.ClosedForm(plan).total()) * 1e-6;
  EXPECT_GT(us, 1044);
  EXPECT_LT(us, 1568);
}

// 4 x 8 H100, all-reduce of 256 MiB. 2.26: NVLSTree 25 + 4 * 14 = 81 us and 2^28 B at 8 * 48/2 *
// 5/6 = 160 GB/s: 1,759; Ring Simple (8.4 + 56 * 3.4 + 6 * 14) 1.4 = 396 and 384 * 32/62 = 198.2:
// 1,751. 2.28: NVLSTree at 8 * min(40 * .85 * 7/8 * 2, 48, 45.5) * 32/62 = 187.9: 1,510.
TEST(Planner, NvlsTreeByRelease) {
  const cluster::Cluster cluster = Machine("h100-ib-400g", 4);
  const auto algorithm = [&](int version) {
    Environment environment;
    environment.version = version;
    return Planner(cluster, environment)
        .MakePlan(Collective::kAllReduce, 256 << 20, Whole(cluster))
        ->algorithm;
  };
  EXPECT_EQ(algorithm(22602), Algorithm::kRing);
  EXPECT_EQ(algorithm(22803), Algorithm::kNvlsTree);
}

// Two nodes of 8, depth 8, 16 channels. 1 GiB: 128 steps of 512 KiB a channel; 64 MiB: 8, halved
// until 32 of 128 KiB; 16 MiB: 8 of those, halved again to 16 of 64 KiB; 2 MiB: 4 of 32.
TEST(Planner, TreeChunksBySizeUpTo219) {
  const cluster::Cluster cluster = Machine("h100-ib-400g", 2);
  const auto chunk_KiB = [&](int version, std::int64_t bytes) {
    Environment environment;
    environment.version = version;
    return Planner(cluster, environment)
               .Shape(Collective::kAllReduce, Algorithm::kTree, Protocol::kSimple, bytes,
                      Whole(cluster), 16)
               .chunk_bytes >>
           10;
  };
  EXPECT_EQ(chunk_KiB(22000, 16 << 20), 512);
  EXPECT_EQ(chunk_KiB(21903, 1 << 30), 512);
  EXPECT_EQ(chunk_KiB(21903, 64 << 20), 128);
  EXPECT_EQ(chunk_KiB(21805, 16 << 20), 64);
  EXPECT_EQ(chunk_KiB(21212, 2 << 20), 32);
}

// What all threads read at once hides behind the latency of a line. 8 B200, reduce-scatter of 32
// KiB by LL: 4 KiB a block, 512 threads of 8 B, in two halves; 1.1 us a step, of which 0.1 hold the
// CTA, 0.35 are the links', and 2,048 B at 8.8 GB/s, 0.233, are work: 0.417 are left.
TEST(WhiteBox, FirstPassIsInTheLatencyOfAStep) {
  const cluster::Cluster cluster = Machine("b200-ib-400g", 1);
  const Plan plan = Planner(cluster, {})
                        .Shape(Collective::kReduceScatter, Algorithm::kRing, Protocol::kLL,
                               32 << 10, Whole(cluster));
  const model::WhiteBox box = model::MakeWhiteBox(plan, cluster.spec());
  EXPECT_NEAR(box.intra.post, 0.4173e6, 100);
}

// A rack of 72: what a channel has, cut among 32 heads in parts of 16 KiB (release 2.23 on). 24
// channels of 5 MiB: 213 KiB each, 14 heads; of 12 MiB: 512 KiB, all of them. Gathers have all.
TEST(Planner, NvlsHeadsOfLittle) {
  const cluster::Cluster rack = Machine("gb200-nvl72-ib-400g", 18);
  const GroupShape shape = Whole(rack);
  const auto heads = [&](int version, Collective collective, std::int64_t bytes) {
    Environment environment;
    environment.version = version;
    environment.version_stated = true;
    const Planner planner(rack, environment);
    return planner.Shape(collective, Algorithm::kNvls, Protocol::kSimple, bytes, shape).heads;
  };
  EXPECT_EQ(heads(22807, Collective::kAllReduce, 8), 1);
  EXPECT_EQ(heads(22807, Collective::kAllReduce, 5 << 20), 14);
  EXPECT_EQ(heads(22807, Collective::kAllReduce, 12 << 20), 32);
  EXPECT_EQ(heads(22807, Collective::kAllReduce, 1 << 30), 32);
  EXPECT_EQ(heads(22203, Collective::kAllReduce, 8), 32);
  EXPECT_EQ(heads(22807, Collective::kAllGather, 8), 32);
}

TEST(Planner, NvlsNeedsAMulticastingSwitch) {
  const auto algorithm = [](const char* preset, int nodes, Collective c) {
    const cluster::Cluster cluster = Machine(preset, nodes);
    return Planner(cluster, {}).MakePlan(c, 1 << 30, Whole(cluster))->algorithm;
  };
  EXPECT_EQ(algorithm("a100-80g-ib-200g", 1, Collective::kAllReduce), Algorithm::kRing);
  EXPECT_EQ(algorithm("h100-ib-400g", 1, Collective::kAllReduce), Algorithm::kNvls);
  EXPECT_EQ(algorithm("h100-ib-400g", 2, Collective::kAllReduce), Algorithm::kNvlsTree);
  EXPECT_EQ(algorithm("h100-ib-400g", 2, Collective::kAllGather), Algorithm::kRing);
  EXPECT_EQ(algorithm("h100-ib-400g", 1, Collective::kBroadcast), Algorithm::kRing);
}

// One slice over NVLink, H100, Simple, 64 KiB in one channel: set-up 6.6 us, send 1 us + 65536
// / 20.7 GB/s = 4.166, post 2.05, latency 0.35, wire 65536 * 155/128 / 450 GB/s = 0.176 (its head
// passes the second link in 0.0003), and the receiver's look at the flag 1: 14.342 us.
TEST(ClosedForm, OneSliceByHand) {
  const cluster::Cluster cluster = Machine("h100-ib-400g", 1);
  Environment environment;
  environment.max_p2p_channels = 1;
  environment.p2p_ll_threshold_bytes = 0;
  const Planner planner(cluster, environment);
  const Plan plan = *planner.MakePlan(Collective::kSend, 65536, {2, 1, 2, 2, true, 0});
  EXPECT_NEAR(static_cast<double>(planner.ClosedForm(plan).total()), 14.342e6, 0.002e6);
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
  const Plan empty = *planner.MakePlan(Collective::kAllReduce, 0, {8, 1, 8, 8, true, 0});
  EXPECT_EQ(planner.ClosedForm(empty).total(), RoundToPs(6.6e6));  // LL's launch
  const Plan alone = *planner.MakePlan(Collective::kAllReduce, 1 << 20, {1, 1, 1, 1, true, 0});
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
          const Cost cost = planner.ClosedForm(*planner.MakePlan(c, bytes, shape));
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
