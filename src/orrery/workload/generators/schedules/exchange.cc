#include "orrery/workload/generators/schedules/exchange.h"

#include "orrery/workload/generators/layers/layer_ops.h"

namespace orrery::workload {

using graph::Buffer;
using graph::Collective;
using graph::Comm;
using graph::GroupSlot;
using graph::MemoryKind;
using graph::Pass;
using graph::PeerSlot;

namespace {

constexpr std::array<Direction, 4> kEven = {kSendNext, kRecvPrevious, kSendPrevious, kRecvNext};
constexpr std::array<Direction, 4> kOdd = {kRecvPrevious, kSendNext, kRecvNext, kSendPrevious};
constexpr std::array<Direction, 4> kBatch = {kSendPrevious, kRecvPrevious, kSendNext, kRecvNext};

std::string_view NameOf(Direction d) {
  switch (d) {
    case kSendNext:
      return "send_forward";
    case kRecvPrevious:
      return "receive_forward";
    case kSendPrevious:
      return "send_backward";
    case kRecvNext:
      return "receive_backward";
  }
  return "?";
}

bool IsSend(Direction d) { return d == kSendNext || d == kSendPrevious; }

std::uint8_t StreamOf(Direction d) {
  switch (d) {
    case kSendNext:
      return kPpStream;
    case kRecvPrevious:
      return kPpStream + 1;
    case kSendPrevious:
      return kPpStream + 2;
    case kRecvNext:
      return kPpStream + 3;
  }
  return kPpStream;
}

Comm Message(const Shape& s, Direction d) {
  return {.collective = IsSend(d) ? Collective::kSend : Collective::kRecv,
          .group = GroupSlot::kPp,
          .peer = d == kSendNext || d == kRecvNext ? PeerSlot::kNext : PeerSlot::kPrevious,
          .stream = StreamOf(d),
          .tag = static_cast<std::uint8_t>(d == kSendPrevious || d == kRecvNext ? 1 : 0),
          .dtype = s.dtype,
          .bytes = {.value = s.p2p_bytes(d == kSendNext || d == kRecvNext)}};
}

std::array<Buffer, 4> Buffers(const Shape& s, Directions directions, BlockWriter* w) {
  std::array<Buffer, 4> buffers{};
  for (std::size_t i = 0; i < kBatch.size(); ++i) {
    if (!(directions & kBatch[i])) continue;
    const bool next = kBatch[i] == kSendNext || kBatch[i] == kRecvNext;
    buffers[i] = w->Temporary(NameOf(kBatch[i]), s.p2p_bytes(next), MemoryKind::kCommunication);
    w->Alloc(buffers[i]);
  }
  return buffers;
}

// The older optimisation sends a tp-th of the tensor; the receiver gathers the rest.
void GatherReceived(const Shape& s, Directions directions, BlockWriter* w) {
  if (!s.scatters_p2p()) return;
  for (const Direction d : {kRecvPrevious, kRecvNext}) {
    if (directions & d) {
      TpCollective(s, w, "all_gather", Collective::kAllGather, s.full_bytes(), s.dtype);
    }
  }
}

}  // namespace

std::span<const Direction> IssueOrder(bool odd_stage) { return odd_stage ? kOdd : kEven; }

graph::Block BatchedExchange(const Shape& s, Directions directions, Names* names) {
  BlockWriter w(names, "pipeline.exchange", Pass::kForward);
  const auto buffers = Buffers(s, directions, &w);
  w.Host("communication", s.framework.host.communication);
  for (const Direction d : kBatch) {
    if (!(directions & d)) continue;
    Comm comm = Message(s, d);
    comm.stream = kPpStream;
    comm.batch = 1;
    w.Comm(NameOf(d), comm);
  }
  if (s.framework.batch_p2p_sync) w.HostSync("synchronise");
  GatherReceived(s, directions, &w);
  for (const Buffer& b : buffers) w.Free(b);
  return w.Finish();
}

graph::Block UnbatchedExchange(const Shape& s, Directions directions, bool odd_stage,
                               Names* names) {
  BlockWriter w(names, "pipeline.exchange", Pass::kForward);
  const auto buffers = Buffers(s, directions, &w);
  const auto order = IssueOrder(odd_stage);
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (!(directions & order[i])) continue;
    Comm comm = Message(s, order[i]);
    comm.blocking = false;
    comm.event = static_cast<std::int16_t>(kBlockP2pEvent + static_cast<std::int16_t>(i));
    w.Host("communication", s.framework.host.communication);
    w.Comm(NameOf(order[i]), comm);
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (!(directions & order[i])) continue;
    w.Wait(NameOf(order[i]),
           static_cast<std::int16_t>(kBlockP2pEvent + static_cast<std::int16_t>(i)));
  }
  GatherReceived(s, directions, &w);
  for (const Buffer& b : buffers) w.Free(b);
  return w.Finish();
}

graph::Block StartMessage(const Shape& s, bool send, bool to_next, bool gradient, Names* names) {
  const std::string_view name = send ? (gradient ? "send_backward" : "send_forward")
                                     : (gradient ? "receive_backward" : "receive_forward");
  BlockWriter w(names, name, Pass::kForward);
  const int kind = (send ? 1 : 0) + (to_next ? 2 : 0) + (gradient ? 4 : 0);
  w.Host("communication", s.framework.host.communication);
  w.Comm(name, {.collective = send ? Collective::kSend : Collective::kRecv,
                .group = GroupSlot::kPp,
                .peer = to_next ? PeerSlot::kNext : PeerSlot::kPrevious,
                .stream = static_cast<std::uint8_t>(kMessageStream + kind),
                .tag = static_cast<std::uint8_t>(gradient ? 1 : 0),
                .blocking = false,
                .event = graph::kCallEvent,
                .dtype = s.dtype,
                .bytes = {.value = s.p2p_bytes(to_next)}});
  return w.Finish();
}

graph::Block StartExchange(const Shape& s, Direction direction, Names* names) {
  BlockWriter w(names, NameOf(direction), Pass::kForward);
  Comm comm = Message(s, direction);
  comm.blocking = false;
  comm.event = graph::kCallEvent;
  w.Host("communication", s.framework.host.communication);
  w.Comm(NameOf(direction), comm);
  return w.Finish();
}

}  // namespace orrery::workload
