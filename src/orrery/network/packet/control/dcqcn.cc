// DCQCN (Zhu et al., SIGCOMM'15, section 3 and its table of parameters).
//
// A marked acknowledgement is a notification (CNP), at most one each kCnpGap. On it: target = rate,
// rate *= 1 - alpha/2, alpha = (1-g) alpha + g. Each kTimer without one alpha *= 1-g. Each kTimer
// and each kByteCounter bytes raise the rate: halfway to the target, five times each; then the
// target by R_AI too; once both are past five, by their excess times R_HAI. R_AI is 40 Mb/s at
// 40 Gb/s in the paper and grows with the line here; R_HAI is five times it. Timers are counted
// when the flow next sends or hears something: nothing reads the rate in between.
#include <algorithm>

#include "orrery/network/packet/control/list.h"

namespace orrery::network::packet {
namespace {

constexpr double kG = 1.0 / 256;
constexpr SimTime kCnpGap = 50 * kMicrosecond, kTimer = 55 * kMicrosecond;
constexpr std::int64_t kByteCounter = 10'000'000;
constexpr int kFast = 5;  // F

class DcqcnControl final : public Control {
 public:
  void Begin(const FlowView& flow, Pace* pace) override {
    states_.resize(flow.flow + 1);
    State& s = states_[flow.flow];
    s.rate = s.target = static_cast<double>(flow.line_Bps);
    pace->rate_Bps = s.rate;
    if (flow.window > 0) pace->window = static_cast<double>(flow.window);
  }
  void OnAck(const FlowView& flow, const Ack& ack, Pace* pace) override {
    State& s = states_[flow.flow];
    Catch(flow, &s, ack.now);
    if (ack.marked && (!s.cut || ack.now >= s.last_cut + kCnpGap)) {
      s.cut = true;
      s.target = s.rate;
      s.rate = std::max(s.rate * (1 - s.alpha / 2), static_cast<double>(flow.line_Bps) / 1000);
      s.alpha = (1 - kG) * s.alpha + kG;
      s.last_cut = s.alpha_clock = s.rate_clock = ack.now;
      s.timers = s.counters = 0;
      s.bytes = 0;
    }
    pace->rate_Bps = s.rate;
  }
  void OnSend(const FlowView& flow, SimTime now, std::int64_t bytes, Pace* pace) override {
    State& s = states_[flow.flow];
    if (!s.cut) return;
    Catch(flow, &s, now);
    s.bytes += bytes;
    if (s.bytes >= kByteCounter) {
      s.bytes -= kByteCounter;
      ++s.counters;
      Raise(flow, &s);
    }
    pace->rate_Bps = s.rate;
  }

 private:
  struct State {
    double rate = 0, target = 0, alpha = 1;
    bool cut = false;  // once: until then the rate is the line's
    SimTime last_cut = 0, alpha_clock = 0, rate_clock = 0;
    std::int64_t bytes = 0;
    int timers = 0, counters = 0;
  };

  void Catch(const FlowView& flow, State* s, SimTime now) {
    if (!s->cut) return;
    for (; now >= s->alpha_clock + kTimer && s->alpha > 1e-9; s->alpha_clock += kTimer) {
      s->alpha *= 1 - kG;
    }
    const auto line = static_cast<double>(flow.line_Bps);
    for (; now >= s->rate_clock + kTimer && s->rate < line; s->rate_clock += kTimer) {
      ++s->timers;
      Raise(flow, s);
    }
    if (s->rate >= line) s->rate_clock = now;
  }
  static void Raise(const FlowView& flow, State* s) {
    const auto line = static_cast<double>(flow.line_Bps);
    const double additive = line / 1000, hyper = 5 * additive;
    if (std::min(s->timers, s->counters) > kFast) {
      s->target += hyper * (std::min(s->timers, s->counters) - kFast);
    } else if (std::max(s->timers, s->counters) > kFast) {
      s->target += additive;
    }
    s->target = std::min(s->target, line);
    s->rate = std::min((s->rate + s->target) / 2, line);
    if (line - s->rate < line * 1e-6) s->rate = line;
  }

  std::vector<State> states_;
};

// 5 KB, 200 KB and 1 % at 40 Gb/s (the paper's deployment).
Thresholds Ecn(double nic_Bps, double) {
  return {5000 * nic_Bps / 5e9, 200'000 * nic_Bps / 5e9, 0.01};
}

}  // namespace

ControlInfo Dcqcn() {
  ControlInfo info;
  info.name = "dcqcn";
  info.description =
      "Rates cut by alpha/2 at most once in 50 us when packets come marked, raised by timer and "
      "byte "
      "counter (Zhu et al., SIGCOMM'15)";
  info.pfc = true;
  info.ecn = Ecn;
  info.make = [] { return std::unique_ptr<Control>(std::make_unique<DcqcnControl>()); };
  return info;
}

}  // namespace orrery::network::packet
