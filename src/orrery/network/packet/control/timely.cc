// TIMELY (Mittal et al., SIGCOMM'15, algorithm 1 and its parameters).
//
// Once for each packet pair of a round trip: below kLow the rate rises by delta, above kHigh it
// falls by beta (1 - kHigh/rtt); between them by the gradient of the round-trip time. delta is
// 10 Mb/s at 10 Gb/s and grows with the line. There is no unique fixed point: shares may stay
// unequal (Zhu et al., CoNEXT'16).
#include <algorithm>

#include "orrery/network/packet/control/list.h"

namespace orrery::network::packet {
namespace {

constexpr double kWeight = 0.875, kDecrease = 0.8;
constexpr SimTime kLow = 50 * kMicrosecond, kHigh = 500 * kMicrosecond;
constexpr SimTime kLeast = 20 * kMicrosecond;
constexpr int kHyper = 5;

class TimelyControl final : public Control {
 public:
  void Begin(const FlowView& flow, Pace* pace) override {
    states_.resize(flow.flow + 1);
    pace->rate_Bps = static_cast<double>(flow.line_Bps);
    if (flow.window > 0) pace->window = static_cast<double>(flow.window);
  }
  void OnAck(const FlowView& flow, const Ack& ack, Pace* pace) override {
    State& s = states_[flow.flow];
    if (s.last == 0) {
      s.last = ack.rtt;
      return;
    }
    if (ack.acked < s.until) return;
    s.until = ack.next;
    const double step = ToSeconds(ack.rtt) - ToSeconds(s.last);
    s.last = ack.rtt;
    s.difference = (1 - kWeight) * s.difference + kWeight * step;
    const double gradient = s.difference / ToSeconds(kLeast);
    const double delta = static_cast<double>(flow.line_Bps) / 1000;
    double rate = pace->rate_Bps;
    if (ack.rtt < kLow) {
      rate += delta;
    } else if (ack.rtt > kHigh) {
      rate *= 1 - kDecrease * (1 - ToSeconds(kHigh) / ToSeconds(ack.rtt));
      s.rises = 0;
    } else if (gradient <= 0) {
      rate += (++s.rises >= kHyper ? kHyper : 1) * delta;
    } else {
      rate *= std::max(0.0, 1 - kDecrease * gradient);
      s.rises = 0;
    }
    const auto line = static_cast<double>(flow.line_Bps);
    pace->rate_Bps = std::clamp(rate, line / 1000, line);
  }

 private:
  struct State {
    SimTime last = 0;
    double difference = 0;
    std::uint32_t until = 0;
    int rises = 0;
  };
  std::vector<State> states_;
};

}  // namespace

ControlInfo Timely() {
  ControlInfo info;
  info.name = "timely";
  info.description =
      "Rates from the gradient of the round-trip time between 50 and 500 us (Mittal et al., "
      "SIGCOMM'15)";
  info.pfc = true;
  info.make = [] { return std::unique_ptr<Control>(std::make_unique<TimelyControl>()); };
  return info;
}

}  // namespace orrery::network::packet
