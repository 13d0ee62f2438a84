// What a receiver does with data packets and headers.
#include <algorithm>

#include "orrery/network/packet/hosts.h"

namespace orrery::network::packet {
namespace {

// A go-back-N receiver names the same missing packet again after so long (HPCC's ns-3).
constexpr SimTime kNackAgain = 500 * kMicrosecond;

}  // namespace

void Hosts::OnData(const Packet& packet, SimTime now) {
  Flow& flow = flows_[packet.flow];
  const auto drop_note = [&] {
    if (settings_.control->telemetry && packet.note != kNone) {
      fabric_->telemetry().Free(packet.note);
    }
  };
  flow.told = std::max(flow.told, packet.extra);
  const std::uint32_t n = packet.number;
  const bool known = n < flow.expected || flow.arrived.Has(n);
  const bool in_order = n == flow.expected;
  const bool gap = !flow.arrived.empty();  // later ones are here, of which it may fill it
  const SimTime at_gpu = known ? now : ToGpu(flow, now, packet.bytes);
  if (in_order) {
    ++flow.expected;
    while (!flow.arrived.empty() && flow.arrived.Has(flow.expected)) {
      flow.arrived.Remove(flow.expected++);
    }
    flow.arrived.Forget(flow.expected);
    Complete(&flow, at_gpu);
  } else if (!known && settings_.selective) {
    flow.arrived.Add(n);
  } else if (!known) {
    if (flow.nacked != flow.expected || now >= flow.nacked_at + kNackAgain) {
      flow.nacked = flow.expected;
      flow.nacked_at = now;
      SendBack(packet, Kind::kNack, flow.expected, n, now);
    } else {
      drop_note();
    }
    return;
  }
  if (settings_.control->credit) Owe(&flow, now);
  if (settings_.ack_every == 0) {
    if ((packet.flags & kMarked) != 0) {
      SendBack(packet, Kind::kAck, flow.expected, n, now);
      lanes_.BeginNotice(packet.flow, &disturbed_);
    }
    Forget(&flow);
    return drop_note();
  }
  ++flow.unacknowledged;
  const bool at_once =
      !in_order || gap || (packet.flags & (kMarked | kLastOfMessage | kAckNow)) != 0;
  if (!at_once && flow.unacknowledged < static_cast<std::uint32_t>(settings_.ack_every)) {
    return drop_note();
  }
  flow.unacknowledged = 0;
  SendBack(packet, Kind::kAck, flow.expected, n, now);
}

void Hosts::OnHeader(const Packet& packet, SimTime now) {
  Flow& flow = flows_[packet.flow];
  flow.told = std::max(flow.told, packet.extra);
  if (settings_.control->telemetry && packet.note != kNone) fabric_->telemetry().Free(packet.note);
  Packet cause = packet;
  cause.note = kNone;
  if (packet.number < flow.expected || flow.arrived.Has(packet.number)) {
    return SendBack(cause, Kind::kAck, flow.expected, packet.number, now);
  }
  ++flow.headers;
  SendBack(cause, Kind::kNack, packet.number, packet.number, now);
  if (settings_.control->credit) Owe(&flow, now);
}

// A pull for the flow, unless those given and owed cover what is left.
void Hosts::Owe(Flow* flow, SimTime now) {
  if (flow->pulls + flow->owed + flow->told >= flow->end + flow->headers) return;
  Host& host = HostAt(flow->to_node);
  if (flow->owed++ == 0) host.creditors.Push(flow->flow);
  host.next_pull = std::max(host.next_pull, now);
}

SimTime Hosts::ToGpu(const Flow& flow, SimTime now, std::int32_t bytes) {
  return Cross(paths_->after(flow.flow), now, bytes);
}

// The messages that end below `expected` are at the GPU at `at_gpu`.
void Hosts::Complete(Flow* flow, SimTime at_gpu) {
  while (flow->completed < flow->messages.size()) {
    const Message& m = flow->messages[flow->completed];
    if (flow->expected < m.first + m.packets) return;
    done.Push({at_gpu, m.sequence, m.creator, m.id});
    --unfinished_;
    ++flow->completed;
    lanes_.End(flow->lane);
  }
}

}  // namespace orrery::network::packet
