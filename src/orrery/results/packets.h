// What network packet saw: how many packets, what became of them, and the longest queues.
#pragma once

#include <string>
#include <vector>

#include "orrery/cluster/cluster.h"
#include "orrery/network/packet/statistics.h"

namespace orrery::results {

struct PacketLink {
  std::string name;  // "leaf0/spine1"
  LinkId link;
  network::PacketPort port;
};

struct PacketUse {
  network::PacketCounts counts;   // without its ports
  network::PacketPort sum;        // of marks, losses, trims and pauses over the links
  std::vector<PacketLink> links;  // that queued, paused or lost, by longest queue, then by number
};
PacketUse UseOfPackets(const network::PacketCounts& counts, const cluster::Cluster& cluster);

// Two lines of counts and a table of the longest queues.
std::string PacketsText(const PacketUse& use);

}  // namespace orrery::results
