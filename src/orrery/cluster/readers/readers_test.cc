#include "orrery/cluster/readers/readers.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "orrery/base/rng.h"
#include "orrery/cluster/draw.h"
#include "orrery/cluster/survey.h"

namespace orrery::cluster {
namespace {

using ::testing::HasSubstr;

// Two servers of two GPUs, an NVSwitch each, one leaf a rail, one spine.
constexpr const char* kSimAi =
    "9 2 2 3 10 H100\n4 5 6 7 8\n"
    "0 4 2880Gbps 0.000025ms 0\n1 4 2880Gbps 0.000025ms 0\n"
    "2 5 2880Gbps 0.000025ms 0\n3 5 2880Gbps 0.000025ms 0\n"
    "0 6 400Gbps 0.0005ms 0\n2 6 400Gbps 0.0005ms 0\n"
    "1 7 400Gbps 0.0005ms 0\n3 7 400Gbps 0.0005ms 0\n"
    "6 8 400Gbps 0.0005ms 0\n7 8 400Gbps 0.0005ms 0\n";
constexpr const char* kNs3 =
    "4 1 3\n0\n1 0 100Gbps 0.001ms 0\n2 0 100Gbps 0.001ms 0\n0 3 100Gbps 1us 0\n";
constexpr const char* kAstra =
    "topology: [Ring, Switch]\nnpus_count: [4, 2]\nbandwidth: [100, 25.0]\nlatency: [500, "
    "1000.5]\n";
constexpr const char* kHtsim =
    "# k = 4\nNodes 16\nTiers 3\nPodsize 4\n"
    "Tier 0\nDownlink_speed_Gbps 100\nRadix_Down 2\nRadix_Up 2\nDownlink_Latency_ns 1000\n"
    "Tier 1\nDownlink_speed_Gbps 100\nRadix_Down 2\nRadix_Up 2\nDownlink_Latency_ns 1000\n"
    "Switch_Latency_ns 200\nTier 2\nDownlink_speed_Gbps 100\nRadix_Down 4\nDownlink_Latency_ns "
    "2000\n";
constexpr const char* kNccl =
    "<?xml version='1.0'?><system version='1'><cpu numaid='0' arch='x86_64' "
    "vendor='AuthenticAMD'>\n"
    "<pci busid='0' class='0x060400' link_speed='32.0 GT/s PCIe' link_width='16'>\n"
    "<pci busid='1' class='0x030200' link_speed='32.0 GT/s PCIe' link_width='16'>"
    "<gpu dev='0' sm='90'><nvlink target='f' count='18' tclass='0x068000'/></gpu></pci>\n"
    "<pci busid='2' class='0x020700' link_speed='32.0 GT/s PCIe' link_width='16'>"
    "<nic><net name='mlx5_0' dev='0' speed='400000' port='1'/></nic></pci></pci></cpu></system>";

Spec Base() { return *FindPreset("h100-ib-400g"); }

std::string ErrorOf(const std::string& text) {
  Spec spec = Base();
  const Status status = ApplyTopology(text, "x.topo", &spec);
  if (!status.ok()) return status.message();
  const Result<Cluster> cluster = Cluster::Build(spec);
  return cluster.ok() ? "accepted" : cluster.status().message();
}

TEST(Readers, SimAi) {
  Spec spec = Base();
  ASSERT_TRUE(ApplyTopology(kSimAi, "x.topo", &spec).ok());
  EXPECT_EQ(spec.nodes, 2);
  EXPECT_EQ(spec.gpus_per_nvlink_domain, 2);
  EXPECT_EQ(spec.nvlink_Bps, 360'000'000'000);
  EXPECT_EQ(spec.nvlink_latency, 50 * kNanosecond);
  EXPECT_EQ(spec.nic_Bps, 50'000'000'000);
  const Cluster cluster = *Cluster::Build(spec);
  EXPECT_EQ(cluster.links().size(), 20u);
  std::vector<LinkId> path;
  cluster.Route(DeviceId(0), DeviceId(1), 0, &path);
  ASSERT_EQ(path.size(), 2u);
  EXPECT_EQ(cluster.link_name(path[0]), "node0/gpu0/nvswitch0");
  cluster.Route(DeviceId(0), DeviceId(3), 7, &path);  // another rail: leaf, spine, leaf
  std::string names;
  for (const LinkId id : path) names += cluster.link_name(id) + " ";
  EXPECT_EQ(names, "node0/gpu0/switch0 switch0/switch2 switch2/switch1 switch1/node1/gpu1 ");
  EXPECT_EQ(SurveyOf(cluster).diameter_links, 4);
  EXPECT_THAT(DrawSvg(cluster), HasSubstr("switch2</text>"));
  EXPECT_THAT(DrawDot(cluster), HasSubstr("\"node0\" -- \"switch0\""));
}

TEST(Readers, Ns3WithSwitchesFirst) {
  Spec spec = Base();
  ASSERT_TRUE(ApplyTopology(kNs3, "x.topo", &spec).ok());
  EXPECT_EQ(spec.nodes, 3);
  EXPECT_EQ(spec.gpus_per_node, 1);
  EXPECT_EQ(spec.gpus_per_nvlink_domain, 1);
  EXPECT_EQ(spec.nic_latency, kMicrosecond);
  EXPECT_TRUE(Cluster::Build(spec).ok());
}

TEST(Readers, AstraSimCountsInGiB) {
  Spec spec = Base();
  ASSERT_TRUE(ApplyTopology(kAstra, "x.yml", &spec).ok());
  ASSERT_EQ(spec.topology.dimensions.size(), 2u);
  EXPECT_EQ(spec.topology.dimensions[0].bandwidth_Bps, std::int64_t{100} << 30);
  EXPECT_EQ(spec.topology.dimensions[1].latency, 1'000'500);
  EXPECT_EQ(Cluster::Build(spec)->links().size(), 16u + 16);
}

TEST(Readers, HtsimFatTree) {
  Spec spec = Base();
  ASSERT_TRUE(ApplyTopology(kHtsim, "x.topo", &spec).ok());
  const Cluster cluster = *Cluster::Build(spec);
  const Clos& clos = std::get<Clos>(cluster.fabric());
  EXPECT_EQ(clos.leaves(), 8u);
  EXPECT_EQ(clos.spines(), 8u);
  EXPECT_EQ(clos.cores(), 4u);
  // 1,000 + 1,000 + 2,000 ns each way and a spine's 200 ns twice, half of it on each of its links.
  std::vector<LinkId> path;
  cluster.Route(DeviceId(0), DeviceId(15), 0, &path);
  SimTime latency = 0;
  for (const LinkId id : path) latency += cluster.links()[id.index()].latency;
  EXPECT_EQ(latency, 8400 * kNanosecond);
}

// A file names its GPU in its first line or by NCCL's sm; what it begins with has such GPUs.
TEST(Readers, GpusOfAFile) {
  for (const auto& [text, preset] : {std::pair{"12 4 2 2 17 A100\n8 9 10 11\n", "a100-80g-ib-200g"},
                                     {"12 4 2 2 17 H20\r\n8 9 10 11\n", "h20-ib-400g"},
                                     {"12 4 17\n8 9 10 11\n", "h100-ib-400g"},
                                     {"<system><gpu sm='75'/></system>", "v100-32g-ib-100g"},
                                     {"<system><gpu sm='89'/></system>", "a100-80g-ib-200g"},
                                     {"<system><gpu sm='103'/></system>", "b200-ib-400g"},
                                     {"<system><gpu sm='60'/></system>", "v100-32g-ib-100g"},
                                     {"<system/>", "h100-ib-400g"}}) {
    const Result<std::string> found = PresetOf(text, "x");
    ASSERT_TRUE(found.ok()) << found.status().message();
    EXPECT_EQ(*found, preset) << text;
    EXPECT_TRUE(FindPreset(*found).ok());
  }
  const Result<std::string> unknown = PresetOf("12 4 2 2 17 H10\n8 9 10 11\n", "x.topo");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.status().message(),
            "x.topo:1: unknown GPU 'H10'; did you mean 'h100' or 'h20'? valid: v100, a100, "
            "a800, h100, h800, h20, h200, b200; or give a definition: preset of another, topology: "
            "{file: …}");
}

TEST(Readers, NcclXml) {
  Spec spec = Base();
  ASSERT_TRUE(ApplyTopology(kNccl, "x.xml", &spec).ok());
  EXPECT_EQ(spec.gpus_per_node, 1);
  EXPECT_EQ(spec.nics_per_node, 1);
  EXPECT_EQ(spec.nvlink_Bps, 450'000'000'000);
  EXPECT_EQ(spec.pcie_Bps, 48'000'000'000);
  EXPECT_TRUE(spec.cpu_is_amd);
}

// Two sockets; below the first a switch with a GPU and a NIC, and a GPU at the root complex.
constexpr char kNcclTree[] = R"(<system version="1">
<cpu numaid="0" vendor="GenuineIntel">
 <pci busid="0000:01:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
  <pci busid="0000:02:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
   <gpu dev="0" sm="80"/></pci>
  <pci busid="0000:03:00.0" class="0x020700" link_speed="16.0 GT/s PCIe" link_width="8">
   <nic><net name="mlx5_0" dev="0" speed="100000"/></nic></pci>
 </pci>
 <pci busid="0000:04:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
  <pci busid="0000:05:00.0" class="0x010802" link_speed="8.0 GT/s PCIe" link_width="4"/></pci>
 <pci busid="0000:06:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
  <gpu dev="1" sm="80"/></pci>
</cpu>
<cpu numaid="1" vendor="GenuineIntel">
 <pci busid="0000:82:00.0" class="0x030200" link_speed="8.0 GT/s PCIe" link_width="16">
  <gpu dev="2" sm="80"/></pci>
 <pci busid="0000:83:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
  <gpu dev="3" sm="80"/></pci>
</cpu></system>)";

TEST(Readers, NcclXmlsPcieTree) {
  Spec spec = *FindPreset("a100-80g-ib-200g");
  ASSERT_TRUE(ApplyTopology(kNcclTree, "x.xml", &spec).ok());
  EXPECT_EQ(spec.pcie_tree.tree, "(g:24 n:12):24 g:24 | g:12 g:24");  // the NVMe's switch left out
  EXPECT_TRUE(spec.pcie_tree.peers);
  EXPECT_EQ(spec.gpus_per_nvlink_domain, 4);
  spec.nodes = 2;
  const Result<Cluster> cluster = Cluster::Build(spec);
  ASSERT_TRUE(cluster.ok()) << cluster.status().message();
  EXPECT_EQ(cluster->nic_distance(DeviceId(0)), PcieDistance::kPix);
  EXPECT_EQ(cluster->nic_distance(DeviceId(1)), PcieDistance::kPhb);
  EXPECT_EQ(cluster->nic_distance(DeviceId(2)), PcieDistance::kSys);
}

// GPUs at two sockets, a NIC at the first one; `links` stands in each <gpu>, GPU by GPU.
std::string HostOf(const std::vector<std::string>& links, int sm, int nics = 1) {
  std::string text = "<system version='1'><cpu numaid='0' vendor='AuthenticAMD'>";
  for (int n = 0; n < nics; ++n) {
    text += fmt::format(
        "<pci busid='0000:f{:x}:00.0' class='0x020700' link_speed='16.0 GT/s PCIe' "
        "link_width='16'><nic><net name='m{}' dev='{}' speed='200000'/></nic></pci>",
        n, n, n);
  }
  for (std::size_t g = 0; g < links.size(); ++g) {
    if (g > 0 && 2 * g == links.size()) text += "</cpu><cpu numaid='1' vendor='AuthenticAMD'>";
    text += fmt::format(
        "<pci busid='0000:0{}:00.0' class='0x030200' link_speed='16.0 GT/s PCIe' link_width='16'>"
        "<gpu dev='{}' sm='{}'>{}</gpu></pci>",
        g, g, sm, links[g]);
  }
  return text + "</cpu></system>";
}

std::string Nvlink(int to, int count, const char* tclass = "0x030200") {
  return fmt::format("<nvlink target='0000:0{}:00.0' count='{}' tclass='{}'/>", to, count, tclass);
}

TEST(Readers, NvlinksGoByTheirTargets) {
  const auto read = [](const std::string& text) {
    Spec spec = *FindPreset("a100-80g-ib-200g");
    const Status status = ApplyTopology(text, "x.xml", &spec);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(Cluster::Build(spec).ok());
    return spec;
  };
  // To the GPU itself, to one that the file does not have, to a CPU: no link to another GPU.
  for (const std::string& none : {Nvlink(0, 12), Nvlink(9, 4), Nvlink(0, 4, "0x068001")}) {
    const Spec spec = read(HostOf({none, Nvlink(1, 12)}, 80));
    EXPECT_EQ(spec.pcie_tree.nvlinks, "");
    EXPECT_TRUE(spec.peers_over_pcie());
    EXPECT_EQ(spec.nvlink_Bps, 24'000'000'000);
  }
  const Spec pairs = read(HostOf({Nvlink(1, 12), Nvlink(0, 12), Nvlink(3, 12), Nvlink(2, 12)}, 80));
  EXPECT_EQ(pairs.pcie_tree.nvlinks, "0-1:12 2-3:12");
  EXPECT_EQ(pairs.nvlink_Bps, 300'000'000'000);
  EXPECT_TRUE(pairs.peers_over_pcie());
  const Spec switched = read(HostOf({Nvlink(9, 12, "0x068000"), Nvlink(9, 12, "0x068000")}, 80));
  EXPECT_EQ(switched.nvlink_Bps, 300'000'000'000);
  EXPECT_FALSE(switched.peers_over_pcie());
  Spec spec = *FindPreset("a100-80g-ib-200g");
  EXPECT_THAT(ApplyTopology(HostOf({Nvlink(9, 12, "0x068000"), ""}, 80), "x.xml", &spec).message(),
              HasSubstr("NVLinks to a switch at some <gpu> elements and none at others"));
}

TEST(Readers, AnyNumberOfNicsAGpu) {
  const auto read = [](int gpus, int nics) {
    Spec spec = *FindPreset("a100-80g-ib-200g");
    const Status status = ApplyTopology(
        HostOf(std::vector<std::string>(static_cast<std::size_t>(gpus)), 80, nics), "x", &spec);
    EXPECT_EQ(status.message(), "");
    EXPECT_TRUE(Cluster::Build(spec).ok());
    return spec;
  };
  const Spec sixteen = read(8, 16);  // two of 200 Gb/s a GPU
  EXPECT_EQ(sixteen.nics_per_node, 8);
  EXPECT_EQ(sixteen.nic_Bps, 50'000'000'000);
  EXPECT_EQ(sixteen.pcie_tree.tree,
            "n:48 n:48 n:48 n:48 n:48 n:48 n:48 n:48 g:24 g:24 g:24 g:24 | g:24 g:24 g:24 g:24");
  const Spec four = read(1, 4);
  EXPECT_EQ(four.nics_per_node, 1);
  EXPECT_EQ(four.nic_Bps, 100'000'000'000);
  EXPECT_EQ(read(8, 4).nics_per_node, 4);
  Spec spec = *FindPreset("a100-80g-ib-200g");
  EXPECT_THAT(
      ApplyTopology(HostOf({"", "", "", ""}, 80, 3), "x", &spec).message(),
      HasSubstr("x:1: 3 NICs for 4 GPUs: their numbers must divide one another; leave out"));
}

// As Azure's for ND A100 v4: GPUs and NICs by their PCI class alone.
TEST(Readers, NcclXmlWithoutGpuElements) {
  std::string text = "<system version='1'>";
  for (int socket = 0; socket < 4; ++socket) {
    text += fmt::format(
        "<cpu numaid='{}' arch='x86_64' vendor='AuthenticAMD'>"
        "<pci busid='ffff:ff:0{}.0' class='0x060400' link_speed='16 GT/s' "
        "link_width='16'>",
        socket, socket);
    for (int i = 0; i < 2; ++i) {
      text += fmt::format(
          "<pci busid='000{}:00:00.0' class='0x030200' link_speed='16 GT/s' link_width='16'/>"
          "<pci busid='010{}:00:00.0' class='0x020700' link_speed='16 GT/s' link_width='16'/>",
          2 * socket + i, 2 * socket + i);
    }
    text += "</pci></cpu>";
  }
  text += "<pci busid='1' class='0x030000'/></system>";  // the console's
  Spec spec = *FindPreset("a100-80g-ib-200g");
  ASSERT_EQ(ApplyTopology(text, "ndv4.xml", &spec).message(), "");
  EXPECT_EQ(spec.gpus_per_node, 8);
  EXPECT_EQ(spec.nics_per_node, 8);
  EXPECT_EQ(spec.nic_Bps, 25'000'000'000);      // the preset's
  EXPECT_EQ(spec.nvlink_Bps, 300'000'000'000);  // and its NVLink
  EXPECT_FALSE(spec.peers_over_pcie());
  EXPECT_EQ(spec.pcie_tree.tree,
            "(g:24 n:24 g:24 n:24):24 | (g:24 n:24 g:24 n:24):24 | (g:24 n:24 g:24 n:24):24 | "
            "(g:24 n:24 g:24 n:24):24");
  EXPECT_TRUE(Cluster::Build(spec).ok());
}

TEST(Readers, NcclGraphsAreNoTopology) {
  EXPECT_THAT(ErrorOf("<graphs version='1'><graph id='0'/></graphs>"),
              HasSubstr("x.topo:1: NCCL's graphs (NCCL_GRAPH_DUMP_FILE), which say no topology"));
}

TEST(Readers, ErrorsNameLineFieldValueAndRemedy) {
  EXPECT_EQ(ErrorOf("4 1 3\n0\n1 0 fast 1us 0\n").substr(0, 20), "x.topo:3: bandwidth:");
  EXPECT_EQ(ErrorOf("4 1 3\n0\n1 9 1Gbps 1us 0\n"),
            "x.topo:3: link's second end = '9': must be a whole number from 0 to 3");
  EXPECT_EQ(ErrorOf("4 1 3\n0\n1 0 1Gbps 1us 0\n"),
            "x.topo:1: links = 3: the file has 1; correct the number or the list");
  EXPECT_THAT(ErrorOf("3 1 1\n0\n1 0 1Gbps 1us 0\n"), HasSubstr("no path of switches leads from"));
  // GPUs forward nothing: what hangs on GPU 0 alone reaches no other GPU.
  EXPECT_THAT(ErrorOf("3 0 2\n\n0 1 1Gbps 1us 0\n0 2 1Gbps 1us 0\n"),
              HasSubstr("no path of switches leads from GPU 1 to GPU 2"));
  EXPECT_EQ(ErrorOf("3 0 3\n\n0 1 1Gbps 1us 0\n0 2 1Gbps 1us 0\n1 2 1Gbps 1us 0\n"), "accepted");
  // Two GPUs at the ends of a chain of switches.
  const auto chain = [](int switches) {
    std::string text = fmt::format("{} {} {}\n", switches + 2, switches, switches + 1);
    for (int s = 0; s < switches; ++s) text += fmt::format("{} ", s);
    text += fmt::format("\n{} 0 1Gbps 1us 0\n", switches);
    for (int s = 1; s < switches; ++s) text += fmt::format("{} {} 1Gbps 1us 0\n", s - 1, s);
    return text + fmt::format("{} {} 1Gbps 1us 0\n", switches - 1, switches + 1);
  };
  EXPECT_EQ(ErrorOf(chain(251)), "accepted");
  EXPECT_THAT(ErrorOf(chain(252)), HasSubstr("switches 0 and 251 are more than 250 links apart"));
  EXPECT_THAT(ErrorOf("Nodes 8\nTiers 2\nTier 0\nDownlink_speed_Gbps 100\nRadix_Down 4\n"
                      "Radix_Up 4194304\nTier 1\nDownlink_speed_Gbps 4194304\nRadix_Down 4\n"
                      "Bundle 4194304\n"),
              HasSubstr("x.topo:7: bundle = 4194304: so many links"));
  EXPECT_THAT(ErrorOf("topology: [Rng]\nnpus_count: [2]\nbandwidth: [1]\nlatency: [1]\n"),
              HasSubstr("unknown dimension 'Rng'; did you mean 'Ring'"));
  EXPECT_THAT(ErrorOf("Nodes 8\nTiers 2\nTier 0\nRadix_Dwn 4\nTier 1\n"),
              HasSubstr("x.topo:4: unknown key 'radix_dwn'; did you mean 'radix_down'"));
  EXPECT_THAT(ErrorOf("<!DOCTYPE a [<!ENTITY b 'c'>]><system/>"),
              HasSubstr("a document type declaration; remove it"));
  EXPECT_THAT(ErrorOf("<system><gpu sm='x'/></system>"),
              HasSubstr("x.topo:1: sm = 'x' of <gpu>: must be a whole number"));
  std::string deep = "<system>";
  for (int i = 0; i < 100; ++i) deep += "<a>";
  EXPECT_THAT(ErrorOf(deep), HasSubstr("elements nest deeper than 64"));
}

// Bytes cut, changed and repeated end in an answer or an error.
TEST(Readers, DamagedFilesEnd) {
  CounterRng rng(3);
  for (const char* sample : {kSimAi, kNs3, kAstra, kHtsim, kNccl}) {
    for (int round = 0; round < 300; ++round) {
      std::string text = sample;
      for (std::uint64_t n = 1 + rng.Below(4); n > 0; --n) {
        const std::size_t at = rng.Below(text.size());
        switch (rng.Below(3)) {
          case 0:
            text[at] = static_cast<char>("0123456789 <>/\n-x,[]"[rng.Below(20)]);
            break;
          case 1:
            text.resize(at + 1);
            break;
          default:
            text.insert(at, text.substr(at / 2, 6));
        }
      }
      EXPECT_FALSE(ErrorOf(text).empty());
    }
  }
}

}  // namespace
}  // namespace orrery::cluster
