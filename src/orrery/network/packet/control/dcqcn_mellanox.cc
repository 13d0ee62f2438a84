// DCQCN as NICs have it and as HPCC's, SimAI's and ASTRA-sim's ns-3 run it (rdma-hw.cc): clocks
// only, no byte counter.
//
// The first marked acknowledgement starts three clocks, with alpha 1 and the target at the rate.
// Each alpha_interval: alpha = (1-g) alpha + g if a mark came since the last, else (1-g) alpha.
// Each decrease_interval in which a mark came: target = rate (only after an increase, unless
// clamp_target), rate *= 1 - alpha/2, at least min_rate; the increase clock starts anew. Each
// increase_interval: the rate goes halfway to the target; from the fast_recovery-th time on the
// target rises first, by rate_ai once and by rate_hai then. Defaults are those of HPCC's script for
// mode "dcqcn": 1, 4 and 300 us, g 1/256, 1, 5 and 50 Mb/s at 25 Gb/s, 100 Mb/s. Clocks are counted
// when the flow next sends or hears something.
#include <algorithm>

#include "orrery/network/packet/control/list.h"

namespace orrery::network::packet {
namespace {

class DcqcnMellanoxControl final : public Control {
 public:
  void Begin(const FlowView& flow, Pace* pace) override {
    states_.resize(flow.flow + 1);
    State& s = states_[flow.flow];
    const ControlParameters& p = *flow.parameters;
    s.line = static_cast<double>(flow.line_Bps);
    s.rate = s.target = s.line;
    s.gain = p.gain.value_or(1.0 / 256);
    s.ai = p.rate_ai_Bps.value_or(s.line / 5000);
    s.hai = p.rate_hai_Bps.value_or(s.line / 500);
    s.least = p.min_rate_Bps.value_or(12.5e6);
    s.alpha_interval = p.alpha_interval > 0 ? p.alpha_interval : kMicrosecond;
    s.decrease_interval = p.decrease_interval > 0 ? p.decrease_interval : 4 * kMicrosecond;
    s.increase_interval = p.increase_interval > 0 ? p.increase_interval : 300 * kMicrosecond;
    s.fast = p.fast_recovery.value_or(1);
    s.clamp = p.clamp_target.value_or(false);
    if (flow.window > 0) pace->window = static_cast<double>(flow.window);
  }
  void OnAck(const FlowView& flow, const Ack& ack, Pace* pace) override {
    State& s = states_[flow.flow];
    Catch(&s, ack.now);
    if (ack.marked) {
      if (!s.started) {
        s.started = true;
        s.alpha_at = ack.now + s.alpha_interval;
        s.decrease_at = ack.now + s.decrease_interval;
      }
      s.marked_alpha = s.marked_rate = true;
    }
    pace->rate_Bps = flow.PacedAt(s.rate);
  }
  void OnSend(const FlowView& flow, SimTime now, std::int64_t, Pace* pace) override {
    State& s = states_[flow.flow];
    Catch(&s, now);
    pace->rate_Bps = flow.PacedAt(s.rate);
  }

 private:
  struct State {
    double line = 0, rate = 0, target = 0, alpha = 1, gain = 0, ai = 0, hai = 0, least = 0;
    SimTime alpha_interval = 0, decrease_interval = 0, increase_interval = 0;
    SimTime alpha_at = 0, decrease_at = 0, increase_at = kNever;
    int fast = 0, stage = 0;
    bool clamp = false, started = false, marked_alpha = false, marked_rate = false;
  };

  // The clocks that were due by `now`, in their order; alpha's before the others at one instant.
  static void Catch(State* s, SimTime now) {
    if (!s->started) return;
    for (;;) {
      // Without marks alpha only shrinks and nothing reads it: its clock waits for one.
      if (s->alpha_at <= now && s->alpha < 1e-9 && !s->marked_alpha) {
        s->alpha_at += (now - s->alpha_at) / s->alpha_interval * s->alpha_interval;
      }
      if (s->decrease_at <= now && !s->marked_rate) {
        s->decrease_at +=
            ((now - s->decrease_at) / s->decrease_interval + 1) * s->decrease_interval;
      }
      const SimTime next = std::min({s->alpha_at, s->decrease_at, s->increase_at});
      if (next > now) return;
      if (s->alpha_at == next) {
        s->alpha = (1 - s->gain) * s->alpha + (s->marked_alpha ? s->gain : 0);
        s->marked_alpha = false;
        s->alpha_at += s->alpha_interval;
      } else if (s->decrease_at == next) {
        Decrease(s, next);
      } else {
        Increase(s, next);
      }
    }
  }
  static void Decrease(State* s, SimTime now) {
    s->decrease_at += s->decrease_interval;
    s->marked_rate = false;
    if (s->stage != 0 || s->clamp) s->target = s->rate;
    s->rate = std::max(s->least, s->rate * (1 - s->alpha / 2));
    s->stage = 0;
    s->increase_at = now + s->increase_interval;
  }
  static void Increase(State* s, SimTime now) {
    if (s->stage >= s->fast) {
      s->target = std::min(s->line, s->target + (s->stage == s->fast ? s->ai : s->hai));
    }
    s->rate = (s->rate + s->target) / 2;
    ++s->stage;
    s->increase_at = now + s->increase_interval;
    if (s->line - s->rate < s->line * 1e-6) {
      s->rate = s->line;
      s->increase_at = now + (kNever - now) / 2;  // nothing left to raise
    }
  }

  std::vector<State> states_;
};

// 100 and 400 KB and 0.2 at 25 Gb/s (HPCC's script).
Thresholds MellanoxMarks(double nic_Bps, double) {
  return {100'000 * nic_Bps / 3.125e9, 400'000 * nic_Bps / 3.125e9, 0.2};
}

}  // namespace

ControlInfo DcqcnMellanox() {
  ControlInfo info;
  info.name = "dcqcn-mellanox";
  info.description =
      "DCQCN by clocks alone, as NICs have it: cut by alpha/2 at most once each 4 us with marks, "
      "raised each 300 us (HPCC's, SimAI's and ASTRA-sim's ns-3)";
  info.parameters =
      "rate_ai rate_hai min_rate gain alpha_interval decrease_interval increase_interval "
      "fast_recovery clamp_target";
  info.pfc = info.only_marks = true;
  info.ecn = MellanoxMarks;
  info.make = [] { return std::unique_ptr<Control>(std::make_unique<DcqcnMellanoxControl>()); };
  return info;
}

}  // namespace orrery::network::packet
