// NDP (Handley et al., SIGCOMM'17): the work is done by receivers (hosts.h, credit) and switches
// (fabric.h, trimming).
//
// A sender's first window goes at line rate, then a packet for each pull, trimmed ones first.
// Queues hold eight packets; half of the time the newest queued packet is trimmed rather than the
// one that arrives.
#include "orrery/network/packet/control/list.h"

namespace orrery::network::packet {
namespace {

class NdpControl final : public Control {
 public:
  void Begin(const FlowView&, Pace*) override {}
  void OnAck(const FlowView&, const Ack&, Pace*) override {}
};

}  // namespace

ControlInfo Ndp() {
  ControlInfo info;
  info.name = "ndp";
  info.description =
      "A first window at line rate, then a packet for each pull of the receiver; switches trim "
      "what does not fit into eight packets (Handley et al., SIGCOMM'17)";
  info.trimming = info.trims_newest = info.selective = info.credit = info.sprays = true;
  info.queue_packets = 8;
  info.window_bdp = 1;
  info.window_packets = 1;
  info.make = [] { return std::unique_ptr<Control>(std::make_unique<NdpControl>()); };
  return info;
}

}  // namespace orrery::network::packet
