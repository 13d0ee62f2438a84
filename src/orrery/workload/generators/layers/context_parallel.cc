#include "orrery/workload/generators/layers/context_parallel.h"

#include "orrery/workload/generators/layers/layer_ops.h"
#include "orrery/workload/generators/layers/precision.h"

namespace orrery::workload {

using graph::Attention;
using graph::Buffer;
using graph::Collective;
using graph::Comm;
using graph::GroupSlot;
using graph::MemoryKind;
using graph::MemoryOp;
using graph::Pass;
using graph::PeerSlot;

namespace {

Attention Kernel(const Shape& s, std::int64_t seq_kv, bool causal, Pass pass) {
  return {.batch = s.batch,
          .heads = s.heads,
          .kv_heads = s.kv_heads,
          .seq_q = s.seq,
          .seq_kv = seq_kv,
          .head_dim = s.head_dim,
          .dtype = AttentionType(s),
          .causal = causal,
          .pass = pass,
          .kernel = s.fused_attention(),
          // Latent attention's values travel padded to keys.
          .v_head_dim = s.latent.kv_rank > 0 ? 0 : s.other_v_head_dim()};
}

void Collect(const Shape& s, BlockWriter* w, std::string_view name, Collective kind,
             std::int64_t bytes) {
  w->Host("communication", s.framework.host.communication);
  w->Comm(name, {.collective = kind,
                 .group = GroupSlot::kCp,
                 .stream = kCpStream,
                 .dtype = s.dtype,
                 .bytes = {.value = bytes}});
}

// One step round the ring: sends to the next, receives from the previous. One group call, so that
// both start together; the communicator is the pair's (engine/prices.cc).
void Step(const Shape& s, BlockWriter* w, std::int64_t bytes, bool blocking) {
  w->Host("communication", s.framework.host.communication);
  Comm comm{.collective = Collective::kSend,
            .group = GroupSlot::kCp,
            .peer = PeerSlot::kCpNext,
            .stream = kCpStream,
            .batch = w->NextBatch(),
            .blocking = blocking,
            .event = blocking ? graph::kNoEvent : kRingEvent,
            .dtype = s.dtype,
            .bytes = {.value = bytes}};
  w->Comm("ring.send", comm);
  comm.collective = Collective::kRecv;
  comm.peer = PeerSlot::kCpPrevious;
  w->Comm("ring.receive", comm);
}

// As they travel before the kernel; their gradients do in 16 bits.
std::int64_t CastKeyValueBytes(const Shape& s) {
  return KeyValueBytes(s) / s.element_bytes * graph::SizeOf(AttentionType(s));
}

void RingForward(const Shape& s, BlockWriter* w) {
  const std::int64_t e = s.element_bytes;
  const std::int64_t bytes = CastKeyValueBytes(s);
  const Buffer buffers = w->Temporary("ring.key_value", 2 * bytes, MemoryKind::kCommunication);
  const Buffer partial = w->Temporary("ring.partial", s.tokens() * s.query() * e);
  w->Alloc(buffers);
  w->Alloc(partial);
  for (std::int64_t step = 0; step < s.cp; ++step) {
    w->Host("ring", s.framework.host.ring_step);
    const bool more = step + 1 < s.cp;
    if (more) Step(s, w, bytes, false);
    const std::int64_t seen = step == 0 ? s.seq : s.seq / 2;
    w->Kernel("flash_attention", Kernel(s, seen, step == 0, Pass::kForward));
    if (step > 0) {  // rescales both by their row sums and adds
      w->Kernel("merge",
                Elementwise(s, MemoryOp::kAdd, s.tokens(), s.query(), 2 * e, e, Pass::kForward));
    }
    if (more) w->Wait("ring", kRingEvent);
  }
  w->Free(partial);
  w->Free(buffers);
}

void RingBackward(const Shape& s, BlockWriter* w) {
  const std::int64_t e = s.element_bytes;
  const std::int64_t bytes = KeyValueBytes(s);
  const Buffer buffers = w->Temporary("ring.key_value", 4 * bytes, MemoryKind::kCommunication);
  w->Alloc(buffers);
  for (std::int64_t step = 0; step < s.cp; ++step) {
    w->Host("ring", s.framework.host.ring_step);
    const std::int64_t moved =
        (step + 1 < s.cp ? CastKeyValueBytes(s) : 0) + (step > 0 ? bytes : 0);
    if (moved > 0) Step(s, w, moved, false);
    const std::int64_t seen = step == 0 ? s.seq : s.seq / 2;
    w->Kernel("flash_attention", Kernel(s, seen, step == 0, Pass::kBackward));
    if (moved > 0) w->Wait("ring", kRingEvent);
    if (step > 0) {  // into the gradients of queries, and of the keys and values that came along
      const std::int64_t cols = s.parts();
      w->Kernel("merge",
                Elementwise(s, MemoryOp::kAdd, s.tokens(), cols, 2 * e, e, Pass::kBackward));
    }
  }
  Step(s, w, bytes, true);  // the gradients' last step home
  w->Free(buffers);
}

void GatherKeyValue(const Shape& s, BlockWriter* w, Pass pass) {
  const std::int64_t whole = KeyValueBytes(s) * s.cp;
  const bool backward = pass == Pass::kBackward;
  const Buffer gathered =
      w->Temporary("key_value.gathered", whole * (backward ? 2 : 1), MemoryKind::kCommunication);
  w->Alloc(gathered);
  Collect(s, w, "all_gather", Collective::kAllGather, whole);
  // Two parts of the queries see (r + 1) + (2·cp - r) parts less two half squares: cp of 2·cp each.
  w->Kernel("flash_attention", Kernel(s, s.seq * s.cp / 2, false, pass));
  if (backward) Collect(s, w, "reduce_scatter", Collective::kReduceScatter, whole);
  w->Free(gathered);
}

void DealOut(const Shape& s, BlockWriter* w, Pass pass) {
  const std::int64_t parts = s.parts();
  const std::int64_t row = s.tokens() * s.element_bytes;
  const std::int64_t cast = s.tokens() * graph::SizeOf(AttentionType(s));
  const bool backward = pass == Pass::kBackward;
  const Buffer dealt = w->Temporary("heads", row * (parts + s.query()), MemoryKind::kCommunication);
  w->Alloc(dealt);
  Collect(s, w, "all_to_all", Collective::kAllToAll, cast * (backward ? s.query() : parts));
  Attention kernel = Kernel(s, s.seq * s.cp, true, pass);
  kernel.seq_q = s.seq * s.cp;
  kernel.heads = s.heads / s.cp;
  kernel.kv_heads = s.kv_heads / s.cp;
  w->Kernel("flash_attention", kernel);
  Collect(s, w, "all_to_all", Collective::kAllToAll, row * (backward ? parts : s.query()));
  w->Free(dealt);
}

}  // namespace

void ContextForward(const Shape& s, BlockWriter* w) {
  switch (s.cp_exchange) {
    case CpExchange::kRing:
      return RingForward(s, w);
    case CpExchange::kAllGather:
      return GatherKeyValue(s, w, Pass::kForward);
    case CpExchange::kAllToAll:
      return DealOut(s, w, Pass::kForward);
  }
}

void ContextBackward(const Shape& s, BlockWriter* w) {
  switch (s.cp_exchange) {
    case CpExchange::kRing:
      return RingBackward(s, w);
    case CpExchange::kAllGather:
      return GatherKeyValue(s, w, Pass::kBackward);
    case CpExchange::kAllToAll:
      return DealOut(s, w, Pass::kBackward);
  }
}

}  // namespace orrery::workload
