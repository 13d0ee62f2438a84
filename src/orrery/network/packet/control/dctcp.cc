// DCTCP (Alizadeh et al., SIGCOMM'10, section 3), as a window of packets that starts at one BDP.
//
// Each round trip F is the share of acknowledged bytes that came marked; alpha = (1-g) alpha + g F.
// A round trip with marks cuts the window by alpha/2, at least two packets stay; one without adds a
// packet. Loss halves it.
#include <algorithm>

#include "orrery/network/packet/control/list.h"

namespace orrery::network::packet {
namespace {

constexpr double kG = 1.0 / 16;

class DctcpControl final : public Control {
 public:
  void Begin(const FlowView& flow, Pace* pace) override {
    states_.resize(flow.flow + 1);
    pace->window = flow.window > 0 ? static_cast<double>(flow.window)
                                   : std::max(flow.bdp(), 2.0 * flow.packet_bytes);
  }
  void OnAck(const FlowView& flow, const Ack& ack, Pace* pace) override {
    State& s = states_[flow.flow];
    s.bytes += ack.bytes;
    if (ack.marked) {
      s.marked += std::max<std::int64_t>(ack.bytes, 1);
      if (ack.acked >= s.cut_until) {
        pace->window = std::max(pace->window * (1 - s.alpha / 2), 2.0 * flow.packet_bytes);
        s.cut_until = ack.next;
      }
    }
    if (ack.acked < s.until || s.bytes == 0) return;
    s.until = ack.next;
    const double share =
        std::min(1.0, static_cast<double>(s.marked) / static_cast<double>(s.bytes));
    const double g = flow.parameters->gain.value_or(kG);
    s.alpha = (1 - g) * s.alpha + g * share;
    if (s.marked == 0) pace->window += flow.packet_bytes;
    s.bytes = s.marked = 0;
  }
  void OnLoss(const FlowView& flow, const Loss& loss, Pace* pace) override {
    State& s = states_[flow.flow];
    if (loss.now < s.lost_at + flow.base_rtt) return;
    s.lost_at = loss.now;
    pace->window = std::max(pace->window / 2, 2.0 * flow.packet_bytes);
  }
  void OnTimeout(const FlowView& flow, SimTime, Pace* pace) override {
    pace->window = 2.0 * flow.packet_bytes;
  }

 private:
  struct State {
    double alpha = 1;
    std::int64_t bytes = 0, marked = 0;
    std::uint32_t until = 0, cut_until = 0;
    SimTime lost_at = -kSecond;
  };
  std::vector<State> states_;
};

// 30 KB for each 10 Gb/s, as a step.
Thresholds DctcpMarks(double nic_Bps, double) {
  const double k = 30'000 * nic_Bps / 1.25e9;
  return {k, k, 1};
}

}  // namespace

ControlInfo Dctcp() {
  ControlInfo info;
  info.name = "dctcp";
  info.description =
      "A window cut once a round trip by half the smoothed share of marked bytes, else a packet "
      "more (Alizadeh et al., SIGCOMM'10)";
  info.parameters = "gain";
  info.selective = true;
  info.ecn = DctcpMarks;
  info.make = [] { return std::unique_ptr<Control>(std::make_unique<DctcpControl>()); };
  return info;
}

}  // namespace orrery::network::packet
