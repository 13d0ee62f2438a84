// What a back end takes beside the cluster: named by the job.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "orrery/base/time.h"

namespace orrery::network {

// 10⁻¹⁸ s, the unit of what a byte costs, from ns.
constexpr std::int64_t Attoseconds(double ns) { return static_cast<std::int64_t>(ns * 1e9 + 0.5); }

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
// Ranks that share a host and its interfaces, and talk through its memory
// (engine/general/near.cc).
struct SharedHosts {
  std::int64_t ranks = 1;                  // of a host, one after the other
  SimTime L = 140 * kNanosecond;           // from a message's last store to its receiver's look
  SimTime o = 70 * kNanosecond;            // processor's time for a message
  std::int64_t copy_Bps = 23'413'000'000;  // how fast a processor copies
  std::int64_t memory_Bps = 0;             // of a host, for reads and writes; 0: no limit
  std::int64_t S = 4096;                   // longest message that is copied twice
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
  SharedHosts hosts;
};
// Whether a message takes processor and interface at once, or one after the other as
// network/loggops.h has it. Default: joint where a graph names interfaces (GOAL), else staged.
enum class LogGopsEndpoints : std::uint8_t { kDefault, kStaged, kJoint };

// Of a congestion control; what is left out is as its file says (packet/control/).
struct ControlParameters {
  std::optional<double> rate_ai_Bps, rate_hai_Bps, min_rate_Bps;  // steps of increase; least rate
  std::optional<double> gain;                                     // of alpha
  std::optional<double> utilisation_target;                       // HPCC's eta
  std::optional<int> fast_recovery, additive_stages;
  std::optional<bool> clamp_target;
  SimTime alpha_interval = 0, decrease_interval = 0, increase_interval = 0;
};

// `packet`: switches, hosts and congestion control (packet/). What is left out follows from the
// congestion control or the fabric, as packet/settings.h says.
struct PacketParameters {
  std::string congestion_control = "none";
  std::string load_balancing;  // empty: the congestion control's
  int paths = 64;              // of a connection, where load balancing uses several
  bool cut_through = false;
  bool control_first = true;  // acknowledgements in a queue of their own, before data
  std::optional<bool> pfc, trimming;
  std::int64_t buffer_per_port = 0;        // bytes of a switch's shared buffer, a port; 0: derived
  std::int64_t buffer = 0;                 // of each switch, in its place
  std::int64_t pfc_xoff = 0, pfc_xon = 0;  // bytes of an ingress; 0: dynamic thresholds
  std::int64_t queue = 0;                  // bytes of a port's data queue; 0: the shared buffer's
  std::int64_t ecn_min = 0, ecn_max = 0;   // bytes at the NIC's rate; 0: derived
  std::optional<double> ecn_most;          // share that is marked at ecn_max
  std::string recovery;                    // go-back-n, selective-repeat; empty: derived
  SimTime rto = 0;                         // 0: derived
  std::int64_t window = 0;                 // bytes at the start; 0: derived
  std::optional<int> ack_every;            // packets; 0: none
  SimTime flowlet_gap = 0;                 // 0: derived
  std::string rate_window;                 // none, bdp, varying; empty: none
  ControlParameters control;
};
// What back ends take beside the cluster.
struct Parameters {
  LogGopsParameters loggops;
  LogGops joint;  // joint endpoints; o, O and S also for a graph's own messages on other networks
  LogGopsEndpoints endpoints = LogGopsEndpoints::kDefault;
  PacketParameters packet;
};

}  // namespace orrery::network
