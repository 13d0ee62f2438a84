// HPCC with PINT's telemetry (Ben Basat et al., SIGCOMM'20, section 5): a packet carries one
// number.
//
// Each port keeps its utilisation u (fabric.cc); a packet carries the largest on its way as
// log_1.05 of 512 u, rounded up or down at random so that the mean is right. The sender takes
// U = u and makes HPCC's step, without HPCC's own moving average.
#include <algorithm>

#include "orrery/network/packet/control/list.h"
#include "orrery/network/packet/pint_code.h"

namespace orrery::network::packet {
namespace {

constexpr double kEta = 0.95;  // utilisation_target
constexpr int kStages = 5;     // additive_stages

class PintControl final : public Control {
 public:
  void Begin(const FlowView& flow, Pace* pace) override {
    states_.resize(flow.flow + 1);
    State& s = states_[flow.flow];
    s.window = s.committed = flow.window > 0 ? static_cast<double>(flow.window) : flow.bdp();
    Set(flow, s, pace);
  }
  void OnAck(const FlowView& flow, const Ack& ack, Pace* pace) override {
    if (ack.code == kNone) return;
    State& s = states_[flow.flow];
    const double utilisation = std::max(FromPintCode(ack.code), 1e-3);
    const bool commit = ack.acked > s.committed_until;
    const double most = flow.bdp(), least = static_cast<double>(flow.packet_bytes) / 10;
    const ControlParameters& p = *flow.parameters;
    const double eta = p.utilisation_target.value_or(kEta);
    const double additive = p.rate_ai_Bps ? *p.rate_ai_Bps * ToSeconds(flow.base_rtt) : most / 2500;
    if (utilisation >= eta || s.stage >= p.additive_stages.value_or(kStages)) {
      s.window = s.committed / (utilisation / eta) + additive;
      if (commit) s.stage = 0;
    } else {
      s.window = s.committed + additive;
      if (commit) ++s.stage;
    }
    s.window = std::clamp(s.window, least, most);
    if (commit) {
      s.committed = s.window;
      s.committed_until = ack.next;
    }
    Set(flow, s, pace);
  }

 private:
  struct State {
    double window = 0, committed = 0;
    int stage = 0;
    std::uint32_t committed_until = 0;
  };
  static void Set(const FlowView& flow, const State& s, Pace* pace) {
    pace->window = s.window;
    pace->rate_Bps =
        std::min(s.window / ToSeconds(flow.base_rtt), static_cast<double>(flow.line_Bps));
  }
  std::vector<State> states_;
};

}  // namespace

ControlInfo Pint() {
  ControlInfo info;
  info.name = "pint";
  info.description =
      "HPCC's step from one number a packet, the logarithm of its path's largest utilisation "
      "(Ben Basat et al., SIGCOMM'20)";
  info.parameters = "rate_ai utilisation_target additive_stages";
  info.pfc = true;
  info.codes = true;
  info.make = [] { return std::unique_ptr<Control>(std::make_unique<PintControl>()); };
  return info;
}

}  // namespace orrery::network::packet
