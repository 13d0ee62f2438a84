#include "orrery/cluster/detour.h"

#include <gtest/gtest.h>

#include <set>

namespace orrery::cluster {
namespace {

Cluster Build(std::string_view topology, int nodes = 4) {
  auto spec = FindPreset("h100-ib-400g");
  EXPECT_TRUE(spec.ok());
  spec->nodes = nodes;
  spec->nodes_per_leaf = 2;
  spec->topology.name = topology;
  auto cluster = Cluster::Build(*spec);
  EXPECT_TRUE(cluster.ok()) << cluster.status().message();
  return *std::move(cluster);
}

// Every hop begins where the one before ends, from the one GPU to the other.
void ExpectConnected(const Cluster& cluster, const std::vector<LinkId>& path, DeviceId from,
                     DeviceId to) {
  std::uint32_t at = from.value;
  for (const LinkId id : path) {
    EXPECT_EQ(cluster.links()[id.index()].from, at);
    at = cluster.links()[id.index()].to;
  }
  EXPECT_EQ(at, to.value);
}

// Between hosts under two leaves: each link of the connection's own path in turn.
TEST(Detours, GoRoundWhatIsDown) {
  const Cluster cluster = Build("fat-tree-2");
  Detours detours(cluster);
  const DeviceId from(std::size_t{0}), to(std::size_t{31});
  std::vector<LinkId> own, path;
  for (std::uint64_t salt = 0; salt < 8; ++salt) {
    cluster.Route(from, to, salt, &own);
    ASSERT_EQ(own.size(), 6u);  // PCIe, NIC, leaf to spine, spine to leaf, NIC, PCIe
    std::vector<bool> down(cluster.links().size(), false);
    EXPECT_TRUE(detours.Find(from, to, salt, down, &path));
    EXPECT_EQ(path, own);
    for (std::size_t hop = 0; hop < own.size(); ++hop) {
      down.assign(down.size(), false);
      down[own[hop].index()] = true;
      const bool fabric = hop == 2 || hop == 3;
      EXPECT_EQ(detours.Find(from, to, salt, down, &path), fabric) << hop;
      if (fabric) {
        ExpectConnected(cluster, path, from, to);
        EXPECT_EQ(path.size(), own.size());
      } else {
        EXPECT_EQ(path, own);  // where it waits
      }
      for (const LinkId id : path) EXPECT_EQ(down[id.index()], !fabric && id == own[hop]);
    }
  }
}

// With one spine left all connections take it; with none there is no path.
TEST(Detours, UntilNothingIsLeft) {
  const Cluster cluster = Build("fat-tree-2");
  Detours detours(cluster);
  const DeviceId from(std::size_t{0}), to(std::size_t{31});
  std::vector<bool> down(cluster.links().size(), false);
  std::vector<std::size_t> spines;
  for (std::size_t l = 0; l < down.size(); ++l) {
    if (cluster.link_name(LinkId(l)).starts_with("leaf0/spine")) spines.push_back(l);
  }
  ASSERT_GT(spines.size(), 2u);
  for (std::size_t i = 1; i < spines.size(); ++i) down[spines[i]] = true;
  std::vector<LinkId> path;
  for (std::uint64_t salt = 0; salt < 100; ++salt) {
    ASSERT_TRUE(detours.Find(from, to, salt, down, &path));
    EXPECT_EQ(path[2], LinkId(spines[0]));
  }
  down[spines[0]] = true;
  EXPECT_FALSE(detours.Find(from, to, 1, down, &path));
}

// The search spreads over equal paths, and passes through no NIC of another host.
TEST(Detours, SearchFromAVertexOnTheWay) {
  const Cluster cluster = Build("fat-tree-2");
  Detours detours(cluster);
  const DeviceId from(std::size_t{0}), to(std::size_t{31});
  std::vector<LinkId> own, path;
  cluster.Route(from, to, 0, &own);
  const std::uint32_t leaf = cluster.links()[own[2].index()].from;
  std::vector<bool> down(cluster.links().size(), false);
  down[own[2].index()] = true;
  std::set<LinkId> taken;
  for (std::uint64_t salt = 0; salt < 64; ++salt) {
    path.clear();
    ASSERT_TRUE(detours.FindFrom(leaf, to, salt, down, &path));
    EXPECT_EQ(path.size(), 4u);
    taken.insert(path.front());
  }
  EXPECT_GT(taken.size(), 1u);
  EXPECT_FALSE(taken.contains(own[2]));
}

// Both leaves of a dual-ToR NIC lead on when the link to one is down.
TEST(Detours, DualTorTakesTheOtherPort) {
  const Cluster cluster = Build("dcn-plus-dual-tor");
  Detours detours(cluster);
  const DeviceId from(std::size_t{0}), to(std::size_t{31});
  std::vector<LinkId> own, path;
  cluster.Route(from, to, 3, &own);
  std::vector<bool> down(cluster.links().size(), false);
  down[own[1].index()] = true;  // NIC to leaf
  ASSERT_TRUE(detours.Find(from, to, 3, down, &path));
  ExpectConnected(cluster, path, from, to);
  EXPECT_EQ(path[0], own[0]);
  EXPECT_NE(path[1], own[1]);
}

// On a direct fabric GPUs pass traffic on.
TEST(Detours, ATorusGoesAnotherWay) {
  auto spec = FindPreset("h100-ib-400g");
  ASSERT_TRUE(spec.ok());
  spec->nodes = 1;
  spec->topology.name = "torus";
  spec->topology.dimensions = {{.kind = DimensionKind::kRing, .size = 8}};
  auto cluster = Cluster::Build(*spec);
  ASSERT_TRUE(cluster.ok()) << cluster.status().message();
  Detours detours(*cluster);
  std::vector<LinkId> own, path;
  const DeviceId from(std::size_t{0}), to(std::size_t{2});
  cluster->Route(from, to, 0, &own);
  ASSERT_EQ(own.size(), 2u);
  std::vector<bool> down(cluster->links().size(), false);
  down[own[1].index()] = true;
  ASSERT_TRUE(detours.Find(from, to, 0, down, &path));
  EXPECT_GT(path.size(), own.size());
  for (const LinkId id : path) EXPECT_NE(id, own[1]);
  ExpectConnected(*cluster, path, from, to);
}

}  // namespace
}  // namespace orrery::cluster
