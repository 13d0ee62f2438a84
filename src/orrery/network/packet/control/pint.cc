// HPCC with PINT's telemetry (Ben Basat et al., SIGCOMM'20, section 5): a packet carries one
// number.
//
// Each port keeps its utilisation u (fabric.cc); a packet carries the largest on its way as
// log_1.05 of 512 u, rounded up or down at random so that the mean is right. The sender takes
// U = u and makes HPCC's step, without HPCC's own moving average.
#include <algorithm>

#include "orrery/network/packet/control/hpcc_window.h"
#include "orrery/network/packet/control/list.h"
#include "orrery/network/packet/pint_code.h"

namespace orrery::network::packet {
namespace {

class PintControl final : public Control {
 public:
  void Begin(const FlowView& flow, Pace* pace) override {
    windows_.resize(flow.flow + 1);
    windows_[flow.flow].Begin(flow, pace);
  }
  void OnAck(const FlowView& flow, const Ack& ack, Pace* pace) override {
    if (ack.code == kNone) return;
    windows_[flow.flow].Step(flow, ack, std::max(FromPintCode(ack.code), 1e-3), pace);
  }

 private:
  std::vector<HpccWindow> windows_;
};

}  // namespace

ControlInfo Pint() {
  ControlInfo info;
  info.name = "pint";
  info.description =
      "HPCC's step from one number a packet, the logarithm of its path's largest utilisation "
      "(Ben Basat et al., SIGCOMM'20)";
  info.parameters = "rate_ai utilisation_target additive_stages";
  info.pfc = true;
  info.codes = true;
  info.make = [] { return std::unique_ptr<Control>(std::make_unique<PintControl>()); };
  return info;
}

}  // namespace orrery::network::packet
