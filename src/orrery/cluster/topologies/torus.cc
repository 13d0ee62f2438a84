// Torus and mesh: one router a host with all its NICs; routers in rings (torus) or open lines
// (mesh) of 1 to 3 dimensions. Without sizes the routers stand in one line. Links take the NIC's
// rate times the NICs of a host unless a dimension says otherwise, so that a line carries what a
// host sends. Source: Dally and Towles, Principles and Practices of Interconnection Networks
// (2004), chapters 5 and 8.
#include "orrery/cluster/topologies/topologies.h"

namespace orrery::cluster {
namespace {

Result<AnyFabric> MakeRouters(const Spec& spec, DimensionKind kind) {
  Lattice::Shape s;
  s.dimensions = spec.topology.dimensions;
  if (s.dimensions.empty()) s.dimensions.push_back({.size = spec.nodes});
  if (s.dimensions.size() > 3) {
    return InvalidInput("topology.dimensions: {} are given; a torus or mesh has 1 to 3",
                        s.dimensions.size());
  }
  std::int64_t points = 1;
  for (Dimension& d : s.dimensions) {
    d.kind = kind;
    if (d.bandwidth_Bps == 0) d.bandwidth_Bps = spec.topology.uplink_Bps;
    if (d.bandwidth_Bps == 0) d.bandwidth_Bps = spec.nic_Bps * spec.nics_per_node;
    if (d.latency == 0) d.latency = spec.nic_latency;
    if (d.size < 1 || (points *= d.size) > (1 << 20)) {
      return InvalidInput(
          "topology.dimensions: a size of {}; sizes are above 0, their product at most {}", d.size,
          1 << 20);
    }
  }
  if (points < spec.nodes) {
    return InvalidInput("topology.dimensions: room for {} hosts, but nodes = {}; raise a size",
                        points, spec.nodes);
  }
  s.ends = static_cast<std::size_t>(spec.nodes) * static_cast<std::size_t>(spec.nics_per_node);
  s.ends_per_point = static_cast<std::size_t>(spec.nics_per_node);
  s.nic_Bps = spec.nic_Bps;
  s.latency = spec.nic_latency;
  s.mtu_bytes = spec.nic_mtu_bytes + spec.nic_header_bytes;
  return AnyFabric(Lattice(std::move(s)));
}

}  // namespace

Result<AnyFabric> MakeTorus(const Spec& spec) { return MakeRouters(spec, DimensionKind::kRing); }
Result<AnyFabric> MakeMesh(const Spec& spec) { return MakeRouters(spec, DimensionKind::kLine); }

}  // namespace orrery::cluster
