// DCQCN (Zhu et al., SIGCOMM'15, section 3 and its table of parameters).
//
// A marked acknowledgement is a notification (CNP), at most one each decrease_interval, 50 us. On
// it: target = rate, rate *= 1 - alpha/2, alpha = (1-g) alpha + g. Each increase_interval, 55 us,
// without one alpha *= 1-g. Each such interval and each 10 MB raise the rate: halfway to the
// target, fast_recovery times each, five; then the target by R_AI too; once both are past that, by
// their excess times R_HAI. R_AI (rate_ai) is 40 Mb/s at 40 Gb/s in the paper and grows with the
// line here; R_HAI is five times it. Timers are counted when the flow next sends or hears
// something: nothing reads the rate in between.
#include <algorithm>

#include "orrery/network/packet/control/list.h"

namespace orrery::network::packet {
namespace {

constexpr std::int64_t kByteCounter = 10'000'000;

class DcqcnControl final : public Control {
 public:
  void Begin(const FlowView& flow, Pace* pace) override {
    states_.resize(flow.flow + 1);
    State& s = states_[flow.flow];
    const ControlParameters& p = *flow.parameters;
    const auto line = static_cast<double>(flow.line_Bps);
    s.rate = s.target = line;
    s.g = p.gain.value_or(1.0 / 256);
    s.gap = p.decrease_interval > 0 ? p.decrease_interval : 50 * kMicrosecond;
    s.timer = p.increase_interval > 0 ? p.increase_interval : 55 * kMicrosecond;
    s.fast = p.fast_recovery.value_or(5);
    s.additive = p.rate_ai_Bps.value_or(line / 1000);
    s.hyper = p.rate_hai_Bps.value_or(5 * s.additive);
    s.least = p.min_rate_Bps.value_or(line / 1000);
    if (flow.window > 0) pace->window = static_cast<double>(flow.window);
  }
  void OnAck(const FlowView& flow, const Ack& ack, Pace* pace) override {
    State& s = states_[flow.flow];
    Catch(flow, &s, ack.now);
    if (ack.marked && (!s.cut || ack.now >= s.last_cut + s.gap)) {
      s.cut = true;
      s.target = s.rate;
      s.rate = std::max(s.rate * (1 - s.alpha / 2), s.least);
      s.alpha = (1 - s.g) * s.alpha + s.g;
      s.last_cut = s.alpha_clock = s.rate_clock = ack.now;
      s.timers = s.counters = 0;
      s.bytes = 0;
    }
    pace->rate_Bps = flow.PacedAt(s.rate);
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
    pace->rate_Bps = flow.PacedAt(s.rate);
  }

 private:
  struct State {
    double rate = 0, target = 0, alpha = 1, g = 0, additive = 0, hyper = 0, least = 0;
    SimTime gap = 0, timer = 0;
    int fast = 0;      // F
    bool cut = false;  // once: until then the rate is the line's
    SimTime last_cut = 0, alpha_clock = 0, rate_clock = 0;
    std::int64_t bytes = 0;
    int timers = 0, counters = 0;
  };

  void Catch(const FlowView& flow, State* s, SimTime now) {
    if (!s->cut) return;
    for (; now >= s->alpha_clock + s->timer && s->alpha > 1e-9; s->alpha_clock += s->timer) {
      s->alpha *= 1 - s->g;
    }
    const auto line = static_cast<double>(flow.line_Bps);
    for (; now >= s->rate_clock + s->timer && s->rate < line; s->rate_clock += s->timer) {
      ++s->timers;
      Raise(flow, s);
    }
    if (s->rate >= line) s->rate_clock = now;
  }
  static void Raise(const FlowView& flow, State* s) {
    const auto line = static_cast<double>(flow.line_Bps);
    if (std::min(s->timers, s->counters) > s->fast) {
      s->target += s->hyper * (std::min(s->timers, s->counters) - s->fast);
    } else if (std::max(s->timers, s->counters) > s->fast) {
      s->target += s->additive;
    }
    s->target = std::min(s->target, line);
    s->rate = std::min((s->rate + s->target) / 2, line);
    if (line - s->rate < line * 1e-6) s->rate = line;
  }

  std::vector<State> states_;
};

// 5 KB, 200 KB and 1 % at 40 Gb/s (the paper's deployment).
Thresholds DcqcnMarks(double nic_Bps, double) {
  return {5000 * nic_Bps / 5e9, 200'000 * nic_Bps / 5e9, 0.01};
}

}  // namespace

ControlInfo Dcqcn() {
  ControlInfo info;
  info.name = "dcqcn";
  info.description =
      "Rates cut by alpha/2 at most once in 50 us when packets come marked, raised by timer and "
      "byte counter (Zhu et al., SIGCOMM'15)";
  info.parameters =
      "rate_ai rate_hai min_rate gain decrease_interval increase_interval fast_recovery";
  info.pfc = info.only_marks = true;
  info.ecn = DcqcnMarks;
  info.make = [] { return std::unique_ptr<Control>(std::make_unique<DcqcnControl>()); };
  return info;
}

}  // namespace orrery::network::packet
