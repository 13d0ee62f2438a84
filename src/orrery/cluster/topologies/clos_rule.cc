// From a Spec to a Clos. See topologies.h.
#include <algorithm>
#include <cmath>

#include "orrery/cluster/topologies/topologies.h"

namespace orrery::cluster {

Result<AnyFabric> MakeClos(const Spec& spec, const ClosRule& rule) {
  const TopologySpec& t = spec.topology;
  Clos::Shape s;
  s.nodes = spec.nodes;
  s.nics_per_node = spec.nics_per_node;
  s.nodes_per_leaf = spec.nodes_per_leaf;
  s.rails = rule.rails ? spec.nics_per_node : 1;
  s.ports = rule.ports;
  s.planes = rule.planes;
  s.port_Bps = spec.nic_Bps / rule.ports;
  s.latency = spec.nic_latency;
  s.spine_latency = t.spine_latency > 0 ? t.spine_latency : spec.nic_latency;
  s.core_latency = t.core_latency > 0 ? t.core_latency : spec.nic_latency;
  s.mtu_bytes = spec.nic_mtu_bytes + spec.nic_header_bytes;
  const int segments = (spec.nodes + spec.nodes_per_leaf - 1) / spec.nodes_per_leaf;
  if (t.nodes_per_pod > 0) {
    if (t.nodes_per_pod % spec.nodes_per_leaf != 0) {
      return InvalidInput("topology.nodes_per_pod = {}: must be a multiple of nodes_per_leaf = {}",
                          t.nodes_per_pod, spec.nodes_per_leaf);
    }
    s.segments_per_pod = std::min(segments, t.nodes_per_pod / spec.nodes_per_leaf);
  }
  // Downlinks of a full leaf, in ports.
  const double down = static_cast<double>(std::min(spec.nodes, spec.nodes_per_leaf)) *
                      (rule.rails ? 1 : spec.nics_per_node);
  const double rate = static_cast<double>(s.port_Bps);
  const bool above = static_cast<std::int64_t>(segments) * s.rails * s.ports > s.planes;
  if (above) {
    const double share = rule.uplink_Bps > 0 ? rate / static_cast<double>(rule.uplink_Bps) : 1;
    s.spines = t.spines > 0
                   ? t.spines
                   : std::max(1, static_cast<int>(std::ceil(down * share / spec.oversubscription)));
    s.spine_Bps =
        t.uplink_Bps > 0
            ? t.uplink_Bps
            : std::max<std::int64_t>(
                  1, static_cast<std::int64_t>(rate * down / spec.oversubscription / s.spines));
  }
  if (s.segments_per_pod > 0 && s.segments_per_pod < segments) {
    const double per_pod = static_cast<double>(s.segments_per_pod) * s.rails *
                           (s.planes > 1 ? 1 : s.ports);  // leaves under one spine
    s.cores = t.cores > 0
                  ? t.cores
                  : std::max(1, static_cast<int>(std::ceil(per_pod / t.core_oversubscription)));
    s.core_Bps = t.core_Bps > 0
                     ? t.core_Bps
                     : std::max<std::int64_t>(
                           1, static_cast<std::int64_t>(static_cast<double>(s.spine_Bps) * per_pod /
                                                        t.core_oversubscription / s.cores));
  }
  return AnyFabric(Clos(s));
}

}  // namespace orrery::cluster
