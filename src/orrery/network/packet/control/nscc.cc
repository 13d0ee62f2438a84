// UEC's NSCC (Ultra Ethernet 1.0, section 3.6.13; constants as in its reference model, uet-htsim).
//
// Against a reference of 100 Gb/s x 12 us: a = BDP / 150,000 B, target queueing delay tq = 0.75 of
// the base round trip (1 without trimming), b = tq / 12 us. D is the delay above the least seen.
// Unmarked, D >= tq: fair increase, 5 mss a. Unmarked, D < tq: 4 mss a b (tq - D)/tq, or 0.25 a for
// each byte once D was below 1 us for a whole window. Marked, average D above tq: once a round trip
// W *= max(1 - 0.8 (avg - tq)/avg, 0.5). Increases collect and are added as inc/W after 8 packets
// or a round trip, and 0.15 mss a each round trip. After loss, a trim or D > 4 tq, where less than
// an eighth of the largest window came through in base + tq, W becomes what came through.
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
    s.base = flow.base_rtt;
    pace->window = flow.window > 0 ? static_cast<double>(flow.window) : Most(flow);
  }
  void OnAck(const FlowView& flow, const Ack& ack, Pace* pace) override {
    State& s = states_[flow.flow];
    s.base = std::min(s.base, ack.rtt);
    const SimTime delay = ack.rtt - s.base, target = flow.base_rtt * 3 / 4;
    const auto bytes = static_cast<double>(ack.bytes);
    s.achieved += bytes;
    s.received += ack.bytes;
    const double sample = !ack.marked && delay > target ? ToSeconds(s.base) / 4 : ToSeconds(delay);
    s.average += kAverage * (sample - s.average);
    if (QuickAdapt(flow, ack, delay, target, &s, pace)) return;
    const double scale = flow.bdp() / kReference;
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
      Decrease(flow, ack.now, ToSeconds(target), &s, pace);
    }
    Bound(flow, pace);
    if (s.received >= 8 * flow.packet_bytes || ack.now - s.adjusted >= flow.base_rtt) {
      pace->window += s.increase / pace->window;
      s.increase = 0;
      s.received = 0;
      s.adjusted = ack.now;
    }
    if (ack.now - s.added >= flow.base_rtt) {
      pace->window += 0.15 * mss * scale;
      s.added = ack.now;
    }
    Bound(flow, pace);
  }
  void OnLoss(const FlowView& flow, SimTime, std::int64_t bytes, Pace* pace) override {
    State& s = states_[flow.flow];
    s.lost = true;
    s.average += kAverage * (ToSeconds(flow.base_rtt) - s.average);
    pace->window -= static_cast<double>(bytes);
    Bound(flow, pace);
  }
  void OnTimeout(const FlowView& flow, SimTime, Pace* pace) override {
    states_[flow.flow].lost = true;
    pace->window = flow.packet_bytes;
  }

 private:
  struct State {
    SimTime base = 0, cut = -kSecond, adjusted = 0, added = 0, adapt = 0;
    double average = 0, increase = 0, achieved = 0, calm = 0, ignored = 0;
    std::int64_t received = 0;
    bool lost = false;
  };

  static double Most(const FlowView& flow) { return kMostWindow * flow.bdp(); }
  static void Bound(const FlowView& flow, Pace* pace) {
    const double least = flow.packet_bytes;
    pace->window = std::clamp(pace->window, least, std::max(Most(flow), least));
  }
  static void Decrease(const FlowView&, SimTime now, double target, State* s, Pace* pace) {
    if (s->average <= target || now - s->cut <= s->base) return;
    pace->window *= std::max(1 - kGamma * (s->average - target) / s->average, 0.5);
    s->cut = now;
  }
  // True where the acknowledgement says nothing more.
  static bool QuickAdapt(const FlowView& flow, const Ack& ack, SimTime delay, SimTime target,
                         State* s, Pace* pace) {
    if (s->ignored > 0) {
      s->ignored -= static_cast<double>(ack.bytes);
      return ack.marked;
    }
    if (ack.now < s->adapt) return false;
    const bool bad = s->lost || delay > 4 * target;
    const bool adapts = s->adapt > 0 && bad && s->achieved < Most(flow) / 8;
    if (adapts) {
      pace->window = std::max<double>(s->achieved, flow.packet_bytes);
      s->ignored = static_cast<double>(ack.in_flight);
      s->increase = 0;
    }
    s->adapt = ack.now + s->base + target;
    s->achieved = 0;
    s->lost = false;
    return adapts;
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
