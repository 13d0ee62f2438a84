// HPCC (Li et al., SIGCOMM'19, algorithm 1; the step of its ns-3 code where the paper is open).
//
// Every hop adds (time, bytes sent, queue, bandwidth). From two acknowledgements of a flow each
// hop's u = min(q, q') / (B T) + rate / B; U is a moving average of the largest over one T, the
// base round-trip time. W = W_c / (U/eta) + W_AI when U >= eta or after kStages additive steps,
// else W_c + W_AI; W_c follows once a round trip. R = W / T. W_AI is that of 10 Mb/s at 25 Gb/s.
#include <algorithm>

#include "orrery/network/packet/control/list.h"

namespace orrery::network::packet {
namespace {

constexpr double kEta = 0.95;  // utilisation_target
constexpr int kStages = 5;     // additive_stages

class HpccControl final : public Control {
 public:
  void Begin(const FlowView& flow, Pace* pace) override {
    states_.resize(flow.flow + 1);
    State& s = states_[flow.flow];
    s.window = s.committed = flow.window > 0 ? static_cast<double>(flow.window) : flow.bdp();
    Set(flow, s, pace);
  }
  void OnAck(const FlowView& flow, const Ack& ack, Pace* pace) override {
    State& s = states_[flow.flow];
    if (ack.telemetry == nullptr) return;
    if (s.last.hops != ack.telemetry->hops) {
      s.last = *ack.telemetry;
      return;
    }
    Measure(flow, *ack.telemetry, &s);
    const bool commit = ack.acked > s.committed_until;
    const double most = flow.bdp(), least = static_cast<double>(flow.packet_bytes) / 10;
    const ControlParameters& p = *flow.parameters;
    const double eta = p.utilisation_target.value_or(kEta);
    const double additive = p.rate_ai_Bps ? *p.rate_ai_Bps * ToSeconds(flow.base_rtt) : most / 2500;
    if (s.utilisation >= eta || s.stage >= p.additive_stages.value_or(kStages)) {
      s.window = s.committed / (s.utilisation / eta) + additive;
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
    double window = 0, committed = 0, utilisation = 1;
    int stage = 0;
    std::uint32_t committed_until = 0;
    Record last;
  };

  static void Set(const FlowView& flow, const State& s, Pace* pace) {
    pace->window = s.window;
    pace->rate_Bps =
        std::min(s.window / ToSeconds(flow.base_rtt), static_cast<double>(flow.line_Bps));
  }
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
