// DCN+: what HPN replaced. All NICs of a segment's hosts under one leaf, or each NIC's two ports
// under the segment's two leaves (dual ToR); all leaves under the same spines. Source: Qian et al.,
// SIGCOMM 2024; SimAI's topology templates.
#include "orrery/cluster/topologies/topologies.h"

namespace orrery::cluster {

Result<AnyFabric> MakeDcnPlus(const Spec& spec) { return MakeClos(spec, {}); }

Result<AnyFabric> MakeDcnPlusDualTor(const Spec& spec) {
  return MakeClos(spec, {.ports = 2, .uplink_Bps = spec.nic_Bps});
}

}  // namespace orrery::cluster
