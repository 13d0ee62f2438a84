// EQDS (Olteanu et al., NSDI'22): receivers' credit as in NDP (hosts.h, credit), with a larger
// first window that is sent on speculation and queues of one BDP.
//
// Credit is whole packets here, its 512-byte quanta are not modelled; nor are requests to send,
// for receivers know what is left, and idle flows get none.
#include "orrery/network/packet/control/list.h"

namespace orrery::network::packet {
namespace {

class EqdsControl final : public Control {
 public:
  void Begin(const FlowView&, Pace*) override {}
  void OnAck(const FlowView&, const Ack&, Pace*) override {}
};

}  // namespace

ControlInfo Eqds() {
  ControlInfo info;
  info.name = "eqds";
  info.description =
      "NDP's pulls as credit: 50 packets go on speculation, what a switch trims is asked for first "
      "(Olteanu et al., NSDI'22)";
  info.trimming = info.selective = info.credit = info.sprays = true;
  info.queue_bdp = 1;
  info.window_packets = 50;
  info.make = [] { return std::unique_ptr<Control>(std::make_unique<EqdsControl>()); };
  return info;
}

}  // namespace orrery::network::packet
