// ASTRA-sim's compositions: GPU r stands at the digits of r, dimension 0 fastest; each dimension
// joins the GPUs that differ in that digit alone by a ring, a full mesh or a switch. GPUs forward
// for each other. There is no NVLink, PCIe or NIC beside these links. Differences to the original:
// links carry both directions at full rate at once, and a path that differs in several digits pays
// for every one. Source: Won et al., "ASTRA-sim2.0", ISPASS 2023; its analytical network's YAML.
#include "orrery/cluster/topologies/topologies.h"

namespace orrery::cluster {

Result<AnyFabric> MakeAstraSim(const Spec& spec) {
  Lattice::Shape s;
  s.dimensions = spec.topology.dimensions;
  s.points_are_gpus = true;
  if (s.dimensions.empty() || s.dimensions.size() > Lattice::kMostDimensions) {
    return InvalidInput("topology.dimensions: {} are given; astra-sim takes 1 to {}",
                        s.dimensions.size(), Lattice::kMostDimensions);
  }
  const std::int64_t gpus = std::int64_t{spec.nodes} * spec.gpus_per_node;
  std::int64_t points = 1;
  for (const Dimension& d : s.dimensions) {
    if (d.size < 1 || (points *= d.size) > (1 << 23)) {
      return InvalidInput(
          "topology.dimensions: a size of {}; sizes are above 0, their product at most {}", d.size,
          1 << 23);
    }
  }
  if (points != gpus) {
    return InvalidInput(
        "topology.dimensions: {} GPUs, but nodes = {} with gpus_per_node = {} are {}", points,
        spec.nodes, spec.gpus_per_node, gpus);
  }
  s.ends = static_cast<std::size_t>(points);
  s.nic_Bps = spec.nic_Bps;
  s.mtu_bytes = spec.nic_mtu_bytes + spec.nic_header_bytes;
  return AnyFabric(Lattice(std::move(s)));
}

}  // namespace orrery::cluster
