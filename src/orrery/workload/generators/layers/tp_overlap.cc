#include "orrery/workload/generators/layers/tp_overlap.h"

#include <algorithm>
#include <array>

#include "orrery/workload/generators/layers/layer_ops.h"
#include "orrery/workload/generators/layers/precision.h"

namespace orrery::workload {

using graph::Collective;
using graph::Comm;
using graph::DType;
using graph::Gemm;
using graph::GroupSlot;
using graph::MemoryOp;
using graph::Pass;
using graph::PeerSlot;

namespace {

// One message to the next rank and one from the previous, as one group call; `event` recorded at
// its end.
void Exchange(BlockWriter* w, std::int64_t bytes, DType dtype, std::int16_t event) {
  Comm comm{.collective = Collective::kSend,
            .group = GroupSlot::kTp,
            .peer = PeerSlot::kTpNext,
            .stream = kTpStream,
            .batch = w->NextBatch(),
            .blocking = false,
            .event = event,
            .dtype = dtype,
            .bytes = {.value = bytes}};
  w->Comm("tp_ring.send", comm);
  comm.collective = Collective::kRecv;
  comm.peer = PeerSlot::kTpPrevious;
  w->Comm("tp_ring.receive", comm);
}

// Part i of n, whole numbers that sum to `total`.
std::int64_t Part(std::int64_t total, std::int64_t i, std::int64_t n) {
  return total * (i + 1) / n - total * i / n;
}

void ReduceInRing(const Shape& s, BlockWriter* w, std::string_view name, Gemm piece) {
  const std::int64_t out = piece.n;
  const std::int64_t bytes = s.tokens() * out * s.element_bytes;
  piece.m = s.tokens() / s.tp;
  piece.kind = graph::GemmKind::kPiece;
  for (std::int64_t i = 0; i < s.tp; ++i) {
    w->Kernel(name, piece);
    const bool last = i + 2 == s.tp;  // the last piece is the rank's own
    if (i + 1 < s.tp) {
      Exchange(w, Part(bytes, i, s.tp), s.dtype, last ? kDgradEvent : graph::kNoEvent);
    }
  }
  w->Wait("tp_ring", kDgradEvent);
  w->Kernel("tp_ring.sum", Elementwise(s, MemoryOp::kAdd, s.local_tokens(), out,
                                       s.tp * s.element_bytes, s.element_bytes, Pass::kForward));
}

}  // namespace

bool Pipelines(const Shape& s, std::string_view layer) {
  constexpr std::array<std::string_view, 8> kLayers = {
      "qkv",        "projection", "fc1",           "fc2",
      "shared_fc1", "shared_fc2", "in_projection", "out_projection"};
  return s.framework.tp_comm_overlap &&
         std::find(kLayers.begin(), kLayers.end(), layer) != kLayers.end();
}

void GatherAndMultiply(const Shape& s, BlockWriter* w, std::string_view name, std::int64_t bytes,
                       DType wire, const Gemm& product) {
  Gemm piece = product;
  piece.m = product.m / s.tp;
  piece.kind = graph::GemmKind::kPiece;
  for (std::int64_t i = 0; i < s.tp; ++i) {
    const bool more = i + 1 < s.tp;
    if (more) Exchange(w, Part(bytes, i, s.tp), wire, kDgradEvent);
    w->Kernel(name, piece);
    if (more) w->Wait("tp_ring", kDgradEvent);
  }
}

void MultiplyAndReduce(const Shape& s, BlockWriter* w, std::string_view name, const Gemm& product) {
  if (IsLow(s) || s.plain_torch()) return ReduceInRing(s, w, name, product);
  Gemm piece = product;
  piece.n = product.n / kReducePieces;
  piece.kind = graph::GemmKind::kPiece;
  for (std::int64_t i = 0; i < kReducePieces; ++i) {
    w->Kernel(name, piece);
    w->Comm("reduce_scatter", {.collective = Collective::kReduceScatter,
                               .group = GroupSlot::kTp,
                               .stream = kTpStream,
                               .blocking = i + 1 == kReducePieces,
                               .dtype = s.dtype,
                               .bytes = {.value = s.tokens() * piece.n * s.element_bytes}});
  }
}

std::int64_t UserbufferBytes(const Shape& s) {
  if (!s.framework.tp_comm_overlap) return 0;
  const std::int64_t elements = s.tokens() * s.hidden;
  const std::int64_t reduced = elements * s.element_bytes;
  // torch.distributed._symmetric_memory has one workspace: two parts on their way to their owner.
  if (s.plain_torch()) return 2 * reduced / s.tp;
  const std::int64_t gathered = IsLow(s) ? elements : reduced;
  // Gathered: qkv, fc1 forward; projection, fc2 data gradient; the inputs of qkv and fc1 backward.
  // Reduced in a ring: a part of its own for what comes from each other rank, too.
  const std::int64_t forward = IsLow(s) ? reduced / s.tp * (2 * s.tp - 1) : reduced;
  return 6 * gathered + 2 * forward + 2 * reduced;
}

std::int64_t UserbufferBytes(const Model& model, const Plan& plan) {
  return plan.framework.tp_comm_overlap ? UserbufferBytes(MakeShape(model, plan)) : 0;
}

}  // namespace orrery::workload
