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
// LogGOPS with joint endpoints (engine/general/joint.cc): every pair of ranks alike. The defaults
// are LogGOPSim's.
struct LogGops {
  SimTime L = 2500 * kNanosecond;     // latency
  SimTime o = 1500 * kNanosecond;     // processor's time for a message
  SimTime g = 1000 * kNanosecond;     // interface's time for a message
  std::int64_t G_as = 6'000'000'000;  // interface's time for a byte, 10⁻¹⁸ s
  std::int64_t O_as = 0;              // processor's time for a byte, 10⁻¹⁸ s
  std::int64_t S = 65535;             // longest message that is sent before its receive is posted
  bool receiver_bandwidth = true;
};
// Whether a message takes processor and interface at once, or one after the other as
// network/loggops.h has it. Default: joint where a graph names interfaces (GOAL), else staged.
enum class LogGopsEndpoints : std::uint8_t { kDefault, kStaged, kJoint };

// What back ends take beside the cluster.
struct Parameters {
  LogGopsParameters loggops;
  LogGops joint;  // joint endpoints; o, O and S also for a graph's own messages on other networks
  LogGopsEndpoints endpoints = LogGopsEndpoints::kDefault;
};

}  // namespace orrery::network
