// Topology files of other tools: what they mean for a cluster.
//
// Each reader changes a Spec that the caller began (a preset: GPU, packet sizes, NVLink's header).
// What a file does not say stays as it was. One file each:
//
// - ns3: SimAI's and ns-3's topology, a graph. GPUs are the nodes that are no switches, in order;
//   links to NVSwitches are NVLink, all others the network's. A NIC is the GPU's end of a link.
//
// - astra_sim: ASTRA-sim's analytical network, YAML, as topology astra-sim. A GB is 2^30 bytes.
//
// - htsim: a .topo file, a fat tree of 2 or 3 tiers whose hosts have one GPU and one NIC. A bundle
//   is one link of the sum of its rates; half a switch's latency stands with each of its links.
//
// - nccl_xml: NCCL's topology of one host, with its GPUs, NVLinks, PCIe, NICs and CPU; the fabric
//   stays as it was.
//
// Errors name file:line, field, value and remedy. Reading is bounded by kTopologyBytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "orrery/cluster/cluster.h"

namespace orrery::cluster {

inline constexpr std::int64_t kTopologyBytes = 256 << 20;

enum class TopologyFile : std::uint8_t { kUnknown, kNs3, kAstraSim, kHtsim, kNcclXml };
std::string_view Name(TopologyFile kind);

// By contents alone; `text` may be the beginning of the file.
TopologyFile SniffTopology(std::string_view text);

// The preset that a topology file changes where the user names none: that of the GPU which the file
// states (data/topology_gpus.yaml), h100-ib-400g where it states none. A GPU that the table lacks
// is an error that lists those it has; `name` stands for the file there. `text` may be the
// beginning of the file.
Result<std::string> PresetOf(std::string_view text, const std::string& name);

// Hosts that the topology itself says, by its file or its sizes; 0: none.
int StatedNodes(const Spec& spec);

// `name` stands for the file in errors and in spec->topology.file.
Status ApplyTopology(std::string_view text, const std::string& name, Spec* spec);

// One kind each. REQUIRES: the text is of that kind.
Status ApplyNs3(std::string_view text, const std::string& name, Spec* spec);
Status ApplyAstraSim(std::string_view text, const std::string& name, Spec* spec);
Status ApplyHtsim(std::string_view text, const std::string& name, Spec* spec);
Status ApplyNcclXml(std::string_view text, const std::string& name, Spec* spec);

}  // namespace orrery::cluster
