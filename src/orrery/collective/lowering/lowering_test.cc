#include "orrery/collective/lowering/lowering.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "orrery/collective/choice/ring_order.h"
#include "orrery/collective/ideal_executor_test.h"

namespace orrery::collective {
namespace {

using graph::Collective;

TEST(BinaryTree, SevenAndEightNodesByHand) {
  // 8 nodes: 0 over 4, 4 over 2 and 6, those over the odd ones.
  const int parent8[] = {-1, 2, 4, 2, 0, 6, 4, 6};
  for (int n = 0; n < 8; ++n) EXPECT_EQ(BinaryTree(n, 8).parent, parent8[n]) << n;
  EXPECT_EQ(BinaryTree(4, 8).child[0], 2);
  EXPECT_EQ(BinaryTree(4, 8).child[1], 6);
  EXPECT_EQ(BinaryTree(6, 7).child[1], -1);      // 7 does not exist
  EXPECT_EQ(SecondBinaryTree(7, 8).parent, -1);  // mirrored
  EXPECT_EQ(SecondBinaryTree(0, 8).parent, 1);
  EXPECT_EQ(SecondBinaryTree(1, 7).parent, -1);  // shifted by one
}

TEST(BinaryTree, ParentsAndChildrenAgreeAndInnerNodesDiffer) {
  for (int count = 1; count <= 70; ++count) {
    int inner_twice = 0;
    for (int n = 0; n < count; ++n) {
      for (const auto tree : {&BinaryTree, &SecondBinaryTree}) {
        const BinaryNode node = tree(n, count);
        for (int child : node.child) {
          if (child >= 0) {
            EXPECT_EQ(tree(child, count).parent, n) << count;
          }
        }
        if (node.parent < 0) continue;
        const BinaryNode parent = tree(node.parent, count);
        EXPECT_TRUE(parent.child[0] == n || parent.child[1] == n) << count << " " << n;
      }
      inner_twice += BinaryTree(n, count).child[1] >= 0 && SecondBinaryTree(n, count).child[1] >= 0;
    }
    EXPECT_EQ(inner_twice, 0) << count;
  }
}

TEST(RingOrder, CrossingsStayOnTheirRail) {
  cluster::Spec spec = *cluster::FindPreset("h100-ib-400g");
  spec.nodes = 4;
  const cluster::Cluster cluster = *cluster::Cluster::Build(spec);
  std::vector<DeviceId> members;
  for (std::size_t i = 0; i < 32; ++i) members.emplace_back(i);
  const RingOrder layout(cluster, members);
  std::vector<std::uint32_t> order;
  std::vector<LinkId> path;
  for (int channel = 0; channel < 16; ++channel) {
    layout.Ring(channel, &order);
    EXPECT_EQ(std::set<std::uint32_t>(order.begin(), order.end()).size(), 32u);
    for (std::size_t i = 0; i < 32; ++i) {
      cluster.Route(members[order[i]], members[order[(i + 1) % 32]], 0, &path);
      EXPECT_TRUE(path.size() == 2 || path.size() == 4) << "a crossing by a spine";
    }
  }
}

// 8 B200 gather 1 GiB on 32 channels in two rounds of 2 MiB chunks, two slices each. In the first
// round a slice of 1 MiB takes 32 * 1 MiB * 160 / 128 / 900 GB/s = 46.6 us to send beside the
// barrier of 1 us; what only receives, and all of the second round, goes at the CTA's own rate of
// 35 GB/s.
TEST(Lowering, SendsOfARingsFirstRoundWaitForTheLinks) {
  cluster::Spec spec = *cluster::FindPreset("b200-ib-400g");
  spec.nodes = 1;
  spec.nvlink_efficiency = 1;
  const cluster::Cluster cluster = *cluster::Cluster::Build(spec);
  std::vector<DeviceId> members;
  for (std::size_t i = 0; i < 8; ++i) members.emplace_back(i);
  const Planner planner(cluster, {});
  const Plan plan = planner.Shape(Collective::kAllGather, Algorithm::kRing, Protocol::kSimple,
                                  1 << 30, ShapeOf(cluster, members));
  ASSERT_EQ(plan.channels, 32);
  const Schedule schedule(plan, cluster, members);
  const SimTime shared = 47'603'378;  // ps
  for (std::uint64_t step = 0; step < 14; ++step) {
    EXPECT_NEAR(static_cast<double>(schedule.At(3, 5, step).work), shared, 2) << step;
  }
  const SimTime own = schedule.At(3, 5, 14).work;
  EXPECT_NEAR(static_cast<double>(own), 1e6 + 1048576 / 0.035, 0.03e6);
  for (std::uint64_t step = 15; step < 32; ++step) EXPECT_EQ(schedule.At(3, 5, step).work, own);
}

// What a run puts on the links is what the closed form says a member sends.
TEST(Lowering, BytesAreThoseOfTheClosedForm) {
  Environment environment;
  environment.adaptive_routing = 0;  // else rings' messages take more of a NIC than their bytes
  for (int nodes : {1, 2, 4}) {
    cluster::Spec spec = *cluster::FindPreset("h100-ib-400g");
    spec.nodes = nodes;
    const cluster::Cluster cluster = *cluster::Cluster::Build(spec);
    std::vector<DeviceId> members;
    for (std::size_t i = 0; i < cluster.devices(); ++i) members.emplace_back(i);
    const Planner planner(cluster, environment);
    const GroupShape shape = ShapeOf(cluster, members);
    for (const auto& [collective, algorithm] : {std::pair{Collective::kAllReduce, Algorithm::kRing},
                                                {Collective::kAllReduce, Algorithm::kTree},
                                                {Collective::kAllGather, Algorithm::kRing},
                                                {Collective::kBroadcast, Algorithm::kRing}}) {
      for (Protocol protocol : {Protocol::kLL, Protocol::kLL128, Protocol::kSimple}) {
        const Plan plan = planner.Shape(collective, algorithm, protocol, 1 << 22, shape);
        IdealExecutor executor(Schedule(plan, cluster, members), cluster, members);
        ASSERT_GT(executor.Run(), 0);
        double nvlink = 0, nic = 0;
        for (DeviceId d : members) {
          nvlink += static_cast<double>(executor.bytes_sent(cluster.nvlink_out(d)));
        }
        for (std::size_t l = 0; l < cluster.links().size(); ++l) {
          if (cluster.links()[l].kind != cluster::LinkKind::kNicUp) continue;
          nic += static_cast<double>(executor.bytes_sent(LinkId(l)));
        }
        // Shares and chunks are rounded up to 16 bytes, messages to whole lines and packets; the
        // roots of a few of a broadcast's rings stand where they cross once less.
        const double slack = collective == Collective::kBroadcast ? 0.08 : 0.02;
        const PortBytes member = planner.ClosedForm(plan).member;
        const auto ranks = static_cast<double>(shape.ranks);
        EXPECT_NEAR(nvlink / ranks, static_cast<double>(member.nvlink_out), slack * nvlink / ranks);
        EXPECT_NEAR(nic / ranks, static_cast<double>(member.nic_out), slack * nic / ranks + 1);
      }
    }
  }
}

// The half of a head's CTA that sends up has all of it until the first chunk comes down: one edge
// up, one down, one turn between two nodes.
TEST(Lowering, HeadsShareTheirCtaWhileBothWaysAreBusy) {
  cluster::Spec spec = *cluster::FindPreset("h100-ib-400g");
  spec.nodes = 2;
  const cluster::Cluster cluster = *cluster::Cluster::Build(spec);
  std::vector<DeviceId> members;
  for (std::size_t i = 0; i < cluster.devices(); ++i) members.emplace_back(i);
  const GroupShape shape = ShapeOf(cluster, members);
  const auto share = [&](std::int64_t chunks) {
    return model::TreeHeadShare(Planner(cluster, {})
                                    .Shape(Collective::kAllReduce, Algorithm::kTree,
                                           Protocol::kSimple, chunks * (8 << 20),
                                           shape));  // 16 channels of 512 KiB
  };
  EXPECT_DOUBLE_EQ(share(1), 1);
  EXPECT_DOUBLE_EQ(share(3), 1);
  EXPECT_DOUBLE_EQ(share(6), 1 + 7.0 / 18);
  EXPECT_NEAR(share(1024), 16.0 / 9, 0.01);
}

// A100's NVLinks are busy for a third more bytes of LL128 than messages have, NICs and Hopper's
// NVLinks are not.
TEST(Lowering, LL128IsDilutedOverA100sNvlinks) {
  for (const char* preset : {"a100-80g-roce-200g", "h100-roce-400g"}) {
    cluster::Spec spec = *cluster::FindPreset(preset);
    spec.nodes = 2;
    const cluster::Cluster cluster = *cluster::Cluster::Build(spec);
    std::vector<DeviceId> members;
    for (std::size_t i = 0; i < cluster.devices(); ++i) members.emplace_back(i);
    const Plan plan =
        Planner(cluster, {})
            .Shape(Collective::kAllReduce, Algorithm::kRing, Protocol::kLL128, 16 * 16 * 12000,
                   ShapeOf(cluster, members));  // 16 channels: chunks of 12,000 B, slices of 9,000
    const Schedule schedule(plan, cluster, members);
    const std::int64_t near = spec.device.arch < cluster::Arch::kHopper ? 12800 : 9600;
    std::set<std::int64_t> inside, between;
    for (std::uint32_t member = 0; member < members.size(); ++member) {
      const Step step = schedule.At(member, 0, 0);
      const Connection& c = schedule.connections()[static_cast<std::size_t>(step.send_connection)];
      (c.from / 8 == c.to / 8 ? inside : between).insert(step.bytes);
    }
    EXPECT_EQ(inside, std::set<std::int64_t>{near}) << preset;
    EXPECT_EQ(between, std::set<std::int64_t>{9600}) << preset;
  }
}

// A chunk of 4 KiB fills a CTA's 512 lines. One of 16 B (the least; two halves of a pass) is sooner
// through each step by 4,064 B of data in 8,128 B of lines, written and polled at 108.8 GB/s.
TEST(Lowering, FewLinesOfLLPassSooner) {
  cluster::Spec spec = *cluster::FindPreset("h100-ib-400g");
  spec.nodes = 1;
  const cluster::Cluster cluster = *cluster::Cluster::Build(spec);
  std::vector<DeviceId> members;
  for (std::size_t i = 0; i < cluster.devices(); ++i) members.emplace_back(i);
  Environment environment;
  environment.max_channels = 1;
  // A step's post and the work on its lines that is part of NCCL's latency.
  const auto step = [&](std::int64_t chunk, std::int64_t pass) {
    const Plan plan = Planner(cluster, environment)
                          .Shape(Collective::kReduceScatter, Algorithm::kRing, Protocol::kLL,
                                 8 * chunk, ShapeOf(cluster, members));
    const model::WhiteBox box = model::MakeWhiteBox(plan, cluster.spec());
    return box.inter.post + static_cast<double>(pass) * box.per_byte * model::kStreams;
  };
  EXPECT_NEAR(step(4096, 2048) - step(16, 16), 4 * 4064 / 108.8e9 * 1e12, 1);
}

TEST(Lowering, StepsOfARingByHand) {
  // 2 ranks, all-reduce of 64 KiB, Simple, one channel: chunk 32 KiB = one slice (the least is 32
  // KiB); send, receive and send, receive.
  cluster::Spec spec = *cluster::FindPreset("h100-ib-400g");
  const cluster::Cluster cluster = *cluster::Cluster::Build(spec);
  const DeviceId members[] = {DeviceId(0), DeviceId(1)};
  Environment environment;
  environment.max_channels = 1;
  const Planner planner(cluster, environment);
  const Plan plan = planner.Shape(Collective::kAllReduce, Algorithm::kRing, Protocol::kSimple,
                                  65536, ShapeOf(cluster, members));
  const Schedule schedule(plan, cluster, members);
  ASSERT_EQ(schedule.lanes(), 1);
  ASSERT_EQ(schedule.connections().size(), 2u);
  const Step first = schedule.At(0, 0, 0), second = schedule.At(0, 0, 1),
             third = schedule.At(0, 0, 2);
  EXPECT_EQ(first.recv_connection, -1);
  EXPECT_EQ(first.bytes, 32768);
  EXPECT_EQ(first.work, kMicrosecond + RoundToPs(32768 / 20.7e9 * 1e12));
  EXPECT_GE(second.recv_connection, 0);
  EXPECT_EQ(second.send_connection, first.send_connection);
  EXPECT_EQ(third.send_connection, -1);
  EXPECT_EQ(third.recv_connection, second.recv_connection);
  EXPECT_TRUE(schedule.At(0, 0, 3).done);
}

TEST(Lowering, UnevenGroupsEnd) {
  cluster::Spec spec = *cluster::FindPreset("a100-80g-roce-200g");
  spec.nodes = 5;
  const cluster::Cluster cluster = *cluster::Cluster::Build(spec);
  std::vector<DeviceId> members;
  for (std::size_t i : {0, 1, 2, 8, 16, 17, 18, 19, 20, 33, 39}) members.emplace_back(i);
  const Planner planner(cluster, {});
  const GroupShape shape = ShapeOf(cluster, members);
  for (Algorithm algorithm : {Algorithm::kRing, Algorithm::kTree}) {
    for (std::int64_t bytes : {1, 1000, 1 << 20, 1 << 25}) {
      const Plan plan =
          planner.Shape(Collective::kAllReduce, algorithm, Protocol::kSimple, bytes, shape);
      IdealExecutor executor(Schedule(plan, cluster, members), cluster, members);
      EXPECT_GT(executor.Run(), 0) << Name(algorithm) << " " << bytes;
    }
  }
}

}  // namespace
}  // namespace orrery::collective
