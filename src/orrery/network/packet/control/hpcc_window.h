// HPCC's window from the utilisation U of a flow's path, however that was learned (Li et al.,
// SIGCOMM'19, algorithm 1): W = W_c / (U/eta) + W_AI when U >= eta or after `additive_stages`
// additive steps, else W_c + W_AI; W_c follows once a round trip. R = W / T. W_AI is that of 10
// Mb/s at 25 Gb/s.
#pragma once

#include <algorithm>

#include "orrery/network/packet/control.h"

namespace orrery::network::packet {

class HpccWindow {
 public:
  void Begin(const FlowView& flow, Pace* pace) {
    window_ = committed_ = flow.window > 0 ? static_cast<double>(flow.window) : flow.bdp();
    Set(flow, pace);
  }
  void Step(const FlowView& flow, const Ack& ack, double utilisation, Pace* pace) {
    const bool commit = ack.acked > committed_until_;
    const double most = flow.bdp(), least = static_cast<double>(flow.packet_bytes) / 10;
    const ControlParameters& p = *flow.parameters;
    const double eta = p.utilisation_target.value_or(kEta);
    const double additive = p.rate_ai_Bps ? *p.rate_ai_Bps * ToSeconds(flow.base_rtt) : most / 2500;
    if (utilisation >= eta || stage_ >= p.additive_stages.value_or(kStages)) {
      window_ = committed_ / (utilisation / eta) + additive;
      if (commit) stage_ = 0;
    } else {
      window_ = committed_ + additive;
      if (commit) ++stage_;
    }
    window_ = std::clamp(window_, least, most);
    if (commit) {
      committed_ = window_;
      committed_until_ = ack.next;
    }
    Set(flow, pace);
  }

 private:
  static constexpr double kEta = 0.95;  // utilisation_target
  static constexpr int kStages = 5;     // additive_stages

  void Set(const FlowView& flow, Pace* pace) const {
    pace->window = window_;
    pace->rate_Bps =
        std::min(window_ / ToSeconds(flow.base_rtt), static_cast<double>(flow.line_Bps));
  }

  double window_ = 0, committed_ = 0;
  int stage_ = 0;
  std::uint32_t committed_until_ = 0;
};

}  // namespace orrery::network::packet
