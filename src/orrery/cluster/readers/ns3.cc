// SimAI's and ns-3's topology file.
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "orrery/cluster/readers/readers.h"
#include "orrery/formats/network_text.h"

namespace orrery::cluster {
namespace {

constexpr std::uint32_t kMaxGpus = 1 << 20;

// From the file's ids to ours: GPUs first, then switches, each in the file's order.
std::vector<std::uint32_t> Number(const formats::Ns3Topology& file, std::uint32_t gpus) {
  std::vector<std::uint32_t> number(file.nodes, 0);
  std::uint32_t next = gpus;
  for (const std::uint32_t id : file.switches) number[id] = next++;
  next = 0;
  for (std::uint32_t id = 0; id < file.nodes; ++id) {
    if (number[id] == 0) number[id] = next++;
  }
  return number;
}

// What a GPU has of NVLink and of the network, in sum; the most of all GPUs.
void SetRates(const Graph& graph, Spec* spec) {
  std::vector<std::int64_t> nvlink(graph.gpus, 0), nic(graph.gpus, 0);
  SimTime nvlink_latency = 0, nic_latency = 0;
  for (const Link& l : graph.links) {
    if (l.from >= graph.gpus) continue;
    const bool nv = l.kind == LinkKind::kNvlink;
    (nv ? nvlink : nic)[l.from] += l.bandwidth_Bps;
    (nv ? nvlink_latency : nic_latency) = l.latency;
  }
  spec->nvlink_Bps = *std::max_element(nvlink.begin(), nvlink.end());
  spec->nvlink_latency = 2 * nvlink_latency;
  if (spec->nvlink_Bps == 0) spec->gpus_per_nvlink_domain = 1;
  const std::int64_t rate = *std::max_element(nic.begin(), nic.end());
  if (rate > 0) {
    spec->nic_Bps = spec->pcie_Bps = rate;  // the file has no PCIe
    spec->nic_latency = nic_latency;
    spec->pcie_latency = 0;
  }
}

}  // namespace

Status ApplyNs3(std::string_view text, const std::string& name, Spec* spec) {
  ORRERY_ASSIGN_OR_RETURN(const formats::Ns3Topology file, formats::ParseNs3Topology(text, name));
  Graph graph;
  graph.switches = static_cast<std::uint32_t>(file.switches.size());
  graph.gpus = file.nodes - graph.switches;
  if (graph.gpus > kMaxGpus) {
    return InvalidInput("{}:1: nodes = {}: more than {} GPUs", name, file.nodes, kMaxGpus);
  }
  const auto host = static_cast<std::uint32_t>(spec->gpus_per_node);
  const std::uint32_t per_server =
      file.simai ? file.gpus_per_server : (graph.gpus % host == 0 ? host : 1);
  if (per_server == 0 || graph.gpus % per_server != 0) {
    return InvalidInput("{}:1: gpus_per_server = {}: must divide the {} GPUs", name, per_server,
                        graph.gpus);
  }
  const std::vector<std::uint32_t> number = Number(file, graph.gpus);
  const std::uint32_t first_network = graph.gpus + file.nvswitches;
  for (std::uint32_t s = 0; s < graph.switches; ++s) {
    graph.names.push_back(s < file.nvswitches ? fmt::format("nvswitch{}", s)
                                              : fmt::format("switch{}", s - file.nvswitches));
  }
  const std::int32_t mtu = spec->nic_mtu_bytes + spec->nic_header_bytes;
  for (const formats::Ns3Topology::Cable& cable : file.cables) {
    Link link{.from = number[cable.a],
              .to = number[cable.b],
              .bandwidth_Bps = cable.bandwidth_Bps,
              .latency = cable.latency,
              .mtu_bytes = mtu};
    const bool nvlink =
        std::max(link.from, link.to) >= graph.gpus && std::max(link.from, link.to) < first_network;
    for (int way = 0; way < 2; ++way, std::swap(link.from, link.to)) {
      link.kind = nvlink                   ? LinkKind::kNvlink
                  : link.from < graph.gpus ? LinkKind::kNicUp
                  : link.to < graph.gpus   ? LinkKind::kNicDown
                                           : LinkKind::kLeafSpine;
      if (nvlink) link.mtu_bytes = spec->nvlink_packet_bytes + spec->nvlink_header_bytes;
      graph.links.push_back(link);
    }
  }
  spec->nodes = static_cast<int>(graph.gpus / per_server);
  spec->gpus_per_node = spec->nics_per_node = static_cast<int>(per_server);
  spec->gpus_per_nvlink_domain = spec->gpus_per_node;
  SetRates(graph, spec);
  spec->topology.name = "file";
  spec->topology.graph = std::move(graph);
  return {};
}

}  // namespace orrery::cluster
