// Time of one transfer on an idle network.
#include <algorithm>
#include <vector>

#include "orrery/network/network.h"
#include "orrery/network/wire.h"

namespace orrery::network {

SimTime PathTime(const cluster::Cluster& cluster, std::span<const LinkId> path, std::int64_t wire) {
  SimTime sum = 0, slowest = 0;
  for (const LinkId id : path) {
    const cluster::Link& link = cluster.links()[id.index()];
    const SimTime head = TransferTime(HeadBytes(link.mtu_bytes, wire), link.bandwidth_Bps);
    sum += link.latency + head;
    slowest = std::max(slowest, TransferTime(wire, link.bandwidth_Bps) - head);
  }
  return sum + slowest;
}

SimTime Uncontended(const cluster::Cluster& cluster, const Transfer& transfer) {
  std::vector<LinkId> path;
  cluster.Route(transfer.from, transfer.to, transfer.salt, &path);
  return PathTime(cluster, path,
                  WireBytes(cluster, transfer.from, transfer.to, transfer.bytes, transfer.salt));
}

}  // namespace orrery::network
