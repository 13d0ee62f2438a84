// Swift (Kumar et al., SIGCOMM'20, algorithm 1; constants as htsim's authors chose them).
//
// target = base + hops h + clamp(A/sqrt(W) + B, 0, range) with W in packets, range = 5 base, and
// the two constants such that the term falls from `range` at 0.1 packets to 0 at 100. Delay below
// the target: W += ai acked/W (whole packets' worth of a round trip), else once a round trip W *=
// max(1 - beta (D - target)/D, 1 - most). Fabric delay only: hosts have none here. base is the
// flow's base round-trip time for a path of `hops`, so that base + hops h is 1.25 times what an
// empty fabric takes. Below one packet the flow is paced.
#include <algorithm>
#include <cmath>

#include "orrery/network/packet/control/list.h"

namespace orrery::network::packet {
namespace {

constexpr double kAdditive = 1, kBeta = 0.8, kMostCut = 0.5;
constexpr double kFewest = 0.1, kMany = 100;  // packets, of the window's term
constexpr int kRetriesToLeast = 5;

class SwiftControl final : public Control {
 public:
  void Begin(const FlowView& flow, Pace* pace) override {
    states_.resize(flow.flow + 1);
    State& s = states_[flow.flow];
    s.window = flow.window > 0 ? static_cast<double>(flow.window) / flow.packet_bytes
                               : std::max(flow.bdp() / flow.packet_bytes, 1.0);
    s.smooth = ToSeconds(flow.base_rtt);
    Set(flow, s, pace);
  }
  void OnAck(const FlowView& flow, const Ack& ack, Pace* pace) override {
    State& s = states_[flow.flow];
    const double delay = ToSeconds(ack.rtt);
    s.smooth += (delay - s.smooth) / 8;
    s.timeouts = 0;
    const double packets = static_cast<double>(ack.bytes) / flow.packet_bytes;
    if (delay < Target(flow, s.window)) {
      s.window += s.window >= 1 ? kAdditive * packets / s.window : kAdditive * packets;
    } else if (ToSeconds(ack.now - s.cut_at) >= s.smooth) {
      const double target = Target(flow, s.window);
      s.window *= std::max(1 - kBeta * (delay - target) / delay, 1 - kMostCut);
      s.cut_at = ack.now;
    }
    s.window = std::clamp(s.window, 0.001, 1000.0);
    Set(flow, s, pace);
  }
  void OnLoss(const FlowView& flow, const Loss& loss, Pace* pace) override {
    State& s = states_[flow.flow];
    if (ToSeconds(loss.now - s.cut_at) < s.smooth) return;
    s.cut_at = loss.now;
    s.window = std::max(s.window * (1 - kMostCut), 0.001);
    Set(flow, s, pace);
  }
  void OnTimeout(const FlowView& flow, SimTime, Pace* pace) override {
    State& s = states_[flow.flow];
    s.window = ++s.timeouts >= kRetriesToLeast ? 0.001 : std::max(s.window * (1 - kMostCut), 0.001);
    Set(flow, s, pace);
  }

 private:
  struct State {
    double window = 0, smooth = 0;  // packets, seconds
    SimTime cut_at = -kSecond;
    int timeouts = 0;
  };

  static double Target(const FlowView& flow, double window) {
    const double base = 1.25 * ToSeconds(flow.base_rtt);
    const double range = 5 * base;
    const double a = range / (1 / std::sqrt(kFewest) - 1 / std::sqrt(kMany));
    const double term = a / std::sqrt(window) - a / std::sqrt(kMany);
    return base + std::clamp(term, 0.0, range);
  }
  static void Set(const FlowView& flow, const State& s, Pace* pace) {
    pace->window = std::max(s.window, 1.0) * flow.packet_bytes;
    pace->rate_Bps = s.window < 1 ? s.window * flow.packet_bytes / s.smooth : 0;
  }

  std::vector<State> states_;
};

}  // namespace

ControlInfo Swift() {
  ControlInfo info;
  info.name = "swift";
  info.description =
      "A window held by the delay against a target that grows with hops and with 1/sqrt(window) "
      "(Kumar et al., SIGCOMM'20)";
  info.selective = true;
  info.make = [] { return std::unique_ptr<Control>(std::make_unique<SwiftControl>()); };
  return info;
}

}  // namespace orrery::network::packet
