// Rail-optimised: NIC i of nodes_per_leaf hosts under one leaf; all leaves under the same spines.
// Two GPUs of one rail and group are one switch apart, all others three. The default. Source:
// NVIDIA DGX SuperPOD reference architecture (2023).
#include "orrery/cluster/topologies/topologies.h"

namespace orrery::cluster {

Result<AnyFabric> MakeRailOptimised(const Spec& spec) { return MakeClos(spec, {.rails = true}); }

}  // namespace orrery::cluster
