// What a message puts on the wire: its bytes and a header for every packet.
//
// Packets are NVLink's inside an NVLink domain, else the NIC's on the whole path (payload the MTU).
// A zero-byte message puts nothing on the wire. The packet sizes and their sources stand in the
// cluster's Spec.
#pragma once

#include <cstdint>
#include <span>

#include "orrery/cluster/cluster.h"
#include "orrery/cluster/salts.h"

namespace orrery::network {

// Wire bytes of a message from one GPU to another, by the way that `salt` names.
inline std::int64_t WireBytes(const cluster::Cluster& cluster, DeviceId from, DeviceId to,
                              std::int64_t bytes, std::uint64_t salt = 0) {
  const cluster::Spec& spec = cluster.spec();
  const bool nvlink =
      cluster.nvlink_domain(from) == cluster.nvlink_domain(to) && !cluster::InFabric(salt);
  const std::int64_t payload = nvlink ? spec.nvlink_packet_bytes : spec.nic_mtu_bytes;
  std::int64_t header = nvlink ? spec.nvlink_header_bytes : spec.nic_header_bytes;
  // Where NVLinks join some GPUs of a host and PCIe the others, the header is of those.
  const bool some = nvlink && cluster.pcie_tree().nvlinks().any();
  if (some && cluster.nvlinks_between(from, to) == 0) header = 0;
  if (payload <= 0) return bytes;
  return bytes + (bytes + payload - 1) / payload * header;
}

// What must arrive of a message before the next hop can begin. A link without an MTU stores whole
// messages.
inline std::int64_t HeadBytes(std::int32_t mtu_bytes, std::int64_t wire) {
  return mtu_bytes > 0 && mtu_bytes < wire ? mtu_bytes : wire;
}

// Time of a message alone on its path: latencies, its head on every hop, and on the slowest one the
// rest instead. With one MTU along the path the slowest hop is that of the least bandwidth.
// O(path).
SimTime PathTime(const cluster::Cluster& cluster, std::span<const LinkId> path, std::int64_t wire);

}  // namespace orrery::network
