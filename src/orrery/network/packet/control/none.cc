// `none`: line rate and no window; PFC keeps the fabric from losing anything.
#include "orrery/network/packet/control/list.h"

namespace orrery::network::packet {
namespace {

class NoControl final : public Control {
 public:
  // A window that the run names is kept.
  void Begin(const FlowView& flow, Pace* pace) override {
    if (flow.window > 0) pace->window = static_cast<double>(flow.window);
  }
  void OnAck(const FlowView&, const Ack&, Pace*) override {}
};

}  // namespace

ControlInfo None() {
  ControlInfo info;
  info.name = "none";
  info.description =
      "Line rate, held back by PFC alone (RoCE without congestion control); alone a message takes "
      "as long as on links.";
  info.pfc = info.only_marks = true;
  info.make = [] { return std::unique_ptr<Control>(std::make_unique<NoControl>()); };
  return info;
}

}  // namespace orrery::network::packet
