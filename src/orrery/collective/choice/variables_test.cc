// What NCCL's environment variables change in plans, prices and steps.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "orrery/collective/algorithms/p2p_rounds.h"
#include "orrery/collective/ideal_executor_test.h"
#include "orrery/collective/lowering/flow_grain.h"

namespace orrery::collective {
namespace {

using graph::Collective;
using Variables = std::vector<std::pair<std::string, std::string>>;

cluster::Cluster Machine(int nodes, bool rails = true) {
  cluster::Spec spec = *cluster::FindPreset("h100-ib-400g");
  spec.nodes = nodes;
  spec.rail_optimised = rails;
  return *cluster::Cluster::Build(spec);
}

std::vector<DeviceId> Members(int nodes, int ranks) {
  std::vector<DeviceId> members;
  for (int n = 0; n < nodes; ++n) {
    for (int i = 0; i < ranks; ++i) members.emplace_back(static_cast<std::size_t>(n * 8 + i));
  }
  return members;
}

// Without PXN a message leaves by its sender's own NIC: NVLink carries what stays in the domain
// alone, and the two readings agree as with it.
TEST(Variables, PxnDisable) {
  const cluster::Cluster cluster = Machine(4, false);  // between rails spines would be met
  const auto members = Members(4, 4);
  const auto shape = ShapeOf(cluster, members);
  const Environment off = *ParseEnvironment(Variables{{"NCCL_PXN_DISABLE", "1"}});
  const Planner planner(cluster, off), with(cluster, {});
  for (std::int64_t bytes = 1 << 12; bytes <= 1 << 28; bytes *= 16) {
    const Plan plan = *planner.MakePlan(Collective::kAllToAll, bytes, shape);
    IdealExecutor executor(Schedule(plan, cluster, members), cluster, members);
    const auto run = static_cast<double>(executor.Run());
    EXPECT_NEAR(static_cast<double>(planner.ClosedForm(plan).total()) / run, 1, 0.04) << bytes;
    const std::int64_t local = plan.bytes / 16 * 3;
    EXPECT_LT(executor.bytes_sent(cluster.nvlink_out(members[0])), local + local / 4 + 512);
  }
  const Plan plan = *planner.MakePlan(Collective::kAllToAll, 1 << 28, shape);
  const Plan pxn = *with.MakePlan(Collective::kAllToAll, 1 << 28, shape);
  // 3/16 of all, and with it 3/4 of the other 12/16 besides.
  EXPECT_GT(with.ClosedForm(pxn).member.nvlink_out, 3 * planner.ClosedForm(plan).member.nvlink_out);
}

TEST(Variables, SendsAndReceives) {
  const cluster::Cluster cluster = Machine(2);
  const GroupShape far{2, 2, 1, 1, true, 1};
  const auto plan = [&](const Variables& v) {
    Environment environment = *ParseEnvironment(v);
    environment.version = 22902;
    return *Planner(cluster, environment).MakePlan(Collective::kSend, 1 << 26, far);
  };
  EXPECT_EQ(plan({}).channels, 4);  // 400 Gb/s: 50 GB/s over 14, rounded up
  EXPECT_EQ(plan({{"NCCL_P2P_PER_CHANNEL_NET_BW", "30"}}).channels, 2);
  EXPECT_EQ(plan({}).chunk_bytes, 128 << 10);
  EXPECT_EQ(plan({{"NCCL_CHUNK_SIZE", "65536"}}).chunk_bytes, 64 << 10);
}

TEST(Variables, ScheduleGroups) {
  const cluster::Cluster cluster = Machine(2);
  const auto shape = ShapeOf(cluster, Members(2, 8));
  const Environment four = *ParseEnvironment(Variables{{"NCCL_P2P_SCHEDULE_GROUP_SIZE", "4"}});
  const Plan plan = *Planner(cluster, four).MakePlan(Collective::kAllToAll, 1 << 20, shape);
  EXPECT_EQ(p2p::Rounds(plan).group, 4);
  EXPECT_EQ(p2p::Rounds(plan).groups(), 4);
}

// Ring Simple of 512 threads: 64 B a thread fill 16 channels from 512 KiB on, 128 B from 1 MiB.
TEST(Variables, ThreadThresholds) {
  const cluster::Cluster cluster = Machine(2);
  const auto shape = ShapeOf(cluster, Members(2, 8));
  const auto channels = [&](const Variables& v) {
    return Planner(cluster, *ParseEnvironment(v))
        .Shape(Collective::kAllReduce, Algorithm::kRing, Protocol::kSimple, 512 << 10, shape)
        .channels;
  };
  EXPECT_EQ(channels({}), 16);
  EXPECT_EQ(channels({{"NCCL_THREAD_THRESHOLDS", "-2 -2 -2 -2 -2 128"}}), 8);
  EXPECT_EQ(channels({{"NCCL_THREAD_THRESHOLDS", "8 8 128"}}), 16);  // trees
}

TEST(Variables, NvlsTreeChunks) {
  const cluster::Cluster cluster = Machine(4);
  const auto shape = ShapeOf(cluster, Members(4, 8));
  const auto chunk = [&](const Variables& v) {
    return Planner(cluster, *ParseEnvironment(v))
        .Shape(Collective::kAllReduce, Algorithm::kNvlsTree, Protocol::kSimple, 1 << 30, shape)
        .chunk_bytes;
  };
  EXPECT_EQ(chunk({}), 64 << 10);  // four domains
  EXPECT_EQ(chunk({{"NCCL_NVLSTREE_MAX_CHUNKSIZE", "131072"}}), 128 << 10);
}

// Over adaptive routes a queue pair waits for the acknowledgement of each message of more than 8
// KiB: 16 ranks send 15 chunks in two messages, and both channels of an A100's NIC wait at once.
TEST(Variables, AdaptiveRouting) {
  cluster::Spec spec = *cluster::FindPreset("a100-80g-ib-200g");
  spec.nodes = 2;
  const cluster::Cluster cluster = *cluster::Cluster::Build(spec);
  const GroupShape shape = ShapeOf(cluster, Members(2, 8));
  const auto us = [&](const Variables& v) {
    const Planner planner(cluster, *ParseEnvironment(v));
    const Plan plan = planner.Shape(Collective::kReduceScatter, Algorithm::kRing, Protocol::kSimple,
                                    256 << 20, shape);
    return static_cast<double>(planner.ClosedForm(plan).total()) * 1e-6;
  };
  const double off = us({{"NCCL_IB_ADAPTIVE_ROUTING", "0"}});
  EXPECT_NEAR(us({}), off + 30 * 3.2, 10);  // there and back over one leaf: 1.6 us each
  EXPECT_DOUBLE_EQ(us({{"NCCL_IB_QPS_PER_CONNECTION", "2"}}), off);
  EXPECT_DOUBLE_EQ(us({{"NCCL_IB_AR_THRESHOLD", "1000000"}}), off);
  // Fluids move the bytes alone.
  const auto moved = [&](const Variables& v) {
    const Plan plan = Planner(cluster, *ParseEnvironment(v))
                          .Shape(Collective::kReduceScatter, Algorithm::kRing, Protocol::kSimple,
                                 256 << 20, shape);
    std::int64_t bytes = 0;
    for (const ChannelEdge& edge : MakeFlowGrain(plan, cluster, Members(2, 8)).edges) {
      bytes += edge.wire_bytes;
    }
    return bytes;
  };
  EXPECT_EQ(moved({}), moved({{"NCCL_IB_ADAPTIVE_ROUTING", "0"}}));
}

}  // namespace
}  // namespace orrery::collective
