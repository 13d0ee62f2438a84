// NCCL's socket transport: what its connections move, and what NCCL does not choose over it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "orrery/collective/collective.h"

namespace orrery::collective {
namespace {

using graph::Collective;
using Variables = std::vector<std::pair<std::string, std::string>>;

// GB/s of an all-reduce's bus over two hosts of one GPU each.
double BusGBps(const cluster::Spec& spec, const Variables& variables, std::int64_t bytes) {
  const cluster::Cluster cluster = *cluster::Cluster::Build(spec);
  const Planner planner(cluster, *ParseEnvironment(variables));
  const DeviceId members[] = {DeviceId(std::size_t{0}), DeviceId(std::size_t{8})};
  const GroupShape shape = ShapeOf(cluster, members);
  const Plan plan = *planner.MakePlan(Collective::kAllReduce, bytes, shape);
  return static_cast<double>(bytes) / static_cast<double>(planner.ClosedForm(plan).total()) * 1e3;
}

cluster::Spec Tcp() {
  cluster::Spec spec = *cluster::FindPreset("a100-40g-tcp-100g");
  spec.nodes = 2;
  return spec;
}

// NVIDIA/nccl issue 450: V100, 100 Gb/s, all-reduce over TCP reached 4 to 6 GB/s with four channels
// of one socket; issue 209: 32 Gb/s, 2.06 GB/s with one ring and 3.75 with eight.
TEST(Tcp, AChannelMovesWhatItsSocketsDo) {
  cluster::Spec spec = Tcp();
  const std::int64_t bytes = 1 << 30;
  const double one =
      BusGBps(spec, {{"NCCL_MAX_NCHANNELS", "1"}, {"NCCL_MIN_NCHANNELS", "1"}}, bytes);
  EXPECT_GT(one, 1.2);
  EXPECT_LE(one, 2.0);
  const double four =
      BusGBps(spec, {{"NCCL_MAX_NCHANNELS", "4"}, {"NCCL_MIN_NCHANNELS", "4"}}, bytes);
  EXPECT_GT(four, 4);
  EXPECT_LT(four, 8);
  // Sockets and threads: until the NIC is full.
  const double many =
      BusGBps(spec, {{"NCCL_SOCKET_NTHREADS", "4"}, {"NCCL_NSOCKS_PERTHREAD", "4"}}, bytes);
  EXPECT_GT(many, 1.5 * four);
  EXPECT_LT(many, 12.5);
  // A cloud's limit of one flow (AWS: 10 Gb/s in a placement group).
  spec.stream_Bps = 1'250'000'000;
  EXPECT_LT(BusGBps(spec, {{"NCCL_MAX_NCHANNELS", "1"}, {"NCCL_MIN_NCHANNELS", "1"}}, bytes), 1.25);
}

TEST(Tcp, SmallMessagesCostTheStacks) {
  cluster::Spec roce = Tcp();
  roce.fabric = cluster::Fabric::kRoce;
  EXPECT_GT(BusGBps(roce, {}, 8), 2 * BusGBps(Tcp(), {}, 8));
}

TEST(Tcp, NoLL128) {
  const cluster::Cluster cluster = *cluster::Cluster::Build(Tcp());
  const Planner planner(cluster, Environment{});
  std::vector<DeviceId> members;
  for (std::size_t d = 0; d < 16; ++d) members.emplace_back(d);
  const GroupShape shape = ShapeOf(cluster, members);
  for (std::int64_t bytes = 1024; bytes <= std::int64_t{1} << 32; bytes *= 2) {
    const Plan plan = *planner.MakePlan(Collective::kAllReduce, bytes, shape);
    EXPECT_NE(plan.protocol, Protocol::kLL128) << bytes;
  }
}

TEST(Tcp, TooManySocketsAreRefused) {
  const Variables variables = {{"NCCL_SOCKET_NTHREADS", "16"}, {"NCCL_NSOCKS_PERTHREAD", "8"}};
  EXPECT_EQ(ParseEnvironment(variables).status().message(),
            "NCCL_NSOCKS_PERTHREAD: 8 for each of NCCL_SOCKET_NTHREADS = 16 threads are more than "
            "64 sockets; lower one");
}

TEST(Slingshot, IsPricedAsRoce) {
  cluster::Spec spec = *cluster::FindPreset("gh200-slingshot-200g");
  EXPECT_EQ(spec.fabric, cluster::Fabric::kSlingshot);
  cluster::Spec roce = spec;
  roce.fabric = cluster::Fabric::kRoce;
  spec.nodes = roce.nodes = 4;
  cluster::Calibrate(constants::Set::Fitted(), &spec);
  cluster::Calibrate(constants::Set::Fitted(), &roce);
  EXPECT_EQ(BusGBps(spec, {}, 1 << 26), BusGBps(roce, {}, 1 << 26));
}

}  // namespace
}  // namespace orrery::collective
