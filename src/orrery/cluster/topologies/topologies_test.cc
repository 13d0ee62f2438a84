#include "orrery/cluster/topologies/topologies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "orrery/base/rng.h"
#include "orrery/cluster/draw.h"
#include "orrery/cluster/survey.h"

namespace orrery::cluster {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kG = 1'000'000'000;

Spec Hosts(const char* topology, int nodes, int nodes_per_leaf = 32) {
  Spec spec = *FindPreset("h100-ib-400g");
  spec.nodes = nodes;
  spec.nodes_per_leaf = nodes_per_leaf;
  spec.topology.name = topology;
  return spec;
}

Cluster Build(const Spec& spec) {
  Result<Cluster> cluster = Cluster::Build(spec);
  EXPECT_TRUE(cluster.ok()) << cluster.status().message();
  return *std::move(cluster);
}

// Cables without PCIe: how SimAI's generator counts links; and its vertices, which have no NICs.
std::size_t Cables(const Cluster& cluster) {
  std::size_t links = 0;
  for (const Link& l : cluster.links()) links += l.kind == LinkKind::kPcie ? 0 : 1;
  return links / 2;
}
std::size_t VerticesWithoutNics(const Cluster& cluster) {
  return cluster.vertices() - cluster.nics();
}

TEST(Topologies, HaveTheSizesOfSimAisTemplates) {
  struct Row {
    const char* name;
    int nodes, nodes_per_leaf, spines;
    std::size_t vertices, cables;
  };
  // SimAI's generator prints these vertices and links. By hand, Spectrum-X of 128 GPUs: 128 + 16
  // NVSwitches + 8 leaves + 64 spines = 216; 128 + 128 + 8 · 64 = 768.
  for (const Row& row :
       {Row{"spectrum-x", 16, 32, 64, 216, 768}, Row{"alibaba-hpn", 8, 128, 16, 104, 448},
        Row{"alibaba-hpn-dual-plane", 8, 128, 8, 104, 320}, Row{"dcn-plus", 16, 8, 4, 150, 264},
        Row{"dcn-plus-dual-tor", 16, 16, 8, 154, 400}}) {
    Spec spec = Hosts(row.name, row.nodes, row.nodes_per_leaf);
    spec.topology.spines = row.spines;
    const Cluster cluster = Build(spec);
    EXPECT_EQ(VerticesWithoutNics(cluster), row.vertices) << row.name;
    EXPECT_EQ(Cables(cluster), row.cables) << row.name;
  }
}

TEST(Topologies, FatTreeOfThreeTiersCounts) {
  // 16 hosts of one NIC, 2 a leaf: 8 leaves, pods of 4 hosts = 2 leaves, 2 spines a pod, 4 pods. A
  // spine has 2 leaves below, so 2 cores above at 1:1: 8 spines, 4 cores (k = 4: (k/2)^2). Links: 4
  // · 128 to and from GPUs; 2 · 16 NIC; 2 · 8 · 2 leaf-spine; 2 · 8 · 2 spine-core.
  Spec spec = Hosts("fat-tree-3", 16, 2);
  spec.nics_per_node = 1;
  spec.rail_optimised = false;
  const Cluster cluster = Build(spec);
  const Clos& clos = std::get<Clos>(cluster.fabric());
  EXPECT_EQ(clos.leaves(), 8u);
  EXPECT_EQ(clos.spines(), 8u);
  EXPECT_EQ(clos.cores(), 4u);
  EXPECT_EQ(cluster.links().size(), 512u + 32 + 32 + 32);
  const Survey survey = SurveyOf(cluster);
  EXPECT_EQ(survey.diameter_links, 6);  // NIC, leaf, spine, core, spine, leaf, NIC
  EXPECT_EQ(survey.far_paths, 4u);      // 2 spines · 2 cores
  EXPECT_EQ(survey.bisection_Bps, 8 * 50 * kG);
  spec.topology.core_oversubscription = 2;  // 1 core a spine: half of everything crosses
  EXPECT_EQ(SurveyOf(Build(spec)).bisection_Bps, 4 * 50 * kG);
}

TEST(Topologies, OversubscriptionThinsTheBisection) {
  // 8 hosts of 8 NICs, 2 a leaf: 16 downlinks of 50 GB/s. At 4:1 half of the hosts send 32 · 50 / 4
  // GB/s.
  Spec spec = Hosts("fat-tree-2", 8, 2);
  EXPECT_EQ(SurveyOf(Build(spec)).bisection_Bps, 32 * 50 * kG);
  spec.oversubscription = 4;
  EXPECT_EQ(SurveyOf(Build(spec)).bisection_Bps, 8 * 50 * kG);
}

TEST(Topologies, DualTorDoublesAndPlanesDivideTheWays) {
  // HPN, two segments: one plane 2 · 16 · 2 ways between far hosts; two planes 2 · 8.
  Spec spec = Hosts("alibaba-hpn", 8, 4);
  spec.topology.spines = 16;
  EXPECT_EQ(SurveyOf(Build(spec)).far_paths, 64u);
  spec.topology.name = "alibaba-hpn-dual-plane";
  spec.topology.spines = 8;
  EXPECT_EQ(SurveyOf(Build(spec)).far_paths, 16u);
  EXPECT_EQ(Build(spec).links()[4 * 64].bandwidth_Bps, 25 * kG);  // a port: half of the NIC
}

TEST(Topologies, DragonflyCounts) {
  // 4 routers a group of 2 NICs each and 2 global links: a group reaches 8 others, so 9 groups: 72
  // NICs = 9 hosts of 8. Links: 2 · 72; 9 · 4 · 3 = 108 local; 9 · 8 = 72 global.
  Spec spec = Hosts("dragonfly", 9);
  spec.topology.nics_per_router = 2;
  spec.topology.routers_per_group = 4;
  spec.topology.global_links = 2;
  const Cluster cluster = Build(spec);
  EXPECT_EQ(cluster.switches(), 36u);
  EXPECT_EQ(cluster.links().size(), 4u * 72 + 144 + 108 + 72);
  EXPECT_EQ(SurveyOf(cluster).diameter_links, 5);  // local, global, local between two NIC links
  spec.nodes = 10;
  EXPECT_THAT(Cluster::Build(spec).status().message(), HasSubstr("topology.global_links = 2"));
}

TEST(Topologies, TorusAndMeshCounts) {
  // 4 x 4 x 2 hosts of one NIC. Torus: rings of 4 have 4 cables, pairs 1: 32 + 32 + 16 = 80 cables.
  // Mesh: 3 cables a line of 4: 24 + 24 + 16 = 64. Halving dimension 2 cuts 16 cables of 50 GB/s
  // each.
  Spec spec = Hosts("torus", 32);
  spec.nics_per_node = 1;
  spec.topology.dimensions = {{.size = 4}, {.size = 4}, {.size = 2}};
  const auto routers = [](const Cluster& c) {
    return std::count_if(c.links().begin(), c.links().end(),
                         [](const Link& l) { return l.kind == LinkKind::kRouter; });
  };
  const Cluster torus = Build(spec);
  EXPECT_EQ(routers(torus), 160);
  const Survey survey = SurveyOf(torus);
  EXPECT_EQ(survey.bisection_Bps, 16 * 50 * kG);
  EXPECT_EQ(survey.diameter_links, 2 + 2 + 2 + 1);
  // To the far corner: 2 + 2 + 1 steps in any order, two ways round each ring: 5!/(2! 2! 1!) · 4.
  EXPECT_EQ(survey.far_paths, 120u);
  spec.topology.name = "mesh";
  const Cluster mesh = Build(spec);
  EXPECT_EQ(routers(mesh), 128);
  EXPECT_EQ(SurveyOf(mesh).diameter_links, 2 + 3 + 3 + 1);
  EXPECT_EQ(SurveyOf(mesh).far_paths, 140u);  // 7!/(3! 3! 1!)
}

TEST(Topologies, AstraSimCounts) {
  // Ring 4, FullyConnected 3, Switch 2: 24 GPUs; 6 rings of 8 links, 8 meshes of 6, 12 switches
  // of 4.
  Spec spec = Hosts("astra-sim", 3);
  spec.gpus_per_nvlink_domain = 1;
  spec.topology.dimensions = {{DimensionKind::kRing, 4, 100 * kG, 500'000},
                              {DimensionKind::kFullyConnected, 3, 50 * kG, 500'000},
                              {DimensionKind::kSwitch, 2, 25 * kG, 1'000'000}};
  const Cluster cluster = Build(spec);
  EXPECT_EQ(cluster.links().size(), 48u + 48 + 48);
  EXPECT_EQ(cluster.vertices(), 24u + 12);
  EXPECT_EQ(cluster.vertex_name(24 + 11), "dim2.switch11");
  EXPECT_EQ(SurveyOf(cluster).diameter_links, 2 + 1 + 2);
  std::vector<LinkId> path;
  cluster.Route(DeviceId(0), DeviceId(3), 0, &path);  // the short way round the ring
  ASSERT_EQ(path.size(), 1u);
  EXPECT_EQ(cluster.links()[path[0].index()].bandwidth_Bps, 100 * kG);
}

TEST(Topologies, StaticSpreadsByDestinationAndRailLocalStaysOnRails) {
  Spec spec = Hosts("rail-optimised", 64);
  spec.topology.routing = Routing::kStatic;
  const Cluster fixed = Build(spec);
  std::vector<LinkId> path, again;
  std::set<std::uint32_t> spines;
  for (std::size_t node = 32; node < 64; ++node) {
    fixed.Route(DeviceId(0), DeviceId(8 * node), 1, &path);
    fixed.Route(DeviceId(0), DeviceId(8 * node), 2, &again);
    EXPECT_EQ(path, again);
    spines.insert(fixed.links()[path[2].index()].to);
  }
  EXPECT_EQ(spines.size(), 32u);  // every spine once
  spec.topology.routing = Routing::kRailLocal;
  const Cluster rails = Build(spec);
  rails.Route(DeviceId(0), DeviceId(8 + 3), 0, &path);
  std::vector<std::string> names;
  for (const LinkId id : path) names.push_back(rails.link_name(id));
  EXPECT_EQ(names, (std::vector<std::string>{"node0/gpu0/nvswitch0", "nvswitch0/node0/gpu3",
                                             "node0/gpu3/node0/nic3", "node0/nic3/leaf3",
                                             "leaf3/node1/nic3", "node1/nic3/node1/gpu3"}));
}

TEST(Topologies, UnknownNameListsTheValidOnes) {
  EXPECT_THAT(Cluster::Build(Hosts("fat-tre-2", 2)).status().message(),
              HasSubstr("unknown topology 'fat-tre-2'; did you mean 'fat-tree-2'"));
  for (const TopologyInfo& info : Topologies()) {
    EXPECT_TRUE(CheckTopologyName(info.name).ok());
    EXPECT_FALSE(info.description.empty());
  }
}

// A link that fails, if only for a while, is drawn as such, in a heat map too.
TEST(LinkChanges, AFailedLinkIsDrawn) {
  Cluster cluster = Build(Hosts("rail-optimised", 4));
  EXPECT_THAT(DrawSvg(cluster), ::testing::Not(HasSubstr("failed")));
  ASSERT_TRUE(cluster.ChangeLinks("node1/nic3/leaf3", 0, kSecond, 2 * kSecond).ok());
  const std::vector<double> used(cluster.links().size(), 0.3);
  for (const std::string& svg : {DrawSvg(cluster), DrawSvg(cluster, used)}) {
    EXPECT_THAT(svg, HasSubstr("stroke-dasharray"));
    EXPECT_THAT(svg, HasSubstr(">failed</text>"));
    EXPECT_THAT(svg, HasSubstr(", failed</title>"));
  }
}

TEST(LinkChanges, WholeRunsChangeTheLinkAndTimesStandInTheList) {
  Cluster cluster = Build(Hosts("rail-optimised", 64));
  std::vector<LinkId> path;
  cluster.Route(DeviceId(0), DeviceId(8 * 40), 0, &path);
  const std::string name = cluster.link_name(path[2]);
  ASSERT_TRUE(cluster.ChangeLinks(name, 0.5, 0, kNever).ok());
  EXPECT_EQ(cluster.links()[path[2].index()].bandwidth_Bps, 25 * kG);
  EXPECT_TRUE(cluster.link_changes().empty());
  ASSERT_TRUE(cluster.ChangeLinks("node1/nic3/leaf3", 0, kSecond, 2 * kSecond).ok());
  ASSERT_EQ(cluster.link_changes().size(), 2u);  // both directions of the cable
  EXPECT_EQ(cluster.link_name(cluster.link_changes()[0].link), "node1/nic3/leaf3");
  EXPECT_THAT(cluster.ChangeLinks("leaf0/spine99", 0.5, 0, kNever).message(),
              HasSubstr("there is no link 'leaf0/spine99'; links are named by their ends"));
}

// One GPU wired to nobody: the error has no link to show.
TEST(LinkChanges, AClusterWithoutLinksSaysSo) {
  Spec spec = Hosts("astra-sim", 1);
  spec.gpus_per_node = spec.nics_per_node = spec.gpus_per_nvlink_domain = 1;
  spec.topology.dimensions = {{DimensionKind::kRing, 1, 100 * kG, 0}};
  Cluster cluster = Build(spec);
  ASSERT_TRUE(cluster.links().empty());
  EXPECT_EQ(cluster.ChangeLinks("leaf0/spine0", 0.5, 0, kNever).message(),
            "there is no link 'leaf0/spine0'; this cluster has none");
}

// Random parameters of every family.
Spec RandomSpec(CounterRng* rng) {
  constexpr const char* kNames[] = {
      "rail-optimised", "fat-tree-2",        "fat-tree-3", "alibaba-hpn", "alibaba-hpn-dual-plane",
      "dcn-plus",       "dcn-plus-dual-tor", "spectrum-x", "dragonfly",   "torus",
      "mesh",           "astra-sim"};
  const std::string name = kNames[rng->Below(std::size(kNames))];
  Spec spec = Hosts(name.c_str(), 1 + static_cast<int>(rng->Below(24)),
                    1 + static_cast<int>(rng->Below(5)));
  constexpr int kGpus[] = {4, 8, 16, 64};
  spec.gpus_per_node = kGpus[rng->Below(4)];
  spec.nics_per_node = spec.gpus_per_node >> rng->Below(3);
  spec.gpus_per_nvlink_domain = rng->Below(2) == 0 ? 1 : spec.gpus_per_node;
  spec.rail_optimised = rng->Below(2) == 0;
  spec.oversubscription = 1 + static_cast<double>(rng->Below(4));
  TopologySpec& t = spec.topology;
  t.routing = rng->Below(4) == 0 ? Routing::kStatic : Routing::kEcmp;
  if (name == "fat-tree-3")
    t.nodes_per_pod = spec.nodes_per_leaf * (1 + static_cast<int>(rng->Below(3)));
  if (name == "dragonfly") {
    t.nics_per_router = 1 + static_cast<int>(rng->Below(8));
    t.routers_per_group = 1 + static_cast<int>(rng->Below(6));
    t.global_links = 1 + static_cast<int>(rng->Below(64));
  }
  if (name == "torus" || name == "mesh" || name == "astra-sim") {
    int points = 1;
    for (std::uint64_t left = 1 + rng->Below(3); left > 0; --left) {
      t.dimensions.push_back({static_cast<DimensionKind>(rng->Below(4)),
                              1 + static_cast<int>(rng->Below(6)), 10 * kG, 100});
      points *= t.dimensions.back().size;
    }
    spec.nodes = points;
    if (name == "astra-sim") {
      spec.gpus_per_node = spec.nics_per_node = spec.gpus_per_nvlink_domain = 1;
    }
  }
  return spec;
}

TEST(Routes, AreConnectedShortestAndUseNoLinkTwice) {
  CounterRng rng(20);
  int built = 0;
  for (int round = 0; round < 400; ++round) {
    const Spec spec = RandomSpec(&rng);
    Result<Cluster> made = Cluster::Build(spec);
    if (!made.ok()) {
      EXPECT_EQ(spec.topology.name, "dragonfly") << made.status().message();
      continue;
    }
    ++built;
    const Cluster& cluster = *made;
    for (const Link& l : cluster.links()) {
      ASSERT_LT(std::max(l.from, l.to), cluster.vertices());
      ASSERT_GT(l.bandwidth_Bps, 0);
    }
    const DeviceId from(rng.Below(cluster.devices()));
    const std::uint32_t start =
        cluster.direct()
            ? from.value
            : static_cast<std::uint32_t>(cluster.devices() + cluster.nvlink_domains()) +
                  cluster.nic(from).value;
    const std::vector<int> distance = NetworkDistances(cluster, start);
    std::vector<LinkId> path;
    for (int pair = 0; pair < 50; ++pair) {
      const DeviceId to(rng.Below(cluster.devices()));
      cluster.Route(from, to, rng.Next(), &path);
      std::uint32_t at = from.value;
      int network = 0;
      for (const LinkId id : path) {
        const Link& link = cluster.links()[id.index()];
        ASSERT_EQ(link.from, at) << spec.topology.name << " " << cluster.vertex_name(at);
        at = link.to;
        network += link.kind != LinkKind::kNvlink && link.kind != LinkKind::kPcie ? 1 : 0;
      }
      ASSERT_EQ(at, to.value) << spec.topology.name;
      std::vector<LinkId> sorted = path;
      std::sort(sorted.begin(), sorted.end());
      ASSERT_EQ(std::adjacent_find(sorted.begin(), sorted.end()), sorted.end());
      if (network == 0) continue;
      const std::uint32_t end =
          cluster.direct() ? to.value : start - cluster.nic(from).value + cluster.nic(to).value;
      // A dragonfly takes one global link where two would be a link shorter.
      const int slack = spec.topology.name == "dragonfly" ? 1 : 0;
      ASSERT_GE(network, distance[end]) << spec.topology.name;
      ASSERT_LE(network, distance[end] + slack) << spec.topology.name;
    }
  }
  EXPECT_GT(built, 350);
}

TEST(Routes, EcmpFindsEveryShortestPath) {
  for (const char* name : {"fat-tree-2", "fat-tree-3", "alibaba-hpn", "alibaba-hpn-dual-plane",
                           "dcn-plus-dual-tor", "torus", "mesh"}) {
    Spec spec = Hosts(name, 18, 2);
    spec.gpus_per_node = spec.nics_per_node = 2;
    spec.gpus_per_nvlink_domain = 2;
    spec.topology.nodes_per_pod = std::string_view(name) == "fat-tree-3" ? 6 : 0;
    spec.topology.dimensions = {{.size = 3}, {.size = 3}, {.size = 2}};
    const Cluster cluster = Build(spec);
    const Survey survey = SurveyOf(cluster);
    const std::size_t nic = survey.far_to - cluster.devices() - cluster.nvlink_domains();
    std::set<std::vector<LinkId>> ways;
    std::vector<LinkId> path;
    for (std::uint64_t salt = 0; salt < 4000; ++salt) {
      cluster.Route(DeviceId(0), DeviceId(nic), salt, &path);
      ways.insert(path);
    }
    EXPECT_EQ(ways.size(), survey.far_paths) << name;
  }
}

}  // namespace
}  // namespace orrery::cluster
