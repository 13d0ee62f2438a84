// What a packet run does, with every default filled in.
//
// Defaults that depend on the fabric come from the path between the first and the last GPU: its
// NIC's rate, its round-trip time with empty queues (packets of full size there, acknowledgements
// back) and their product, the BDP. Sources stand with each default in settings.cc.
#pragma once

#include <string>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/cluster/cluster.h"
#include "orrery/network/packet/control.h"
#include "orrery/network/parameters.h"

namespace orrery::network::packet {

enum class Balance : std::uint8_t { kEcmp, kSpray, kAdaptive, kFlowlet, kReps, kPlb };
struct BalanceInfo {
  std::string_view name;
  std::string_view description;
};
std::span<const BalanceInfo> LoadBalancers();

inline constexpr std::int32_t kControlBytes = 64;  // an acknowledgement or a trimmed header

struct Settings {
  const ControlInfo* control = nullptr;
  Balance balance = Balance::kEcmp;
  int paths = 1;
  bool cut_through = false, control_first = true, pfc = true, trimming = false, ecn = false;
  std::int64_t buffer_per_port = 0, buffer = 0, pfc_xoff = 0, pfc_xon = 0, queue = 0;
  std::int64_t ecn_min = 0, ecn_max = 0;  // at nic_Bps
  double ecn_most = 1;
  bool selective = false;  // repeat; else go-back-N
  SimTime rto = 0;         // 0: no timer, for nothing is lost
  std::int64_t window = 0;
  int ack_every = 1;  // 0: nothing is acknowledged, but marks are told
  SimTime flowlet_gap = 0;
  bool rate_window = false, rate_window_varies = false;
  ControlParameters parameters;
  std::int64_t nic_Bps = 0, bdp = 0;
  SimTime base_rtt = 0;
  std::int32_t payload = 0, header = 0;  // of a full packet
  std::int32_t packet_bytes() const { return payload + header; }
};

Result<Settings> Resolve(const PacketParameters& parameters, const cluster::Cluster& cluster);

}  // namespace orrery::network::packet
