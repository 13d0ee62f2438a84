// Spectrum-X: Ethernet, rail-optimised, one ToR a rail and group, spines shared by all rails. What
// sets it apart in hardware is per-packet adaptive routing (routing: adaptive), not its wiring.
// Source: NVIDIA Spectrum-X reference architecture; SimAI's topology templates.
#include "orrery/cluster/topologies/topologies.h"

namespace orrery::cluster {

Result<AnyFabric> MakeSpectrumX(const Spec& spec) { return MakeClos(spec, {.rails = true}); }

}  // namespace orrery::cluster
