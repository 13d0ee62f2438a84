// MP-RDMA's window in the form that ATLAHS's htsim uses (Lu et al., NSDI'18, section 3.2).
//
// An acknowledgement without a mark adds mss^2/W, one with a mark takes half a packet; loss and
// timeouts halve the window. Starts at one BDP. Marks between 20 and 80 % of 1 MiB a port of
// 100 Gb/s (ATLAHS's setting), by the line's rate.
#include <algorithm>

#include "orrery/network/packet/control/list.h"

namespace orrery::network::packet {
namespace {

class MprdmaControl final : public Control {
 public:
  void Begin(const FlowView& flow, Pace* pace) override {
    pace->window = flow.window > 0 ? static_cast<double>(flow.window) : flow.bdp();
  }
  void OnAck(const FlowView& flow, const Ack& ack, Pace* pace) override {
    const double packet = flow.packet_bytes;
    pace->window += ack.marked ? -packet / 2 : packet * packet / pace->window;
    pace->window = std::max(pace->window, packet);
  }
  void OnLoss(const FlowView& flow, const Loss&, Pace* pace) override {
    pace->window = std::max<double>(pace->window / 2, flow.packet_bytes);
  }
  void OnTimeout(const FlowView& flow, SimTime, Pace* pace) override {
    pace->window = std::max<double>(pace->window / 2, flow.packet_bytes);
  }
};

Thresholds MprdmaMarks(double nic_Bps, double) {
  const double port = 1048576.0 * nic_Bps / 12.5e9;
  return {0.2 * port, 0.8 * port, 1};
}

}  // namespace

ControlInfo Mprdma() {
  ControlInfo info;
  info.name = "mprdma";
  info.description =
      "An unmarked acknowledgement adds a packet for each window, a marked one takes half a packet "
      "(Lu et al., NSDI'18, as in ATLAHS)";
  info.selective = true;
  info.ecn = MprdmaMarks;
  info.make = [] { return std::unique_ptr<Control>(std::make_unique<MprdmaControl>()); };
  return info;
}

}  // namespace orrery::network::packet
