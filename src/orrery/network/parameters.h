// What a back end takes beside the cluster: named by the job.
#pragma once

#include <cstdint>
#include <optional>

#include "orrery/base/time.h"

namespace orrery::network {

// LogGOPS of `loggops` for transfers that leave their NVLink domain; what is left out comes from
// the path.
struct LogGopsParameters {
  std::optional<SimTime> L;          // latency of a first byte
  std::optional<std::int64_t> G_as;  // time a byte holds a port, 10⁻¹⁸ s
  SimTime o = 0;                     // time a message holds a processor
  SimTime g = 0;                     // time a message holds a port
  std::int64_t O_as = 0;             // time a byte holds a processor, 10⁻¹⁸ s
  bool named() const { return L || G_as || o > 0 || g > 0 || O_as > 0; }
};
// What back ends take beside the cluster.
struct Parameters {
  LogGopsParameters loggops;
};

}  // namespace orrery::network
