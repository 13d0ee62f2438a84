// CollNet: when NCCL takes it, what of it crosses which links (collnet.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "orrery/cluster/salts.h"
#include "orrery/collective/algorithms/collnet.h"
#include "orrery/collective/ideal_executor_test.h"
#include "orrery/collective/lowering/flow_grain.h"

namespace orrery::collective {
namespace {

using cluster::LinkKind;
using graph::Collective;
using ::testing::HasSubstr;
using Variables = std::vector<std::pair<std::string, std::string>>;

cluster::Spec Machine(int nodes, int nodes_per_leaf = 32) {
  cluster::Spec spec = *cluster::FindPreset("h100-ib-400g");
  spec.nodes = nodes;
  spec.nodes_per_leaf = nodes_per_leaf;
  spec.sharp = true;
  return spec;
}

std::vector<DeviceId> Everyone(const cluster::Cluster& cluster) {
  std::vector<DeviceId> members;
  for (std::size_t d = 0; d < cluster.devices(); ++d) members.emplace_back(d);
  return members;
}

Environment Enabled(Variables more = {}) {
  more.emplace_back("NCCL_COLLNET_ENABLE", "1");
  return *ParseEnvironment(more);
}

// Links by kind, what the fullest of them carried.
std::map<LinkKind, std::int64_t> Fullest(const cluster::Cluster& cluster,
                                         const IdealExecutor& executor) {
  std::map<LinkKind, std::int64_t> most;
  for (std::size_t l = 0; l < cluster.links().size(); ++l) {
    std::int64_t& here = most[cluster.links()[l].kind];
    here = std::max(here, executor.bytes_sent(LinkId(l)));
  }
  return most;
}

// Off unless it is enabled and switches reduce; then a large all-reduce over four hosts of H100
// goes by NVLS: as fast as NVLSTree in NCCL's table, 43 us in place of 81. Without it 1 MiB goes by
// CollNetDirect: 2 · (3.7 + 7 · 0.4) + 31 = 44 us and 6 of bytes, a tree of LL128 65.
TEST(CollNet, NcclsChoice) {
  const cluster::Cluster cluster = *cluster::Cluster::Build(Machine(4));
  const auto shape = ShapeOf(cluster, Everyone(cluster));
  const auto plan = [&](const Environment& e, std::int64_t bytes = 1 << 30) {
    return *Planner(cluster, e).MakePlan(Collective::kAllReduce, bytes, shape);
  };
  const Plan off = plan({});
  EXPECT_FALSE(model::IsCollNet(off));
  const Plan on = plan(Enabled());
  EXPECT_TRUE(model::IsCollNet(on));
  EXPECT_EQ(on.algorithm, Algorithm::kNvls);
  EXPECT_EQ(plan(Enabled({{"NCCL_NVLS_ENABLE", "0"}}), 1 << 20).algorithm,
            Algorithm::kCollNetDirect);
  EXPECT_EQ(plan(Enabled({{"NCCL_ALGO", "CollNetChain"}})).algorithm, Algorithm::kCollNetChain);
  EXPECT_FALSE(model::IsCollNet(plan(Enabled({{"NCCL_COLLNET_NODE_THRESHOLD", "5"}}))));
}

// NCCL's expectation for 64 ranks, 1 MiB: CollNetDirect 2 · (3.7 + 7 · 0.4) + 31 = 44 us and 3 of
// bytes, a ring 63 steps. From 2.20 on; through both kinds of switches from 2.27 on, 43 us and for
// the bytes slower, by what NVLS is expected to reach. Where two GPUs share a NIC not all are
// heads, and NCCL has neither.
TEST(CollNet, GathersAndReduceScatters) {
  const Environment old = Enabled({{"NCCL_VERSION", "2.19.4"}});
  const Environment now = Enabled({{"NCCL_VERSION", "2.27.7"}});
  for (const Collective c : {Collective::kAllGather, Collective::kReduceScatter}) {
    const auto plan = [&](const Environment& e, int nics, std::int64_t bytes) {
      cluster::Spec spec = Machine(8);
      spec.nics_per_node = nics;
      const cluster::Cluster cluster = *cluster::Cluster::Build(spec);
      return *Planner(cluster, e).MakePlan(c, bytes, ShapeOf(cluster, Everyone(cluster)));
    };
    EXPECT_EQ(plan(Enabled(), 8, 1 << 20).algorithm, Algorithm::kCollNetDirect);
    EXPECT_TRUE(plan(Enabled(), 8, 1 << 20).instead_of.empty());
    EXPECT_EQ(plan(now, 8, 64 << 10).algorithm, Algorithm::kNvls);
    EXPECT_TRUE(model::IsCollNet(plan(now, 8, 64 << 10)));
    EXPECT_EQ(plan(now, 8, 1 << 30).algorithm, Algorithm::kRing);
    EXPECT_EQ(plan(old, 8, 1 << 20).algorithm, Algorithm::kRing);
    EXPECT_EQ(plan(Enabled(), 4, 1 << 20).algorithm, Algorithm::kRing);
  }
}

TEST(CollNet, WithoutSwitchesThatReduce) {
  cluster::Spec spec = Machine(2);
  spec.sharp = false;
  const cluster::Cluster cluster = *cluster::Cluster::Build(spec);
  const auto shape = ShapeOf(cluster, Everyone(cluster));
  const auto plan = [&](const Environment& e) {
    return Planner(cluster, e).MakePlan(Collective::kAllReduce, 1 << 30, shape);
  };
  EXPECT_THAT(std::string(plan(Enabled())->note), HasSubstr("cluster.sharp"));
  EXPECT_FALSE(model::IsCollNet(*plan(Enabled())));
  const auto named = plan(Enabled({{"NCCL_ALGO", "CollNetDirect"}, {"NCCL_VERSION", "2.27.7"}}));
  ASSERT_FALSE(named.ok());
  EXPECT_THAT(named.status().message(), HasSubstr("CollNet needs NCCL_COLLNET_ENABLE=1, cluster"));
  // Before 2.24 NCCL falls back.
  EXPECT_TRUE(plan(Enabled({{"NCCL_ALGO", "CollNetDirect"}})).ok());
}

TEST(CollNet, OnlyInfiniBandUnderSpinesReduces) {
  cluster::Spec spec = Machine(8);
  spec.fabric = cluster::Fabric::kRoce;
  EXPECT_THAT(cluster::Cluster::Build(spec).status().message(),
              HasSubstr("only InfiniBand switches reduce, the fabric is roce"));
  spec = Machine(8);
  spec.topology.name = "dragonfly";
  EXPECT_THAT(cluster::Cluster::Build(spec).status().message(), HasSubstr("sharp = true"));
}

// 4 hosts, 64 MiB. A NIC sends and receives its head's eighth once, whatever the number of hosts;
// over NVLink CollNetDirect moves 2 · 7/8 of all. Headers: 30 B (IB), 32 of 256 (NVLink) or so.
TEST(CollNet, EveryLinkCarriesItsPartOnce) {
  const cluster::Cluster cluster = *cluster::Cluster::Build(Machine(4));
  const auto members = Everyone(cluster);
  const Planner planner(cluster, {});
  const auto shape = ShapeOf(cluster, members);
  constexpr std::int64_t kBytes = 64 << 20;
  for (const Algorithm a :
       {Algorithm::kCollNetDirect, Algorithm::kCollNetChain, Algorithm::kNvls}) {
    const Plan plan = planner.Shape(Collective::kAllReduce, a, Protocol::kSimple, kBytes, shape);
    IdealExecutor executor(Schedule(plan, cluster, members), cluster, members);
    ASSERT_GT(executor.Run(), 0) << Name(a);
    auto most = Fullest(cluster, executor);
    const auto near = [&](LinkKind kind, double bytes) {
      EXPECT_NEAR(static_cast<double>(most[kind]), bytes, 0.03 * bytes) << Name(a);
    };
    near(LinkKind::kNicUp, kBytes / 8.0);
    near(LinkKind::kNicDown, kBytes / 8.0);
    const double header = 1.0 + static_cast<double>(cluster.spec().nvlink_header_bytes) /
                                    cluster.spec().nvlink_packet_bytes;
    if (a == Algorithm::kNvls) continue;  // what the switch adds: nvls.h
    near(LinkKind::kNvlink, kBytes * 2 * 7.0 / 8 * header);
    EXPECT_EQ(planner.ClosedForm(plan).member.nic_out / 1000, most[LinkKind::kNicUp] / 1000);
  }
}

// 4 hosts, 64 MiB. All of a rail, an eighth, comes into each NIC of a gather and a quarter of it
// goes out; the other way round of a reduce-scatter. Over NVLink CollNetDirect moves 7/8 of all.
TEST(CollNet, GathersGoOutOncePerDomain) {
  const cluster::Cluster cluster = *cluster::Cluster::Build(Machine(4));
  const auto members = Everyone(cluster);
  const Planner planner(cluster, {});
  const auto shape = ShapeOf(cluster, members);
  constexpr double kBytes = 64 << 20;
  for (const Algorithm a : {Algorithm::kCollNetDirect, Algorithm::kNvls}) {
    for (const Collective c : {Collective::kAllGather, Collective::kReduceScatter}) {
      const bool gathers = c == Collective::kAllGather;
      const Plan plan = planner.Shape(c, a, Protocol::kSimple, 64 << 20, shape);
      IdealExecutor executor(Schedule(plan, cluster, members), cluster, members);
      ASSERT_GT(executor.Run(), 0) << Name(a);
      auto most = Fullest(cluster, executor);
      const double own = kBytes / 32, all = kBytes / 8;
      const auto near = [&](double is, double bytes) {
        EXPECT_NEAR(is, bytes, 0.03 * bytes) << Name(a) << graph::Name(c);
      };
      const PortBytes ports = planner.ClosedForm(plan).member;
      near(static_cast<double>(most[LinkKind::kNicUp]), gathers ? own : all);
      near(static_cast<double>(most[LinkKind::kNicDown]), gathers ? all : own);
      near(static_cast<double>(ports.nic_out), gathers ? own : all);
      near(static_cast<double>(ports.nic_in), gathers ? all : own);
      // Fluids carry as much.
      std::map<std::uint32_t, std::int64_t> up, down;
      const FlowGrain grain = MakeFlowGrain(plan, cluster, members);
      for (const auto& edge : grain.edges) {
        if (edge.salt == cluster::kIntoLeaf || edge.salt == cluster::kIntoTop)
          up[edge.from] += edge.wire_bytes;
        if (edge.salt == cluster::kOutOfLeaf || edge.salt == cluster::kOutOfTop)
          down[edge.to] += edge.wire_bytes;
      }
      EXPECT_EQ(up.size(), members.size());
      for (const auto& [member, bytes] : up) near(static_cast<double>(bytes), gathers ? own : all);
      for (const auto& [member, bytes] : down)
        near(static_cast<double>(bytes), gathers ? all : own);
      if (a == Algorithm::kNvls) continue;  // what the switch adds: nvls.h
      const double header = 1.0 + static_cast<double>(cluster.spec().nvlink_header_bytes) /
                                      cluster.spec().nvlink_packet_bytes;
      near(static_cast<double>(most[LinkKind::kNvlink]), kBytes * 7.0 / 8 * header);
      near(static_cast<double>(ports.nvlink_out), kBytes * 7.0 / 8 * header);
    }
  }
}

// Parts of domains cover every chunk of a rail once, whatever the sizes.
TEST(CollNet, TurnsCoverTheRail) {
  const cluster::Cluster cluster = *cluster::Cluster::Build(Machine(5));
  const auto shape = ShapeOf(cluster, Everyone(cluster));
  for (const std::int64_t bytes : {1000, 1 << 20, (1 << 24) + 12345}) {
    const Plan plan = Planner(cluster, {})
                          .Shape(Collective::kAllGather, Algorithm::kCollNetDirect,
                                 Protocol::kSimple, bytes, shape);
    const model::Pieces pieces = model::Cut(plan);
    std::int64_t total = 0;
    for (std::int64_t r = 0; r <= pieces.rounds; ++r) {
      for (int c = 0; c < plan.channels; ++c) {
        const collnet::OnRail chunk = collnet::ChunkOnRail(plan, pieces, c, r);
        std::int64_t sum = 0;
        for (std::int64_t d = 0; d < 5; ++d) {
          const bool between = d >= chunk.first() && d <= chunk.last();
          EXPECT_EQ(chunk.Of(d) > 0, between && chunk.size > 0) << d;
          sum += chunk.Of(d);
        }
        EXPECT_EQ(sum, chunk.size);
        total += sum;
      }
    }
    EXPECT_GE(total, bytes / 8);
    EXPECT_LE(total, bytes / 8 + 16 * plan.channels);
  }
}

// Two hosts under each of four leaves: a leaf sends one sum up, not one a host, and all leaves of a
// rail meet at one spine. The first domain's leaf holds the sum itself.
TEST(CollNet, ALeafSendsOneSum) {
  const cluster::Cluster cluster = *cluster::Cluster::Build(Machine(8, 2));
  const auto members = Everyone(cluster);
  const Planner planner(cluster, {});
  const auto shape = ShapeOf(cluster, members);
  const Plan plan = planner.Shape(Collective::kAllReduce, Algorithm::kCollNetDirect,
                                  Protocol::kSimple, 8 << 20, shape);
  const Schedule schedule(plan, cluster, members);
  IdealExecutor executor(schedule, cluster, members);
  ASSERT_GT(executor.Run(), 0);
  std::map<std::uint32_t, int> spines;  // by leaf
  std::int64_t up = 0, nic = 0;
  for (std::size_t l = 0; l < cluster.links().size(); ++l) {
    const cluster::Link& link = cluster.links()[l];
    const std::int64_t bytes = executor.bytes_sent(LinkId(l));
    if (link.kind == LinkKind::kNicUp) nic = std::max(nic, bytes);
    if (link.kind != LinkKind::kLeafSpine || bytes == 0 || link.from > link.to) continue;
    ++spines[link.from];
    up = std::max(up, bytes);
  }
  EXPECT_EQ(up, nic);
  EXPECT_EQ(spines.size(), 3u * 8);  // rails of all leaves but the first
  for (const auto& [leaf, count] : spines) EXPECT_EQ(count, 1) << leaf;
  // What comes down goes the same cables backwards.
  std::vector<LinkId> into, out;
  cluster.Route(DeviceId(16), DeviceId(0), cluster::kIntoTop, &into);
  cluster.Route(DeviceId(0), DeviceId(16), cluster::kOutOfTop, &out);
  ASSERT_EQ(into.size(), 3u);
  ASSERT_EQ(out.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(cluster.links()[into[i].index()].from, cluster.links()[out[2 - i].index()].to);
    EXPECT_EQ(cluster.links()[into[i].index()].to, cluster.links()[out[2 - i].index()].from);
  }
}

// No two connections of a schedule are one to an engine that keys them by channel, ends and salt:
// a scatter to a head that is a GPU beside another head, and what that one hands on, would be.
TEST(CollNet, ConnectionsAreDistinct) {
  const cluster::Cluster cluster = *cluster::Cluster::Build(Machine(3));
  const auto members = Everyone(cluster);
  const Planner planner(cluster, {});
  const auto shape = ShapeOf(cluster, members);
  for (const Algorithm a :
       {Algorithm::kCollNetDirect, Algorithm::kCollNetChain, Algorithm::kNvls}) {
    const Plan plan = planner.Shape(Collective::kAllReduce, a, Protocol::kSimple, 1 << 24, shape);
    const Schedule schedule(plan, cluster, members);
    std::map<std::tuple<int, std::uint32_t, std::uint32_t, std::uint64_t>, int> seen;
    for (const Connection& c : schedule.connections()) {
      EXPECT_EQ(++seen[std::make_tuple(c.channel, c.from, c.to, c.salt)], 1) << Name(a);
    }
  }
}

// Two GPUs a NIC: those without one write to the heads, too. Not as exact.
TEST(CollNet, FewerHeadsThanGpus) {
  cluster::Spec spec = Machine(2);
  spec.nics_per_node = 4;
  const cluster::Cluster cluster = *cluster::Cluster::Build(spec);
  const auto members = Everyone(cluster);
  const Planner planner(cluster, {});
  const auto shape = ShapeOf(cluster, members);
  for (const std::int64_t bytes : {1 << 16, 1 << 20, 1 << 24, 1 << 27}) {
    const Plan plan = planner.Shape(Collective::kAllReduce, Algorithm::kCollNetDirect,
                                    Protocol::kSimple, bytes, shape);
    EXPECT_EQ(plan.heads, 4);
    IdealExecutor executor(Schedule(plan, cluster, members), cluster, members);
    const auto run = static_cast<double>(executor.RunPeriodic());
    EXPECT_NEAR(static_cast<double>(planner.ClosedForm(plan).total()) / run, 1, 0.065) << bytes;
  }
}

}  // namespace
}  // namespace orrery::collective
