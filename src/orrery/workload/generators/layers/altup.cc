#include "orrery/workload/generators/layers/altup.h"

#include "orrery/workload/generators/layers/layer_ops.h"
#include "orrery/workload/generators/layers/precision.h"

namespace orrery::workload {

using graph::Buffer;
using graph::Lifetime;
using graph::MemoryKind;
using graph::MemoryOp;
using graph::Pass;

namespace {

// Buffer ids of experts and of cross attention, which these models do not have.
enum : std::uint32_t {
  kAltUpStreams = 70,
  kAltUpOperand,
  kAltUpInnovation,
  kLaurelInner,
  kLaurelProduct,
  kFrontStreams,
  kBehindStreams
};

Buffer StreamBuffer(const Shape& s, BlockWriter* w, std::uint32_t id, std::string_view name,
                    std::int64_t bytes) {
  return w->Named(id, name, bytes, MemoryKind::kActivation,
                  s.recompute == Recompute::kFull ? Lifetime::kCall : Lifetime::kMicrobatch);
}

// What the scaling of the projections' outputs reads.
Buffer ProjectedStreams(const Shape& s, Ends end, BlockWriter* w) {
  const bool front = end == Ends::kEmbedding;
  return Saved(w, front ? kFrontStreams : kBehindStreams,
               front ? "embedding.streams" : "head.streams",
               (s.altup_streams - 1) * s.local_bytes());
}

}  // namespace

std::vector<std::int64_t> AltUpParameters(const Shape& s) {
  std::vector<std::int64_t> p;
  p.reserve(8);
  const std::int64_t norms = s.hidden * (s.norm == Norm::kLayerNorm ? 2 : 1);
  if (s.laurel_rank > 0) {
    for (const std::int64_t n : {s.laurel_rank * s.hidden, s.laurel_rank * s.hidden, norms}) {
      p.push_back(n);
    }
  }
  if (const std::int64_t a = s.altup_streams; a > 0) {
    for (const std::int64_t n : {a * s.hidden, a * a, a * a * a, s.hidden, norms}) p.push_back(n);
  }
  return p;
}

AltUpWriter::AltUpWriter(const Shape& s, BlockWriter* w) : s_(s), w_(w), n_(s.altup_streams) {
  streams_ = Saved(w, kAltUpStreams, "altup.streams", (n_ - 1) * s.local_bytes());
  operand_ = StreamBuffer(s, w, kAltUpOperand, "altup.operand", n_ * s.local_bytes());
  // Beside the copies, the corrected first stream, which is scaled.
  innovation_ =
      StreamBuffer(s, w, kAltUpInnovation, "altup.innovation", (n_ + 1) * s.local_bytes());
}

void AltUpWriter::Router(Pass pass) {
  if (pass == Pass::kForward) {
    NormForward(s_, w_);
    return DenseForward(InBf16(s_), w_, "router", s_.hidden, n_);
  }
  DenseBackward(InBf16(s_), w_, "router", s_.hidden, n_);
  NormBackward(s_, w_);
}

void AltUpWriter::Predict(bool keep, bool again) {
  const Pass pass = Pass::kForward;
  w_->Module("layers.altup.predict");
  w_->Host("module", s_.framework.host.module_forward);
  if (!again) w_->Alloc(streams_);
  w_->Alloc(operand_);
  Router(pass);
  OverStream(s_, w_, "permute", MemoryOp::kTranspose, n_, n_, pass);
  OverStream(s_, w_, "predict", MemoryOp::kAdd, n_, n_, pass);
  OverStream(s_, w_, "add", MemoryOp::kAdd, 2 * n_, n_, pass);
  OverStream(s_, w_, "permute", MemoryOp::kTranspose, n_, n_, pass);
  if (!keep) w_->Free(operand_);
}

void AltUpWriter::Correct(bool keep) {
  const Pass pass = Pass::kForward;
  w_->Module("layers.altup.correct");
  w_->Host("module", s_.framework.host.module_forward);
  w_->Alloc(innovation_);
  Router(pass);
  OverStream(s_, w_, "innovation", MemoryOp::kAdd, 2, 1, pass);
  OverStream(s_, w_, "repeat", MemoryOp::kCopy, n_, n_, pass);
  OverStream(s_, w_, "correct", MemoryOp::kGradScale, n_, n_, pass);
  OverStream(s_, w_, "add", MemoryOp::kAdd, 2 * n_, n_, pass);
  OverStream(s_, w_, "scale", MemoryOp::kGradScale, 1, 1, pass);
  OverStream(s_, w_, "add_layer_embedding", MemoryOp::kAdd, n_, n_ - 1, pass);
  if (!keep) w_->Free(innovation_);
}

void AltUpWriter::CorrectBackward() {
  const Pass pass = Pass::kBackward;
  w_->Module("layers.altup.correct");
  w_->Host("module", s_.framework.host.module_backward);
  OverStream(s_, w_, "add_layer_embedding", MemoryOp::kAdd, n_ - 1, 1, pass);
  OverStream(s_, w_, "scale", MemoryOp::kGradScale, 2, 1, pass);
  AccumulateGradient(s_, w_, "weight_gradient", s_.hidden);
  OverStream(s_, w_, "correct", MemoryOp::kGradScale, n_, n_, pass);
  OverStream(s_, w_, "coefficients", MemoryOp::kAdd, 2 * n_, 0, pass);
  OverStream(s_, w_, "repeat", MemoryOp::kAdd, n_, 1, pass);
  OverStream(s_, w_, "innovation", MemoryOp::kAdd, 2, 1, pass);
  Router(pass);
  w_->Free(innovation_);
}

void AltUpWriter::PredictBackward() {
  const Pass pass = Pass::kBackward;
  w_->Module("layers.altup.predict");
  w_->Host("module", s_.framework.host.module_backward);
  OverStream(s_, w_, "permute", MemoryOp::kTranspose, n_, n_, pass);
  OverStream(s_, w_, "predict", MemoryOp::kAdd, n_, n_, pass);
  OverStream(s_, w_, "coefficients", MemoryOp::kAdd, 2 * n_, 0, pass);
  OverStream(s_, w_, "add", MemoryOp::kAdd, 2 * n_, n_, pass);
  Router(pass);
  w_->Free(operand_);
  w_->Free(streams_);
}

LaurelWriter::LaurelWriter(const Shape& s, BlockWriter* w) : s_(s), w_(w) {
  inner_ = StreamBuffer(s, w, kLaurelInner, "laurel.inner",
                        s.local_tokens() * s.laurel_rank * s.element_bytes);
  product_ =
      StreamBuffer(s, w, kLaurelProduct, "laurel.product", s.local_bytes() + s.local_tokens() * 4);
}

void LaurelWriter::Forward(bool keep) {
  const Pass pass = Pass::kForward;
  w_->Module("layers.laurel");
  w_->Host("module", s_.framework.host.module_forward);
  w_->Alloc(inner_);
  w_->Alloc(product_);
  DenseForward(s_, w_, "left", s_.hidden, s_.laurel_rank);
  DenseForward(s_, w_, "right", s_.laurel_rank, s_.hidden);
  NormForward(s_, w_);
  for (const std::string_view name : {"add_input", "add_attention"}) {
    OverStream(s_, w_, name, MemoryOp::kAdd, 2, 1, pass);
  }
  OverStream(s_, w_, "scale", MemoryOp::kGradScale, 1, 1, pass);
  if (keep) return;
  w_->Free(inner_);
  w_->Free(product_);
}

void LaurelWriter::Backward() {
  const Pass pass = Pass::kBackward;
  w_->Module("layers.laurel");
  w_->Host("module", s_.framework.host.module_backward);
  OverStream(s_, w_, "scale", MemoryOp::kGradScale, 1, 1, pass);
  NormBackward(s_, w_);
  w_->Free(product_);
  DenseBackward(s_, w_, "right", s_.laurel_rank, s_.hidden);
  DenseBackward(s_, w_, "left", s_.hidden, s_.laurel_rank);
  w_->Free(inner_);
  ResidualGradient(s_, w_);
}

void StreamsForward(const Shape& s, Ends end, BlockWriter* w) {
  const std::int64_t n = s.altup_streams;
  const Pass pass = Pass::kForward;
  const bool front = end == Ends::kEmbedding;
  w->Module(front ? "embedding.streams" : "head.streams");
  w->Alloc(ProjectedStreams(s, end, w));
  for (std::int64_t i = 1; i < n; ++i) {
    DenseForward(InBf16(s), w, "projection", s.hidden, s.hidden);
    OverStream(s, w, "magnitude", MemoryOp::kRmsNorm, 1, 1, pass);
  }
  if (front) return OverStream(s, w, "stack", MemoryOp::kCopy, n, n, pass);
  OverStream(s, w, "mean", MemoryOp::kAdd, n, 1, pass);
}

void StreamsBackward(const Shape& s, Ends end, BlockWriter* w) {
  const bool front = end == Ends::kEmbedding;
  w->Module(front ? "embedding.streams" : "head.streams");
  for (std::int64_t i = 1; i < s.altup_streams; ++i) {
    OverStream(s, w, "magnitude", MemoryOp::kRmsNorm, 2, 1, Pass::kBackward);
    DenseBackward(InBf16(s), w, "projection", s.hidden, s.hidden);
    if (front) ResidualGradient(s, w);
  }
  w->Free(ProjectedStreams(s, end, w));
}

}  // namespace orrery::workload
