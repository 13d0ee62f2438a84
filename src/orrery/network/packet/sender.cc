// What a sender makes of acknowledgements, losses, pulls and its timer.
#include <algorithm>
#include <cstdlib>

#include "orrery/network/packet/hosts.h"

namespace orrery::network::packet {
namespace {

constexpr std::uint32_t kReordering = 3;  // later packets that say one is lost
constexpr std::uint32_t kMostDoublings = 8;

}  // namespace

// Bytes that the acknowledgement is the first to name.
std::int64_t Hosts::Acknowledge(Flow* flow, const Packet& ack) {
  std::int64_t bytes = 0;
  while (flow->una < ack.number) {
    if (flow->acked.Has(flow->una)) {
      flow->acked.Remove(flow->una);
    } else {
      bytes += PacketBytes(flow, flow->una);
    }
    ++flow->una;
  }
  flow->acked.Forget(flow->una);
  flow->next = std::max(flow->next, flow->una);
  if (ack.extra >= flow->una && ack.extra < flow->next && !flow->acked.Has(ack.extra)) {
    bytes += PacketBytes(flow, ack.extra);
    flow->acked.Add(ack.extra);
  }
  flow->in_flight = std::max<std::int64_t>(flow->in_flight - bytes, 0);
  // A packet that was sent twice is acknowledged once.
  if (flow->una == flow->next) flow->in_flight = 0;
  return bytes;
}

// A packet came marked, and nothing else is told.
void Hosts::OnNotice(const Packet& packet, SimTime now) {
  Flow& flow = flows_[packet.flow];
  lanes_.EndNotice(packet.flow);
  EndStretch(&PortOf(&flow), now);
  control_->OnAck(flow, {.now = now, .rtt = now - packet.sent, .marked = true}, &flow.pace);
}

void Hosts::OnAck(const Packet& packet, SimTime now) {
  if (settings_.ack_every == 0) return OnNotice(packet, now);
  Flow& flow = flows_[packet.flow];
  Ack ack{.now = now, .rtt = now - packet.sent};
  ack.bytes = Acknowledge(&flow, packet);
  ack.in_flight = flow.in_flight;
  ack.marked = (packet.flags & kMarkEcho) != 0;
  ack.acked = flow.una;
  ack.next = flow.next;
  if (settings_.control->telemetry && packet.note != kNone) {
    ack.telemetry = &fabric_->telemetry()[packet.note];
  }
  ack.code = packet.note;
  if (settings_.balance != Balance::kEcmp) NoteEntropy(&flow, packet, now);
  Measure(&flow, ack.rtt);
  if (ack.bytes > 0) {
    flow.timeouts = 0;
    flow.deadline = now + TimerOf(flow);
  }
  control_->OnAck(flow, ack, &flow.pace);
  SetRateWindow(&flow);
  if (ack.telemetry != nullptr) fabric_->telemetry().Free(packet.note);
  // Where packets keep their order, three later ones say that one is lost.
  const bool ordered = settings_.balance == Balance::kEcmp || settings_.balance == Balance::kPlb;
  if (settings_.selective && ordered && packet.extra > flow.una) {
    RepeatMissing(&flow, packet.extra, now);
  }
  Forget(&flow);
  // A message that came when the last packets had arrived already: no pull will follow them.
  if (settings_.control->credit && flow.in_flight == 0 && flow.credit == 0 && HasWork(&flow)) {
    TopUp(&flow);
  }
  MakeReady(&flow, now);
}

void Hosts::RepeatMissing(Flow* flow, std::uint32_t seen, SimTime now) {
  std::uint32_t n = std::max(flow->una, flow->recovered);
  for (; n + kReordering <= seen; ++n) {
    if (flow->acked.Has(n)) continue;
    const std::int32_t bytes = PacketBytes(flow, n);
    flow->in_flight = std::max<std::int64_t>(flow->in_flight - bytes, 0);
    flow->again.Push(n);
    control_->OnLoss(*flow, {.now = now, .bytes = bytes}, &flow->pace);
  }
  flow->recovered = std::max(flow->recovered, n);
}

void Hosts::OnNack(const Packet& packet, SimTime now) {
  Flow& flow = flows_[packet.flow];
  flow.deadline = now + TimerOf(flow);
  if (settings_.selective) {
    if (packet.number < flow.una || flow.acked.Has(packet.number)) return;
    const std::int32_t bytes = PacketBytes(&flow, packet.number);
    flow.in_flight = std::max<std::int64_t>(flow.in_flight - bytes, 0);
    flow.again.Push(packet.number);
    control_->OnLoss(flow, {now, now - packet.sent, bytes}, &flow.pace);
    if (settings_.balance != Balance::kEcmp) NoteEntropy(&flow, packet, now);
  } else {
    if (packet.number < flow.una) return;
    while (flow.una < packet.number) ++flow.una;
    fabric_->totals().retransmissions += flow.next - flow.una;
    flow.repeated += flow.next - flow.una;
    flow.next = flow.una;
    flow.in_flight = 0;
    flow.fetched = false;
    control_->OnLoss(flow, {.now = now, .bytes = flow.packet_bytes}, &flow.pace);
  }
  MakeReady(&flow, now);
}

void Hosts::OnPull(const Packet& packet, SimTime now) {
  Flow& flow = flows_[packet.flow];
  if (packet.extra <= flow.pulled) return;
  flow.credit += packet.extra - flow.pulled;
  flow.pulled = packet.extra;
  flow.deadline = now + TimerOf(flow);
  MakeReady(&flow, now);
}

void Hosts::Measure(Flow* flow, SimTime rtt) const {
  if (settings_.rto == 0) return;
  if (flow->rtt == 0) {
    flow->rtt = rtt;
    flow->rtt_swing = rtt / 2;
    return;
  }
  flow->rtt_swing += (std::abs(rtt - flow->rtt) - flow->rtt_swing) / 4;
  flow->rtt += (rtt - flow->rtt) / 8;
}

SimTime Hosts::TimerOf(const Flow& flow) const {
  return std::max(settings_.rto, flow.rtt + 4 * flow.rtt_swing);
}

void Hosts::Arm(Flow* flow, SimTime now) {
  if (settings_.rto == 0) return;
  flow->deadline = now + (TimerOf(*flow) << std::min(flow->timeouts, kMostDoublings));
  flow->armed = true;
  timers.Push({flow->deadline, flow->flow});
}

void Hosts::OnTimer(std::uint32_t number, SimTime now) {
  Flow& flow = flows_[number];
  flow.armed = false;
  // The pulls that it waits for may be lost, too.
  const bool starved = settings_.control->credit && flow.credit == 0 && HasWork(&flow);
  if (flow.una == flow.next && !starved) return;
  if (now < flow.deadline) {
    flow.armed = true;
    timers.Push({flow.deadline, number});
    return;
  }
  ++flow.timeouts;
  ++fabric_->totals().timeouts;
  patience_ = std::max(patience_, flow.timeouts);
  flow.in_flight = 0;
  if (settings_.selective) {
    while (!flow.again.empty()) flow.again.Pop();
    for (std::uint32_t n = flow.una; n < flow.next; ++n) {
      if (!flow.acked.Has(n)) flow.again.Push(n);
    }
    flow.recovered = flow.next;
    const auto first = static_cast<std::uint32_t>(settings_.window / flow.packet_bytes);
    flow.credit = std::max(
        flow.credit, std::min<std::uint32_t>(static_cast<std::uint32_t>(flow.again.size()), first));
    if (starved) TopUp(&flow);
  } else {
    fabric_->totals().retransmissions += flow.next - flow.una;
    flow.repeated += flow.next - flow.una;
    flow.next = flow.una;
  }
  control_->OnTimeout(flow, now, &flow.pace);
  Arm(&flow, now);
  MakeReady(&flow, now);
  fabric_->Wake(flow.node, now);
}

// Messages that both ends are done with.
void Hosts::Forget(Flow* flow) {
  while (flow->completed > 0) {
    const Message& m = flow->messages.front();
    if (settings_.ack_every > 0 && flow->una < m.first + m.packets) return;
    flow->messages.Pop();
    --flow->completed;
    if (flow->at_message > 0) --flow->at_message;
  }
}

}  // namespace orrery::network::packet
