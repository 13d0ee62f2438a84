// UEC's NSCC (Ultra Ethernet 1.0, section 3.6.13; constants as in its reference model, uet-htsim).
//
// One setting for the network, by its longest round trip R. Against a reference of 100 Gb/s x 12
// us: a = rate R / 150,000 B, target queueing delay tq = 0.75 R (R without trimming), b = tq / 12
// us. Windows begin at 1.5 rate R and are at most 1.5 rate r, r the least round trip that the flow
// saw. D is the delay above r. Unmarked, D >= tq: fair increase, 5 mss a. Unmarked, D < tq: 4 mss a
// b (tq - D)/tq, or 0.25 a for each byte once D was below 1 us for a whole window. Marked, average
// D above tq: once a round trip W *= max(1 - 0.8 (avg - tq)/avg, 0.5). Increases collect and are
// added as inc/W after 8 packets or R, and 0.15 mss a each R. After loss, a trim or D > 4 tq, where
// less than an eighth of the largest window came through in r + tq, W becomes what came through, at
// the trim itself if it is due; then marks say nothing until what was in flight is through.
#include <algorithm>

#include "orrery/network/packet/control/list.h"

namespace orrery::network::packet {
namespace {

constexpr double kReference = 150'000;  // bytes
constexpr SimTime kReferenceRtt = 12 * kMicrosecond;
constexpr double kGamma = 0.8, kAverage = 0.0125, kMostWindow = 1.5;

class NsccControl final : public Control {
 public:
  void Begin(const FlowView& flow, Pace* pace) override {
    states_.resize(flow.flow + 1);
    State& s = states_[flow.flow];
    s.base = flow.network_rtt;
    pace->window = flow.window > 0 ? static_cast<double>(flow.window) : Most(flow, s);
  }
  void OnAck(const FlowView& flow, const Ack& ack, Pace* pace) override {
    State& s = states_[flow.flow];
    s.base = std::min(s.base, ack.rtt);
    const SimTime delay = ack.rtt - s.base, target = Target(flow);
    const auto bytes = static_cast<double>(ack.bytes);
    s.achieved += bytes;
    s.received += ack.bytes;
    s.ignored += bytes;
    s.in_flight = ack.in_flight;
    const double sample = !ack.marked && delay > target ? ToSeconds(s.base) / 4 : ToSeconds(delay);
    s.average += kAverage * (sample - s.average);
    if (QuickAdapt(flow, ack.now, ack.marked, delay > 4 * target, &s, pace)) return;
    const double scale = Scale(flow);
    const double mss = flow.packet_bytes;
    if (!ack.marked && delay >= target) {
      s.increase += 5 * mss * scale * bytes;
      s.calm = 0;
    } else if (!ack.marked) {
      s.calm = delay < kMicrosecond ? s.calm + bytes : 0;
      if (s.calm > pace->window) {
        pace->window += 0.25 * scale * bytes;
      } else {
        const double b = ToSeconds(target) / ToSeconds(kReferenceRtt);
        s.increase += 4 * mss * scale * b * ToSeconds(target - delay) / ToSeconds(target) * bytes;
      }
    } else if (delay >= target) {
      s.calm = 0;
      Decrease(ack.now, ToSeconds(target), &s, pace);
    }
    Bound(flow, s, pace);
    const bool due = ack.now - s.added >= flow.network_rtt;
    if (s.received > 8 * flow.packet_bytes || due) {
      pace->window += s.increase / pace->window;
      s.increase = 0;
      s.received = 0;
    }
    if (due) {
      pace->window += 0.15 * mss * scale;
      s.added = ack.now;
    }
    Bound(flow, s, pace);
  }
  void OnLoss(const FlowView& flow, const Loss& loss, Pace* pace) override {
    State& s = states_[flow.flow];
    if (loss.rtt > 0) s.base = std::min(s.base, loss.rtt);
    s.lost = true;
    s.ignored += static_cast<double>(loss.bytes);
    s.average += kAverage * (ToSeconds(flow.network_rtt) - s.average);
    if (QuickAdapt(flow, loss.now, true, true, &s, pace)) return;
    pace->window -= static_cast<double>(loss.bytes);
    Bound(flow, s, pace);
  }
  void OnTimeout(const FlowView& flow, SimTime, Pace* pace) override {
    states_[flow.flow].lost = true;
    pace->window = flow.packet_bytes;
  }

 private:
  struct State {
    SimTime base = 0, cut = -kSecond, added = 0, adapt = 0;
    double average = 0, increase = 0, achieved = 0, calm = 0;
    double ignored = 0, to_ignore = 0;  // since the window was adapted
    std::int64_t received = 0, in_flight = 0;
    bool lost = false;
  };

  static SimTime Target(const FlowView& flow) { return flow.network_rtt * 3 / 4; }
  static double Scale(const FlowView& flow) {
    return ToSeconds(flow.network_rtt) * static_cast<double>(flow.line_Bps) / kReference;
  }
  static double Most(const FlowView& flow, const State& s) {
    return kMostWindow * ToSeconds(s.base) * static_cast<double>(flow.line_Bps);
  }
  static void Bound(const FlowView& flow, const State& s, Pace* pace) {
    const double least = flow.packet_bytes;
    pace->window = std::clamp(pace->window, least, std::max(Most(flow, s), least));
  }
  static void Decrease(SimTime now, double target, State* s, Pace* pace) {
    if (s->average <= target || now - s->cut <= s->base) return;
    pace->window *= std::max(1 - kGamma * (s->average - target) / s->average, 0.5);
    s->cut = now;
  }
  // True where the acknowledgement or the trim says nothing more.
  static bool QuickAdapt(const FlowView& flow, SimTime now, bool marked, bool bad, State* s,
                         Pace* pace) {
    bool silent = s->ignored < s->to_ignore && marked;
    if (!silent && now > s->adapt) {
      if (s->adapt > 0 && (s->lost || bad) && s->achieved < Most(flow, *s) / 8) {
        pace->window = std::max<double>(s->achieved, flow.packet_bytes);
        s->to_ignore = static_cast<double>(s->in_flight);
        s->ignored = 0;
        s->lost = false;
        silent = true;
      }
      s->achieved = 0;
      s->adapt = now + s->base + Target(flow);
    }
    if (silent) {
      s->increase = 0;
      s->received = 0;
    }
    return silent;
  }

  std::vector<State> states_;
};

Thresholds NsccMarks(double, double bdp) { return {0.2 * bdp, 0.8 * bdp, 1}; }

}  // namespace

ControlInfo Nscc() {
  ControlInfo info;
  info.name = "nscc";
  info.description =
      "Ultra Ethernet's sender window from marks and queueing delay together, with quick adaption "
      "after loss (UEC 1.0, as in uet-htsim)";
  info.trimming = info.selective = info.sprays = true;
  info.queue_bdp = 1;
  info.ecn = NsccMarks;
  info.make = [] { return std::unique_ptr<Control>(std::make_unique<NsccControl>()); };
  return info;
}

}  // namespace orrery::network::packet
