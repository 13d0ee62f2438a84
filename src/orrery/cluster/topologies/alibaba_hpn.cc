// Alibaba HPN: rails, and each NIC's two ports under two leaves (dual ToR). A segment has two
// leaves a rail; uplinks run at the NIC's full rate, twice a port's. Single plane: every leaf meets
// every spine. Dual plane: port k's leaves meet only the spines of plane k, so a flow keeps its
// plane to the end. As built: 128 hosts of 8 GPUs a segment, 15 segments a pod, 60 spines a plane.
// Source: Qian et al., "Alibaba HPN", SIGCOMM 2024; SimAI's topology templates.
#include "orrery/cluster/topologies/topologies.h"

namespace orrery::cluster {

Result<AnyFabric> MakeAlibabaHpn(const Spec& spec) {
  return MakeClos(spec, {.rails = true, .ports = 2, .uplink_Bps = spec.nic_Bps});
}

Result<AnyFabric> MakeAlibabaHpnDualPlane(const Spec& spec) {
  return MakeClos(spec, {.rails = true, .ports = 2, .planes = 2, .uplink_Bps = spec.nic_Bps});
}

}  // namespace orrery::cluster
