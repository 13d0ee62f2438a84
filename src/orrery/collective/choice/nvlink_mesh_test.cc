// What NVLinks between particular GPUs of a host are worth (cluster/nvlink_mesh.h).
#include <gtest/gtest.h>

#include <cmath>

#include "orrery/collective/choice/ring_order.h"
#include "orrery/collective/collective.h"

namespace orrery::collective {
namespace {

using cluster::Cluster;
using cluster::Spec;

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

Spec Host(int gpus, const std::string& tree, const std::string& nvlinks) {
  Spec spec = *cluster::FindPreset("a100-80g-ib-200g");
  spec.nodes = 1;
  spec.gpus_per_node = spec.gpus_per_nvlink_domain = gpus;
  spec.nics_per_node = 1;
  spec.pcie_tree.tree = tree;
  spec.pcie_tree.peers = true;
  spec.pcie_tree.nvlinks = nvlinks;
  if (!nvlinks.empty()) return spec;
  spec.nvlink_Bps = spec.pcie_Bps;
  spec.nvlink_packet_bytes = 128;
  spec.nvlink_header_bytes = 0;
  spec.nvlink_latency = 0;
  return spec;
}

std::vector<DeviceId> Gpus(std::vector<std::size_t> numbers) {
  return {numbers.begin(), numbers.end()};
}

// Bus bandwidth of a GiB in GB/s.
double Busbw(const Spec& spec, const std::vector<DeviceId>& members,
             graph::Collective collective = graph::Collective::kAllReduce) {
  const Cluster cluster = *Cluster::Build(spec);
  const Planner planner(cluster, {});
  const Plan plan = *planner.MakePlan(collective, kGiB, ShapeOf(cluster, members));
  const double seconds = ToSeconds(planner.ClosedForm(plan).total());
  const auto n = static_cast<double>(members.size());
  const double factor = collective == graph::Collective::kAllReduce ? 2 : 1;
  return factor * (n - 1) / n * static_cast<double>(kGiB) / seconds * 1e-9;
}

TEST(NvlinkMesh, LinksOfAGpuToItselfJoinNothing) {
  EXPECT_NEAR(Busbw(Host(2, "g g n", ""), Gpus({0, 1})), 23, 1.5);
}

// Bridges join A100 in pairs. Measured: 208 GB/s on a pair, 20 on three GPUs. A pair takes all of
// its links as 24 channels do; three have a ring over PCIe Gen4.
TEST(NvlinkMesh, PairsOfA100) {
  const Spec spec = Host(4, "g g n g g", "0-1:12 2-3:12");
  const double pair = Busbw(spec, Gpus({0, 1}));
  EXPECT_GT(pair, 190);
  EXPECT_LT(pair, 290);
  EXPECT_NEAR(Busbw(spec, Gpus({0, 1, 2})), 20, 4);
  EXPECT_NEAR(Busbw(spec, Gpus({0, 1, 2, 3})), 20, 4);
  EXPECT_NEAR(Busbw(spec, Gpus({1, 2})), 20, 4);
  EXPECT_NEAR(Busbw(spec, Gpus({2, 3})), pair, 1e-9 * pair);
}

// Four links between any two of four: all twelve of a GPU carry rings over all four, four those of
// a pair.
TEST(NvlinkMesh, ACliqueSharesItsLinks) {
  const Spec spec = Host(4, "g g n g g", "0-1:4 0-2:4 0-3:4 1-2:4 1-3:4 2-3:4");
  const double all = Busbw(spec, Gpus({0, 1, 2, 3}));
  const double pair = Busbw(spec, Gpus({1, 2}));
  EXPECT_GT(all, 190);
  EXPECT_NEAR(pair / all, 1.0 / 3, 0.05);
  EXPECT_GT(Busbw(spec, Gpus({0, 1, 2, 3}), graph::Collective::kAllToAll), 150);
}

// Each ring visits neighbours that NVLinks join, whatever the channel.
TEST(NvlinkMesh, RingsFollowTheLinksOfDgx1) {
  const Spec spec = Host(8, "(g g n) (g g) | (g g) (g g)",
                         "0-1 0-2 0-3:2 0-4:2 1-2:2 1-3 1-5:2 2-3:2 2-6 3-7 4-5 4-6 4-7:2 5-6:2 "
                         "5-7 6-7:2");
  const Cluster cluster = *Cluster::Build(spec);
  const std::vector<DeviceId> members = Gpus({0, 1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(ShapeOf(cluster, members).ring_nvlinks, 6);
  EXPECT_EQ(ShapeOf(cluster, members).pair_nvlinks, 0);
  const RingOrder layout(cluster, members);
  std::vector<std::uint32_t> order;
  for (int channel = 0; channel < 12; ++channel) {
    layout.Ring(channel, &order);
    ASSERT_EQ(order.size(), 8u);
    for (std::size_t i = 0; i < 8; ++i) {
      EXPECT_GT(cluster.nvlinks_between(members[order[i]], members[order[(i + 1) % 8]]), 0);
    }
  }
}

}  // namespace
}  // namespace orrery::collective
