// A salt of Cluster::Route's, beside those that cluster.h names.
#pragma once

#include <cstdint>

namespace orrery::cluster {

// Between domains, begin with NVLink to the GPU on the destination's rail, where there is one,
// whatever the routing (NCCL's PXN).
inline constexpr std::uint64_t kByRail = ~std::uint64_t{3};

}  // namespace orrery::cluster
