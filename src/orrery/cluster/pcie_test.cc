#include "orrery/cluster/pcie.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "orrery/cluster/cluster.h"
#include "orrery/cluster/detour.h"
#include "orrery/cluster/draw.h"
#include "orrery/cluster/survey.h"

namespace orrery::cluster {
namespace {

using ::testing::HasSubstr;

Spec Pcie(const std::string& tree, int nodes = 2) {
  Spec spec = *FindPreset("h100-pcie-ib-400g");  // 8 GPUs, 2 NICs
  spec.nodes = nodes;
  spec.pcie_tree.tree = tree;
  return spec;
}

std::string Way(const Cluster& cluster, std::size_t from, std::size_t to, std::uint64_t salt = 0) {
  std::vector<LinkId> path;
  cluster.Route(DeviceId(from), DeviceId(to), salt, &path);
  std::string names;
  for (const LinkId id : path) {
    const Link& link = cluster.links()[id.index()];
    names += names.empty() ? cluster.vertex_name(link.from) : "";
    names += " > " + cluster.vertex_name(link.to);
  }
  return names;
}

constexpr char kTwoSockets[] = "(g g n) (g g) | (g g n) (g g)";

TEST(PcieTree, RoutesThroughTheLowestCommonSwitch) {
  const Cluster cluster = *Cluster::Build(Pcie(kTwoSockets));
  EXPECT_EQ(Way(cluster, 0, 1), "node0/gpu0 > node0/switch0 > node0/gpu1");
  EXPECT_EQ(Way(cluster, 1, 2),
            "node0/gpu1 > node0/switch0 > node0/root0 > node0/switch1 > node0/gpu2");
  EXPECT_EQ(Way(cluster, 9, 14),
            "node1/gpu1 > node1/switch0 > node1/root0 > node1/root1 > node1/switch3 > node1/gpu6");
  // To its NIC and from there: GPU 2's is below another switch.
  EXPECT_EQ(Way(cluster, 2, 8),
            "node0/gpu2 > node0/switch1 > node0/root0 > node0/switch0 > node0/nic0 > leaf0 > "
            "node1/nic0 > node1/switch0 > node1/gpu0");
  using enum PcieDistance;
  EXPECT_EQ(cluster.peer_distance(DeviceId(0), DeviceId(1)), kPix);
  EXPECT_EQ(cluster.peer_distance(DeviceId(1), DeviceId(2)), kPhb);
  EXPECT_EQ(cluster.peer_distance(DeviceId(3), DeviceId(4)), kSys);
  EXPECT_EQ(cluster.nic_distance(DeviceId(1)), kPix);
  EXPECT_EQ(cluster.nic_distance(DeviceId(2)), kPhb);
}

// Bridges join GPUs 0 and 1, 2 and 3; the way between the pairs is PCIe's.
TEST(PcieTree, NvlinksJoinSomeGpus) {
  Spec spec = Pcie("g g n | g g n", 1);
  spec.gpus_per_node = spec.gpus_per_nvlink_domain = 4;
  spec.pcie_tree.peers = true;
  spec.pcie_tree.nvlinks = "0-1:12, 2-3:6";
  spec.nvlink_Bps = 300'000'000'000;
  const Cluster cluster = *Cluster::Build(spec);
  EXPECT_EQ(Way(cluster, 0, 1), "node0/gpu0 > node0/gpu1");
  EXPECT_EQ(Way(cluster, 1, 2), "node0/gpu1 > node0/root0 > node0/root1 > node0/gpu2");
  std::vector<LinkId> path;
  cluster.Route(DeviceId(3), DeviceId(2), 0, &path);  // half of the links
  EXPECT_EQ(2 * cluster.links()[path[0].index()].bandwidth_Bps,
            cluster.spec().nvlink_reached_Bps());
  EXPECT_THAT(DrawSvg(cluster), HasSubstr("gpu3"));
  const auto error = [&](const char* text) {
    spec.pcie_tree.nvlinks = text;
    return Cluster::Build(spec).status().message();
  };
  EXPECT_EQ(error("0-4"), "pcie_tree.nvlinks = '0-4': '0-4': a host has the GPUs 0 to 3");
  EXPECT_THAT(error("0-1 1-0:2"), HasSubstr("'1-0:2': this pair stands there before"));
  EXPECT_THAT(error("1-1:12"), HasSubstr("joins a GPU to itself; leave it out"));
  EXPECT_THAT(error("0-1:x"), HasSubstr("must be two GPUs and their links, as in 0-1:12"));
  EXPECT_THAT(error("0,1"), HasSubstr("'0': must be as in 0-1:12"));
}

TEST(NvlinkMesh, RingsOfPairsCliquesAndTheCubeMesh) {
  const auto rings = [](const char* text, int gpus, std::vector<std::uint32_t> of) {
    return NvlinkMesh::Parse(text, gpus)->Rings(of).size();
  };
  EXPECT_EQ(rings("0-1:12 2-3:12", 4, {0, 1}), 12u);
  EXPECT_EQ(rings("0-1:12 2-3:12", 4, {0, 1, 2}), 0u);
  // Four A100 with four links between any two: all twelve of each are taken.
  const char* clique = "0-1:4 0-2:4 0-3:4 1-2:4 1-3:4 2-3:4";
  EXPECT_EQ(rings(clique, 4, {0, 1, 2, 3}), 12u);
  EXPECT_EQ(rings(clique, 4, {0, 1, 3}), 8u);
  EXPECT_EQ(rings(clique, 4, {1, 2}), 4u);
  // DGX-1 with V100: six links a GPU.
  const char* cube =
      "0-1 0-2 0-3:2 0-4:2 1-2:2 1-3 1-5:2 2-3:2 2-6 3-7 4-5 4-6 4-7:2 5-6:2 5-7 6-7:2";
  EXPECT_EQ(rings(cube, 8, {0, 1, 2, 3, 4, 5, 6, 7}), 6u);
  EXPECT_EQ(rings(cube, 8, {0, 1, 2, 3}), 4u);
  EXPECT_EQ(rings(cube, 8, {0, 5}), 0u);
}

TEST(PcieTree, SwitchesInSwitchesAndRates) {
  const Cluster cluster = *Cluster::Build(Pcie("((g g n:12) (g g:6.5):24) | (g g n) g g", 1));
  using enum PcieDistance;
  EXPECT_EQ(cluster.peer_distance(DeviceId(1), DeviceId(2)), kPxb);
  EXPECT_EQ(cluster.nic_distance(DeviceId(2)), kPxb);
  EXPECT_EQ(cluster.peer_distance(DeviceId(6), DeviceId(7)), kPhb);  // both at the root complex
  EXPECT_EQ(Way(cluster, 6, 7), "node0/gpu6 > node0/root1 > node0/gpu7");
  EXPECT_EQ(cluster.links()[cluster.pcie_out(DeviceId(3)).index()].bandwidth_Bps, 6'500'000'000);
  // The worst ways: a GPU of 6.5 GB/s from PIX on; NIC 0's link has 12, and so has PXB.
  const PcieTreeSpec& t = cluster.spec().pcie_tree;
  EXPECT_EQ(t.peer[0].least_Bps, 6'500'000'000);
  EXPECT_EQ(t.nic[0].least_Bps, 12'000'000'000);
  EXPECT_EQ(t.nic[1].least_Bps, 6'500'000'000);
  EXPECT_EQ(t.gpu_Bps, 6'500'000'000);
  EXPECT_GT(t.nic[1].latency, t.nic[0].latency);
}

TEST(PcieTree, LatencyOfPixIsPcieLatency) {
  Spec spec = Pcie(kTwoSockets);
  const Cluster cluster = *Cluster::Build(spec);
  EXPECT_EQ(cluster.spec().pcie_tree.nic[0].latency, spec.pcie_latency);
  // Two uplinks more.
  EXPECT_EQ(cluster.spec().pcie_tree.nic[2].latency, spec.pcie_latency + 300 * kNanosecond);
}

TEST(PcieTree, WithoutOneAllStaysAsItWas) {
  Spec spec = Pcie("");
  const Cluster cluster = *Cluster::Build(spec);
  EXPECT_FALSE(cluster.pcie_tree().any());
  EXPECT_EQ(Way(cluster, 0, 1), "node0/gpu0 > nvswitch0 > node0/gpu1");
  EXPECT_EQ(Way(cluster, 2, 8), "node0/gpu2 > node0/nic0 > leaf0 > node1/nic0 > node1/gpu0");
}

TEST(PcieTree, PeersOverNvlinkKeepIt) {
  Spec spec = *FindPreset("h100-ib-400g");
  spec.nodes = 2;
  spec.pcie_tree.name = "switch-per-pair";
  const Cluster cluster = *Cluster::Build(spec);
  EXPECT_EQ(cluster.pcie_tree().text(), "(g n g n) (g n g n) | (g n g n) (g n g n)");
  EXPECT_EQ(Way(cluster, 0, 1), "node0/gpu0 > nvswitch0 > node0/gpu1");
  EXPECT_EQ(Way(cluster, 0, 8),
            "node0/gpu0 > node0/switch0 > node0/nic0 > leaf0 > node1/nic0 > node1/switch0 > "
            "node1/gpu0");
}

TEST(PcieTree, NamedTreesFitAnyHost) {
  for (const PcieTreeInfo& info : PcieTrees()) {
    for (const auto& [gpus, nics] : {std::pair{1, 1}, {2, 1}, {4, 4}, {6, 3}, {8, 1}, {16, 8}}) {
      Spec spec = Pcie("", 2);
      spec.gpus_per_node = gpus;
      spec.gpus_per_nvlink_domain = gpus;
      spec.nics_per_node = nics;
      spec.pcie_tree.name = info.name;
      const Result<Cluster> cluster = Cluster::Build(spec);
      ASSERT_TRUE(cluster.ok()) << info.name << ": " << cluster.status().message();
      std::vector<LinkId> path;
      for (int a = 0; a < 2 * gpus; ++a) {
        for (int b = 0; b < 2 * gpus; ++b) {
          if (a == b) continue;
          cluster->Route(DeviceId(std::size_t(a)), DeviceId(std::size_t(b)), 5, &path);
          std::uint32_t at = static_cast<std::uint32_t>(a);
          for (const LinkId id : path) {
            ASSERT_EQ(cluster->links()[id.index()].from, at);
            at = cluster->links()[id.index()].to;
          }
          EXPECT_EQ(at, static_cast<std::uint32_t>(b));
        }
      }
    }
  }
}

TEST(PcieTree, ExchangeStretchIsThatOfTheBusiestLink) {
  Spec spec = Pcie(kTwoSockets);
  spec.pcie_tree.socket_Bps = spec.pcie_Bps;
  const Cluster cluster = *Cluster::Build(spec);
  const std::uint32_t all[] = {0, 1, 2, 3, 4, 5, 6, 7};
  // 4 · 4 pairs cross the socket link one way; a GPU sends 7 messages: 16 / 7 = 2.2857.
  EXPECT_EQ(cluster.pcie_tree().ExchangeStretch(cluster.spec(), all), 2340u);
  EXPECT_EQ(cluster.pcie_tree().ExchangeStretch(cluster.spec(), std::span(all, 2)), 1024u);
}

TEST(PcieTree, ErrorsNameTheKeyThePlaceAndTheRemedy) {
  const auto error = [](const std::string& tree) { return Validate(Pcie(tree)).message(); };
  EXPECT_EQ(error("(g g n) x"),
            "pcie_tree.tree = '(g g n) x', character 9: must be g (a GPU), n (a NIC), ( ) or |");
  EXPECT_THAT(error("(g g n) (g g"), HasSubstr("character 13: a switch is not closed"));
  EXPECT_THAT(error("g) g"), HasSubstr("character 2: closes no switch"));
  EXPECT_THAT(error("g:0 g"), HasSubstr("a rate is GB/s above 0"));
  EXPECT_EQ(error("(g g n n)"), "pcie_tree.tree = '(g g n n)': 2 GPUs (g), but gpus_per_node = 8");
  EXPECT_THAT(error("g g g g g g g g n"), HasSubstr("1 NICs (n), but nics_per_node = 2"));
  Spec spec = Pcie("");
  spec.pcie_tree.name = "switch-per-par";
  EXPECT_THAT(Validate(spec).message(), HasSubstr("did you mean 'switch-per-pair'"));
  spec = Pcie(kTwoSockets);
  spec.gpus_per_nvlink_domain = 16;
  EXPECT_THAT(Validate(spec).message(), HasSubstr("PCIe ends at the host"));
}

TEST(PcieTree, OneHostIsDrawnFromInside) {
  const Cluster host = *Cluster::Build(Pcie(kTwoSockets, 1));
  const std::string dot = DrawDot(host);
  EXPECT_THAT(dot, HasSubstr("\"gpu0\" -- \"switch0\""));
  EXPECT_THAT(dot, HasSubstr("\"switch0\" -- \"root0\""));
  EXPECT_THAT(dot, HasSubstr("\"root0\" -- \"root1\""));
  EXPECT_THAT(dot, testing::Not(HasSubstr("leaf")));
  EXPECT_THAT(DrawSvg(host), HasSubstr("switch3</text>"));
  EXPECT_THAT(DrawDot(*Cluster::Build(Pcie(kTwoSockets, 4))), HasSubstr("\"node0\" -- \"leaf0\""));
  // The survey is of the network, as without a tree.
  EXPECT_EQ(SurveyOf(*Cluster::Build(Pcie(kTwoSockets, 4))).diameter_links,
            SurveyOf(*Cluster::Build(Pcie("", 4))).diameter_links);
}

TEST(PcieTree, DetoursKnowTheHost) {
  Spec spec = *FindPreset("h100-ib-400g");
  spec.nodes = 4;
  spec.nodes_per_leaf = 2;
  spec.pcie_tree.name = "switch-per-pair";
  const Cluster cluster = *Cluster::Build(spec);
  Detours detours(cluster);
  std::vector<bool> down(cluster.links().size(), false);
  std::vector<LinkId> path;
  // All but one spine of the leaf are gone: no hash of 32 need find it, the search does.
  cluster.Route(DeviceId(0), DeviceId(24), 0, &path);
  const std::uint32_t leaf = cluster.links()[path[3].index()].to;
  bool left = true;
  for (std::size_t l = 0; l < down.size(); ++l) {
    const Link& link = cluster.links()[l];
    if (link.kind != LinkKind::kLeafSpine || link.from != leaf) continue;
    down[l] = !left;
    left = false;
  }
  EXPECT_TRUE(detours.Find(DeviceId(0), DeviceId(24), 0, down, &path));
  path.clear();
  EXPECT_TRUE(detours.FindFrom(0, DeviceId(24), 0, down, &path));
  EXPECT_EQ(cluster.links()[path.back().index()].to, 24u);
}

}  // namespace
}  // namespace orrery::cluster
