// Which communicator a message goes through.
#include "orrery/engine/prices.h"

#include <gtest/gtest.h>

namespace orrery::engine {
namespace {

using graph::GroupSlot;
using graph::PeerSlot;

// A message of 64 MiB to the neighbouring host, in a group of 64 H100 over 8 hosts: NCCL 2.22 gives
// it one channel in a communicator of all, as Megatron's batches of messages use it, two in one of
// the pair, which context parallelism's have.
TEST(PriceCache, MessagesOfContextParallelismHaveACommunicatorOfTheirPair) {
  cluster::Spec spec = *cluster::FindPreset("h100-ib-400g");
  spec.nodes = 8;
  const cluster::Cluster cluster = *cluster::Cluster::Build(spec);
  collective::Environment environment;
  environment.version = 22203;
  const collective::Planner planner(cluster, environment);
  const auto compute = compute::CostModel::Create(spec.device, {});
  ASSERT_TRUE(compute.ok());
  PriceCache cache(*compute, planner);
  std::vector<DeviceId> members;
  for (std::size_t i = 0; i < cluster.devices(); ++i) members.emplace_back(i);
  const DeviceId pair[2] = {members[0], members[8]};
  View view;
  view.shape.fill(cache.ShapeId(collective::ShapeOf(cluster, members)));
  view.peer.fill(cache.ShapeId(collective::ShapeOf(cluster, pair)));
  const auto channels = [&](GroupSlot group, PeerSlot peer) {
    graph::Block block;
    graph::Comm send{.collective = graph::Collective::kSend, .group = group, .peer = peer};
    send.bytes.value = 64 << 20;
    block.comms.push_back(send);
    block.ops.push_back({graph::OpKind::kComm, graph::kNoEvent, 0, {}, {}});
    block.Seal();
    const auto price = cache.Find(block, view, {});
    EXPECT_TRUE(price.ok());
    return cache.plan((*price)->comms[0].plan).channels;
  };
  EXPECT_EQ(channels(GroupSlot::kPp, PeerSlot::kNext), 1);
  EXPECT_EQ(channels(GroupSlot::kCp, PeerSlot::kCpNext), 2);
}

// Blocks are known by what their operations launch: a kernel that none does counts nowhere, or the
// answer would depend on which of two equal blocks came first.
TEST(PriceCache, AKernelThatNothingLaunchesTakesNoTime) {
  const cluster::Cluster cluster = *cluster::Cluster::Build(*cluster::FindPreset("h100-ib-400g"));
  const collective::Planner planner(cluster, {});
  const auto compute = compute::CostModel::Create(cluster.spec().device, {});
  ASSERT_TRUE(compute.ok());
  graph::Block whole;
  whole.kernels.emplace_back(graph::Gemm{.m = 4096, .n = 4096, .k = 4096});
  whole.ops.push_back({graph::OpKind::kKernel, graph::kNoEvent, 0, {}, {}});
  graph::Block part = whole;
  part.kernels.emplace_back(graph::Gemm{.m = 8192, .n = 8192, .k = 8192});
  whole.Seal();
  part.Seal();
  ASSERT_EQ(whole.content_hash, part.content_hash);
  EXPECT_EQ(PriceCache(*compute, planner).KernelTime(part),
            PriceCache(*compute, planner).KernelTime(whole));
}

}  // namespace
}  // namespace orrery::engine
