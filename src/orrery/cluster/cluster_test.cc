#include "orrery/cluster/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "orrery/cluster/catalog.h"

namespace orrery::cluster {
namespace {

using ::testing::HasSubstr;

Spec H100(int nodes) {
  Spec spec = *FindPreset("h100-ib-400g");
  spec.nodes = nodes;
  return spec;
}

std::vector<std::string> RouteKinds(const Cluster& cluster, DeviceId from, DeviceId to) {
  std::vector<LinkId> path;
  cluster.Route(from, to, 0, &path);
  std::vector<std::string> kinds;
  for (LinkId id : path) kinds.emplace_back(Name(cluster.links()[id.index()].kind));
  return kinds;
}

TEST(Presets, AllBuildAndNameTheirSources) {
  for (const Preset& preset : Presets()) {
    const Result<Spec> spec = FindPreset(preset.name);
    ASSERT_TRUE(spec.ok()) << preset.name;
    EXPECT_EQ(spec->name, preset.name);
    EXPECT_GE(spec->sources.size(), 4u) << preset.name;
    EXPECT_FALSE(spec->device.source.empty()) << preset.name;
    EXPECT_TRUE(Cluster::Build(*spec).ok()) << preset.name;
  }
}

TEST(Presets, DriversNamesOfDevices) {
  const std::pair<const char*, const char*> names[] = {
      {"NVIDIA H100 80GB HBM3", "H100-SXM5-80GB"},  {"NVIDIA H100 PCIe", "H100-PCIe-80GB"},
      {"NVIDIA H100 NVL", "H100-NVL-94GB"},         {"NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"},
      {"NVIDIA A100 80GB PCIe", "A100-PCIe-80GB"},  {"Tesla V100-SXM2-32GB", "V100-SXM2-32GB"},
      {"NVIDIA A100-PCIE-40GB", "A100-PCIe-40GB"},  {"Tesla V100-PCIE-32GB", "V100-PCIe-32GB"},
      {"NVIDIA A40-PCIE-48GB", "A40-48GB"},         {"NVIDIA GH200 480GB", "GH200-96GB"},
      {"NVIDIA GeForce RTX 4090", "RTX-4090-24GB"}, {"NVIDIA H200", "H200-SXM5-141GB"},
      {"NVIDIA RTX A6000", "RTX-A6000-48GB"}};
  for (const auto& [driver, device] : names) {
    const auto found = Catalog::BuiltIn().FindDriverName(driver);
    ASSERT_TRUE(found.has_value()) << driver;
    EXPECT_EQ(found->name, device) << driver;
  }
  EXPECT_FALSE(Catalog::BuiltIn().FindDriverName("NVIDIA H1000").has_value());
  EXPECT_FALSE(Catalog::BuiltIn().FindDriverName("80GB").has_value());
}

TEST(Presets, NvlinkPayloadRateIsNcclsTable) {
  // NCCL: 12 * 20.0 = 240 (A100), 18 * 20.6 = 370.8 (H100), 8 * 20.6 = 164.8 (H800), 18 * 40.1 =
  // 721.8.
  const std::pair<const char*, double> expected[] = {{"a100-80g-ib-200g", 240},
                                                     {"h100-ib-400g", 370.8},
                                                     {"h800-ib-400g", 164.8},
                                                     {"b200-ib-400g", 721.8}};
  for (const auto& [name, rate] : expected) {
    const Spec spec = *FindPreset(name);
    const double payload = static_cast<double>(spec.nvlink_Bps) * 1e-9 * spec.nvlink_packet_bytes /
                           (spec.nvlink_packet_bytes + spec.nvlink_header_bytes);
    EXPECT_NEAR(payload, rate, 0.005 * rate) << name;
  }
}

TEST(Presets, UnknownNameSuggestsTheNearest) {
  const Result<Spec> spec = FindPreset("h100-ib-400");
  ASSERT_FALSE(spec.ok());
  EXPECT_THAT(spec.status().message(), HasSubstr("unknown cluster 'h100-ib-400'"));
  EXPECT_THAT(spec.status().message(), HasSubstr("h100-ib-400g"));
}

TEST(Cluster, CountsLinksOfTwoRailGroups) {
  // 64 nodes, 32 a leaf, 8 rails: 2 * 8 = 16 leaves, 32 spines (one per downlink at 1:1). Links: 4
  // per GPU = 2,048; 2 per NIC = 1,024; 2 * 16 * 32 = 1,024.
  const Cluster cluster = *Cluster::Build(H100(64));
  EXPECT_EQ(cluster.leaves(), 16);
  EXPECT_EQ(cluster.spines(), 32);
  EXPECT_EQ(cluster.links().size(), 4096u);
  EXPECT_EQ(cluster.leaf(cluster.nic(DeviceId(3))), 3u);            // node 0, rail 3
  EXPECT_EQ(cluster.leaf(cluster.nic(DeviceId(8 * 32 + 3))), 11u);  // node 32: second group, 8 + 3
}

TEST(Cluster, RoutesByNvlinkLeafAndSpine) {
  const Cluster cluster = *Cluster::Build(H100(64));
  using Kinds = std::vector<std::string>;
  EXPECT_EQ(RouteKinds(cluster, DeviceId(5), DeviceId(5)), Kinds());
  EXPECT_EQ(RouteKinds(cluster, DeviceId(0), DeviceId(7)), (Kinds{"nvlink", "nvlink"}));
  EXPECT_EQ(RouteKinds(cluster, DeviceId(0), DeviceId(8)),
            (Kinds{"pcie", "nic-up", "nic-down", "pcie"}));
  const Kinds far = {"pcie", "nic-up", "leaf-spine", "leaf-spine", "nic-down", "pcie"};
  EXPECT_EQ(RouteKinds(cluster, DeviceId(0), DeviceId(9)), far);       // another rail
  EXPECT_EQ(RouteKinds(cluster, DeviceId(0), DeviceId(8 * 40)), far);  // another group of 32
}

TEST(Cluster, EveryRouteIsConnected) {
  Spec spec = *FindPreset("gb200-nvl72-ib-400g");
  spec.nodes = 40;  // two racks and 4 trays: 160 GPUs, the last domain half filled
  const Cluster cluster = *Cluster::Build(spec);
  EXPECT_EQ(cluster.nvlink_domains(), 3u);
  std::vector<LinkId> path;
  for (std::size_t from = 0; from < cluster.devices(); from += 7) {
    for (std::size_t to = 0; to < cluster.devices(); to += 5) {
      if (from == to) continue;
      cluster.Route(DeviceId(from), DeviceId(to), 9, &path);
      auto at = static_cast<std::uint32_t>(from);
      for (LinkId id : path) {
        EXPECT_EQ(cluster.links()[id.index()].from, at);
        at = cluster.links()[id.index()].to;
      }
      EXPECT_EQ(at, to);
    }
  }
}

TEST(Cluster, OversubscriptionIsExact) {
  // 32 downlinks of 50 GB/s at 2:1: 16 spines, uplinks of 50 GB/s. At 3:1: ceil(32/3) = 11 spines
  // that share 32 * 50 / 3 = 533.3 GB/s: 48.48 GB/s each.
  Spec spec = H100(64);
  for (const auto& [ratio, spines, rate] :
       {std::tuple{2.0, 16, 50'000'000'000}, {3.0, 11, 48'484'848'484}}) {
    spec.oversubscription = ratio;
    const Cluster cluster = *Cluster::Build(spec);
    EXPECT_EQ(cluster.spines(), spines);
    EXPECT_EQ(cluster.links().back().kind, LinkKind::kLeafSpine);
    EXPECT_EQ(cluster.links().back().bandwidth_Bps, rate);
  }
}

TEST(Cluster, NamesVertices) {
  const Cluster cluster = *Cluster::Build(H100(64));  // 512 GPUs, 64 switches, 512 NICs, 16 leaves
  EXPECT_EQ(cluster.vertex_name(13), "node1/gpu5");
  EXPECT_EQ(cluster.vertex_name(512 + 3), "nvswitch3");
  EXPECT_EQ(cluster.vertex_name(576 + 9), "node1/nic1");
  EXPECT_EQ(cluster.vertex_name(1088 + 2), "leaf2");
  EXPECT_EQ(cluster.vertex_name(1104 + 31), "spine31");
}

TEST(Cluster, RefusesImpossibleSpecs) {
  const auto message = [](auto change) {
    Spec spec = H100(2);
    change(spec);
    const Result<Cluster> cluster = Cluster::Build(spec);
    return cluster.ok() ? std::string("accepted") : cluster.status().message();
  };
  EXPECT_EQ(message([](Spec& s) { s.nodes = 0; }), "nodes = 0: must be 1 to 1048576");
  EXPECT_EQ(
      message([](Spec& s) { s.nics_per_node = 3; }),
      "nics_per_node = 3: must divide gpus_per_node = 8; give several ports beside one GPU as one "
      "NIC with their summed rate");
  EXPECT_EQ(message([](Spec& s) { s.gpus_per_nvlink_domain = 12; }),
            "gpus_per_nvlink_domain = 12: must be a multiple or a divisor of gpus_per_node = 8");
  EXPECT_EQ(message([](Spec& s) { s.nic_Bps = 0; }),
            "nic_bandwidth = 0: must be above 0; give the line rate of one NIC");
  EXPECT_EQ(message([](Spec& s) { s.oversubscription = 0.5; }),
            "oversubscription = 0.5: must be 1 to 1024 (leaf down / up bandwidth)");
  EXPECT_EQ(message([](Spec& s) { s.nvlink_latency = -1; }),
            "nvlink_latency = -1 ps: must be 0 to 1 s");
}

TEST(Placement, PackedTakesTheLowestFreeDevices) {
  const Cluster cluster = *Cluster::Build(H100(2));
  Placement placement;
  const DeviceId taken[] = {DeviceId(1)};
  ASSERT_TRUE(Place(cluster, PlacementKind::kExplicit, 1, 0, taken, &placement).ok());
  ASSERT_TRUE(Place(cluster, PlacementKind::kPacked, 3, 0, {}, &placement).ok());
  EXPECT_THAT(placement.device,
              ::testing::ElementsAre(DeviceId(1), DeviceId(0), DeviceId(2), DeviceId(3)));
}

TEST(Placement, RandomKeepsNodesWholeAndFollowsTheSeed) {
  const Cluster cluster = *Cluster::Build(H100(16));
  Placement a, b, c;
  ASSERT_TRUE(Place(cluster, PlacementKind::kRandom, 32, 7, {}, &a).ok());
  ASSERT_TRUE(Place(cluster, PlacementKind::kRandom, 32, 7, {}, &b).ok());
  ASSERT_TRUE(Place(cluster, PlacementKind::kRandom, 32, 8, {}, &c).ok());
  EXPECT_EQ(a.device, b.device);
  EXPECT_NE(a.device, c.device);
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(a.device[i].index() % 8, i % 8);
  ASSERT_TRUE(Place(cluster, PlacementKind::kRandom, 95, 7, {}, &a).ok());  // fills no whole nodes
  EXPECT_EQ(std::set<DeviceId>(a.device.begin(), a.device.end()).size(), 127u);
}

TEST(Placement, Refusals) {
  const Cluster cluster = *Cluster::Build(H100(1));
  Placement placement;
  EXPECT_EQ(Place(cluster, PlacementKind::kPacked, 9, 0, {}, &placement).message(),
            "9 ranks need 9 GPUs, but 8 of the cluster's 8 are free; raise nodes");
  const DeviceId twice[] = {DeviceId(2), DeviceId(2)};
  EXPECT_EQ(Place(cluster, PlacementKind::kExplicit, 2, 0, twice, &placement).message(),
            "placement: device 2 is given to two ranks");
  const DeviceId beyond[] = {DeviceId(8)};
  EXPECT_EQ(Place(cluster, PlacementKind::kExplicit, 1, 0, beyond, &placement).message(),
            "placement: device 8 does not exist; the cluster has 0 to 7");
  EXPECT_TRUE(placement.device.empty());
}

}  // namespace
}  // namespace orrery::cluster
