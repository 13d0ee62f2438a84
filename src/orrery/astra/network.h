// ASTRA-sim's analytical networks: dimensions of rings, switches and full meshes.
//
//   unaware  hops · latency + bytes / bandwidth, cut to whole ns; a ring's shorter way, 2 hops
//            through a switch, 1 of a full mesh; of several dimensions the first in which the ends
//            differ is the only one paid for. A sender injects without limit.
//   aware    store and forward: every direction of a link is a FIFO, busy for bytes / bandwidth; a
//            message is at the link's end after latency + bytes / bandwidth. Of several dimensions
//            it crosses one after the other, the first one first.
// Source: astra-sim/astra-network-analytical, 599a047; of several dimensions, which that refuses,
// its branch will/congestion-multidim (a035d9e).
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "orrery/astra/config.h"
#include "orrery/base/status.h"

namespace orrery::astra {

class Network {
 public:
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

  // Refuses a congestion-aware network of more than 2^26 links.
  static Status Check(const NetworkConfig& config);

  // REQUIRES: Check(config).ok().
  explicit Network(const NetworkConfig& config);

  // Unaware. REQUIRES: from != to, bytes > 0.
  Tick Delay(std::uint32_t from, std::uint32_t to, std::uint64_t bytes) const;

  // Aware: the link that leads from a device towards an NPU, and where it ends. Devices below
  // npus() are NPUs; the others stand for a switch and the NPU that a message leaves it for.
  struct Step {
    std::uint32_t link = 0, device = 0;
  };
  Step NextStep(std::uint32_t device, std::uint32_t to) const;
  struct Link {
    std::uint32_t first = kNone, last = kNone;  // messages that wait, chained by their owner
    bool busy = false;
    std::uint8_t dimension = 0;
  };
  Link& link(std::uint32_t number) { return links_[number]; }
  Tick Busy(const Link& link, std::uint64_t bytes) const;
  Tick Transit(const Link& link, std::uint64_t bytes) const;

 private:
  std::vector<Dimension> dimensions_;
  std::uint32_t npus_ = 0;
  std::vector<std::uint32_t> first_link_;  // by dimension
  std::vector<Link> links_;
};

}  // namespace orrery::astra
