// HPCC (Li et al., SIGCOMM'19, algorithm 1; the step of its ns-3 code where the paper is open).
//
// Every hop adds (time, bytes sent, queue, bandwidth). From two acknowledgements of a flow each
// hop's u = min(q, q') / (B T) + rate / B; U is a moving average of the largest over one T, the
// base round-trip time. What U makes of the window stands in hpcc_window.h.
#include <algorithm>

#include "orrery/network/packet/control/hpcc_window.h"
#include "orrery/network/packet/control/list.h"

namespace orrery::network::packet {
namespace {

class HpccControl final : public Control {
 public:
  void Begin(const FlowView& flow, Pace* pace) override {
    states_.resize(flow.flow + 1);
    states_[flow.flow].window.Begin(flow, pace);
  }
  void OnAck(const FlowView& flow, const Ack& ack, Pace* pace) override {
    State& s = states_[flow.flow];
    if (ack.telemetry == nullptr) return;
    if (s.last.hops != ack.telemetry->hops) {
      s.last = *ack.telemetry;
      return;
    }
    Measure(flow, *ack.telemetry, &s);
    s.window.Step(flow, ack, s.utilisation, pace);
  }

 private:
  struct State {
    HpccWindow window;
    double utilisation = 1;
    Record last;
  };

  static void Measure(const FlowView& flow, const Record& now, State* s) {
    const double round = ToSeconds(flow.base_rtt);
    double largest = 0, tau = 0;
    for (std::size_t h = 0; h < static_cast<std::size_t>(now.hops); ++h) {
      const HopTelemetry &a = s->last.hop[h], &b = now.hop[h];
      if (b.time <= a.time) continue;  // this acknowledgement overtook the last
      const auto bandwidth = static_cast<double>(b.bandwidth_Bps);
      const double seconds = ToSeconds(b.time - a.time);
      const double rate = static_cast<double>(b.sent - a.sent) / seconds;
      const double u =
          static_cast<double>(std::min(a.queue, b.queue)) / (bandwidth * round) + rate / bandwidth;
      if (u > largest) largest = u, tau = seconds;
    }
    s->last = now;
    tau = std::min(tau, round);
    if (largest > 0) s->utilisation += tau / round * (largest - s->utilisation);
  }

  std::vector<State> states_;
};

}  // namespace

ControlInfo Hpcc() {
  ControlInfo info;
  info.name = "hpcc";
  info.description =
      "Windows from in-band telemetry: W_c / (U/eta) + W_AI with the path's largest utilisation U "
      "(Li et al., SIGCOMM'19)";
  info.parameters = "rate_ai utilisation_target additive_stages";
  info.pfc = true;
  info.telemetry = true;
  info.make = [] { return std::unique_ptr<Control>(std::make_unique<HpccControl>()); };
  return info;
}

}  // namespace orrery::network::packet
