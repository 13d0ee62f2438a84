#include "orrery/network/path_cache.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "orrery/network/flow.h"

namespace orrery::network {
namespace {

using cluster::Cluster;
using cluster::LinkKind;

Cluster Adaptive() {
  auto spec = cluster::FindPreset("h100-ib-400g");
  spec->nodes = 4;
  spec->nodes_per_leaf = 2;
  spec->topology.routing = cluster::Routing::kAdaptive;
  return *cluster::Cluster::Build(*spec);
}

std::vector<LinkId> Least(PathCache* cache, const Cluster& cluster, std::size_t from,
                          std::size_t to, std::uint64_t salt, LinkId loaded = LinkId()) {
  const std::uint32_t number = cache->FindLeast(
      cluster, DeviceId(from), DeviceId(to), salt, [&](std::span<const LinkId> path) {
        return std::ranges::find(path, loaded) != path.end() ? 1 : 0;
      });
  const auto path = cache->path(number);
  return {path.begin(), path.end()};
}

// Salts name more than a hash: taken modulo the number of candidates, a part that one GPU stores in
// the NVLink switch went on to itself, and PXN's messages left by the sender's own NIC.
TEST(PathCache, LeastLoadedKeepsHalfRoutesOfTheSwitch) {
  const Cluster cluster = Adaptive();
  PathCache cache;
  const DeviceId gpu(std::size_t{3});
  EXPECT_EQ(Least(&cache, cluster, 3, 3, cluster::kIntoSwitch),
            std::vector{cluster.nvlink_out(gpu)});
  EXPECT_EQ(Least(&cache, cluster, 3, 3, cluster::kOutOfSwitch),
            std::vector{cluster.nvlink_in(gpu)});
  EXPECT_EQ(Least(&cache, cluster, 3, 3, cluster::kThroughSwitch),
            (std::vector{cluster.nvlink_out(gpu), cluster.nvlink_in(gpu)}));
}

TEST(PathCache, LeastLoadedKeepsTheRailOfPxn) {
  const Cluster cluster = Adaptive();
  PathCache cache;
  // GPU 1 of host 0 to GPU 6 of host 3: over NVLink to GPU 6 of host 0, whose NIC is on that rail.
  const std::vector<LinkId> path = Least(&cache, cluster, 1, 30, cluster::kByRail);
  ASSERT_EQ(path.size(), 8u);
  EXPECT_EQ(path[0], cluster.nvlink_out(DeviceId(std::size_t{1})));
  EXPECT_EQ(path[1], cluster.nvlink_in(DeviceId(std::size_t{6})));
  EXPECT_EQ(path[2], cluster.pcie_out(DeviceId(std::size_t{6})));
  EXPECT_EQ(path.back(), cluster.pcie_in(DeviceId(std::size_t{30})));
  // What is loaded behind the hop is gone round, the hop is not.
  const std::vector<LinkId> other = Least(&cache, cluster, 1, 30, cluster::kByRail, path[4]);
  EXPECT_EQ(cluster.links()[path[4].index()].kind, LinkKind::kLeafSpine);
  EXPECT_NE(other[4], path[4]);
  EXPECT_TRUE(std::equal(path.begin(), path.begin() + 4, other.begin()));
  // Found again, not added again.
  const std::size_t size = cache.size();
  EXPECT_EQ(Least(&cache, cluster, 1, 30, cluster::kByRail), path);
  EXPECT_EQ(cache.size(), size);
}

// The same of a network that uses it: a store into the switch takes one NVLink port's time, not two
// hops, and a message by rail shows on the NIC of its rail.
TEST(PathCache, FlowTakesThem) {
  const Cluster cluster = Adaptive();
  Flow flow;
  ASSERT_TRUE(flow.SetupLinks(cluster, {}, 0).ok());
  const Transfer transfers[] = {{.id = 0,
                                 .from = DeviceId(3),
                                 .to = DeviceId(3),
                                 .bytes = 1 << 20,
                                 .salt = cluster::kIntoSwitch},
                                {.id = 1,
                                 .from = DeviceId(1),
                                 .to = DeviceId(30),
                                 .bytes = 1 << 20,
                                 .salt = cluster::kByRail}};
  flow.Start(0, transfers);
  std::vector<Completion> done;
  while (flow.next_time() != kNever) flow.AdvanceUntil(flow.next_time(), &done);
  ASSERT_EQ(done.size(), 2u);
  const auto bytes = [&](LinkId id) { return flow.statistics()[id.index()].bytes; };
  EXPECT_GT(bytes(cluster.nvlink_out(DeviceId(3))), 0);
  EXPECT_EQ(bytes(cluster.nvlink_in(DeviceId(3))), 0);
  EXPECT_EQ(bytes(cluster.pcie_out(DeviceId(1))), 0);
  EXPECT_GT(bytes(cluster.pcie_out(DeviceId(6))), 0);
}

}  // namespace
}  // namespace orrery::network
