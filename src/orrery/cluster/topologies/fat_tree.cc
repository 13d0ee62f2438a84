// Fat trees. Two tiers: all NICs of nodes_per_leaf hosts under one leaf, leaves under
// ceil(downlinks / oversubscription) spines whose links together carry exactly that share. Three
// tiers: pods of nodes_per_pod hosts (a k-ary tree's k/2 leaves when left out: as many leaves as a
// leaf has downlinks), spine s of every pod under the same cores. A k-ary fat tree has
// nodes_per_leaf · NICs = k/2. Sources: Leiserson, IEEE ToC 1985; Al-Fares et al., SIGCOMM 2008.
#include <algorithm>

#include "orrery/cluster/topologies/topologies.h"

namespace orrery::cluster {

Result<AnyFabric> MakeFatTree2(const Spec& spec) { return MakeClos(spec, {}); }

Result<AnyFabric> MakeFatTree3(const Spec& spec) {
  Spec sized = spec;
  if (sized.topology.nodes_per_pod == 0) {
    const std::int64_t leaves =
        std::int64_t{spec.nodes_per_leaf} * (spec.rail_optimised ? 1 : spec.nics_per_node);
    const std::int64_t nodes = std::min<std::int64_t>(spec.nodes_per_leaf * leaves, 1 << 20);
    sized.topology.nodes_per_pod =
        static_cast<int>(nodes / spec.nodes_per_leaf * spec.nodes_per_leaf);
  }
  return MakeClos(sized, {.rails = spec.rail_optimised});
}

}  // namespace orrery::cluster
