// ASTRA-sim's analytical networks: dimensions of rings, switches and full meshes.
//
//   unaware  hops · latency + bytes / bandwidth, cut to whole ns; a ring's shorter way, 2 hops
//            through a switch, 1 of a full mesh; of several dimensions the first in which the ends
//            differ is the only one paid for. A sender injects without limit.
//   aware    store and forward: every direction of a link is a FIFO, busy for bytes / bandwidth; a
//            message is at the link's end after latency + bytes / bandwidth. One dimension.
// Source: astra-sim/astra-network-analytical, 599a047.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "orrery/astra/config.h"

namespace orrery::astra {

class Network {
 public:
  explicit Network(const NetworkConfig& config);

  // Unaware. REQUIRES: from != to, bytes > 0.
  Tick Delay(std::uint32_t from, std::uint32_t to, std::uint64_t bytes) const;

  // Aware: the link that leads from a device towards an NPU, and where it ends. A switch is the
  // device behind the NPUs.
  struct Step {
    std::uint32_t link = 0, device = 0;
  };
  Step NextStep(std::uint32_t device, std::uint32_t to) const;
  struct Link {
    bool busy = false;
    std::deque<std::uint32_t> waiting;  // messages
  };
  Link& link(std::uint32_t number) { return links_[number]; }
  Tick Busy(std::uint64_t bytes) const;
  Tick Transit(std::uint64_t bytes) const;

 private:
  std::vector<Dimension> dimensions_;
  std::vector<Link> links_;
};

}  // namespace orrery::astra
