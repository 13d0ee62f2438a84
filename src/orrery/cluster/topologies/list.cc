// Every topology with its one sentence.
#include <array>

#include "orrery/base/hash.h"
#include "orrery/base/suggest.h"
#include "orrery/cluster/topologies/topologies.h"

namespace orrery::cluster {
namespace {

struct Row {
  TopologyInfo info;
  Result<AnyFabric> (*make)(const Spec&);
};

constexpr std::array kRows = {
    Row{{"rail-optimised",
         "NIC i of every host under leaf i of its group, leaves under spines (NVIDIA DGX "
         "SuperPOD)"},
        MakeRailOptimised},
    Row{{"fat-tree-2",
         "hosts under leaves, leaves under spines, any oversubscription (Leiserson 1985)"},
        MakeFatTree2},
    Row{{"fat-tree-3",
         "pods of leaves and spines under cores, any oversubscription (Al-Fares, SIGCOMM 2008)"},
        MakeFatTree3},
    Row{{"alibaba-hpn",
         "rails with dual ToR, one plane of spines (HPN, SIGCOMM 2024; SimAI's template)"},
        MakeAlibabaHpn},
    Row{{"alibaba-hpn-dual-plane",
         "rails with dual ToR, each port a plane of its own (HPN, SIGCOMM 2024)"},
        MakeAlibabaHpnDualPlane},
    Row{{"dcn-plus", "all NICs of a host under one leaf of its segment (DCN+, SimAI's template)"},
        MakeDcnPlus},
    Row{{"dcn-plus-dual-tor", "all NICs of a host under the two leaves of its segment (DCN+)"},
        MakeDcnPlusDualTor},
    Row{{"spectrum-x",
         "rail-optimised, single ToR, spines shared by all rails (NVIDIA Spectrum-X)"},
        MakeSpectrumX},
    Row{{"dragonfly",
         "groups of joined routers, all groups joined, minimal routes (Kim, ISCA 2008; Alps)"},
        MakeDragonfly},
    Row{{"torus", "a router a host in rings of 1 to 3 dimensions (Dally and Towles 2004)"},
        MakeTorus},
    Row{{"mesh", "a router a host in open lines of 1 to 3 dimensions (Dally and Towles 2004)"},
        MakeMesh},
    Row{{"astra-sim", "GPUs in dimensions of Ring, FullyConnected or Switch (ASTRA-sim 2.0)"},
        MakeAstraSim},
    Row{{"file", "a graph read from a SimAI, ns-3 or other topology file, routed by tables"},
        MakeImported},
};

constexpr auto kInfos = [] {
  std::array<TopologyInfo, kRows.size()> infos{};
  for (std::size_t i = 0; i < kRows.size(); ++i) infos[i] = kRows[i].info;
  return infos;
}();

}  // namespace

std::span<const TopologyInfo> Topologies() { return kInfos; }

Status CheckTopologyName(std::string_view name) {
  if (name.empty()) return {};
  std::array<std::string_view, kRows.size()> names;
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    names[i] = kRows[i].info.name;
    if (names[i] == name) return {};
  }
  return InvalidInput("{}", UnknownName("topology", name, names));
}

Result<AnyFabric> MakeFabric(const Spec& spec) {
  ORRERY_RETURN_IF_ERROR(CheckTopologyName(spec.topology.name));
  for (const Row& row : kRows) {
    if (row.info.name == spec.topology.name) return row.make(spec);
  }
  return spec.rail_optimised ? MakeRailOptimised(spec) : MakeFatTree2(spec);
}

std::uint64_t HashOf(const TopologySpec& t) {
  Hasher hash;
  hash.Add(std::string_view(t.name)).Add(t.routing).Add(t.spines).Add(t.uplink_Bps);
  hash.Add(t.cores).Add(t.core_Bps).Add(t.spine_latency).Add(t.core_latency).Add(t.nodes_per_pod);
  hash.Add(t.core_oversubscription).Add(t.nics_per_router).Add(t.routers_per_group);
  hash.Add(t.global_links).Add(t.graph.gpus).Add(t.graph.switches);
  for (const Dimension& d : t.dimensions) {
    hash.Add(d.kind).Add(d.size).Add(d.bandwidth_Bps).Add(d.latency);
  }
  for (const Link& l : t.graph.links) {
    hash.Add(l.kind).Add(l.from).Add(l.to).Add(l.bandwidth_Bps).Add(l.latency).Add(l.mtu_bytes);
  }
  return hash.value();
}

std::string_view Name(DimensionKind kind) {
  switch (kind) {
    case DimensionKind::kRing:
      return "Ring";
    case DimensionKind::kLine:
      return "Line";
    case DimensionKind::kFullyConnected:
      return "FullyConnected";
    case DimensionKind::kSwitch:
      return "Switch";
  }
  return "?";
}

std::string_view Name(Routing routing) {
  switch (routing) {
    case Routing::kEcmp:
      return "ecmp";
    case Routing::kStatic:
      return "static";
    case Routing::kRailLocal:
      return "rail-local";
    case Routing::kAdaptive:
      return "adaptive";
  }
  return "?";
}

}  // namespace orrery::cluster
