// Which partition owns each link of a cluster: that of the link's sending end.
//
// A GPU and the NVLink switch it hangs on belong to the partition of their NVLink domain, a NIC to
// the lowest partition of its GPUs, a leaf to the lowest under it; spines are dealt round by their
// order among vertices. Read off the links and the routes, so it holds for any cluster. O(links +
// GPUs).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/base/time.h"
#include "orrery/cluster/cluster.h"

namespace orrery::network {

struct Owners {
  std::vector<std::uint32_t> link;  // partition by LinkId
  SimTime lookahead = kNever;       // smallest latency of a link into another partition
};

inline bool OnePartition(std::span<const std::uint32_t> partition_of_domain) {
  return std::ranges::all_of(partition_of_domain, [](std::uint32_t p) { return p == 0; });
}
// Fails if a link without latency crosses partitions.
Result<Owners> FindOwners(const cluster::Cluster& cluster,
                          std::span<const std::uint32_t> partition_of_domain);

}  // namespace orrery::network
