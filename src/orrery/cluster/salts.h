// A salt of Cluster::Route's, beside those that cluster.h names.
#pragma once

#include <cstdint>

namespace orrery::cluster {

// Between domains, begin with NVLink to the GPU on the destination's rail, where there is one,
// whatever the routing (NCCL's PXN).
inline constexpr std::uint64_t kByRail = ~std::uint64_t{3};

// Of a channel's connection: every channel has queue pairs of its own, hashed apart. Below kByRail.
constexpr std::uint64_t QueuePair(std::uint16_t channel, std::uint32_t number) {
  return std::uint64_t{number} << 16 | channel;
}

}  // namespace orrery::cluster
