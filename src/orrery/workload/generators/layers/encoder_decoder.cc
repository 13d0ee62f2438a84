#include "orrery/workload/generators/layers/encoder_decoder.h"

#include "orrery/workload/generators/layers/embedding_and_head.h"
#include "orrery/workload/generators/layers/layer_ops.h"
#include "orrery/workload/generators/layers/layer_writer.h"
#include "orrery/workload/generators/layers/precision.h"

namespace orrery::workload {

using graph::Buffer;
using graph::GemmLayout;
using graph::Lifetime;
using graph::MemoryKind;
using graph::MemoryOp;
using graph::Pass;

namespace {

// Buffer ids of experts and Mamba, which these models do not have.
enum : std::uint32_t { kCross = 70, kTurnInput = 84, kEncoderOutput, kEncoderGradient, kFrames };
constexpr std::int64_t kTaps = 3, kStride = 2;

// The norm's input and statistics.
Buffer TurnInput(const Shape& encoder, BlockWriter* w) {
  return Saved(w, kTurnInput, "encoder.norm.input",
               encoder.local_bytes() + encoder.local_tokens() * 8);
}
Buffer EncoderOutput(const Shape& encoder, BlockWriter* w) {
  return Saved(w, kEncoderOutput, "encoder.output", encoder.local_bytes());
}
Buffer EncoderGradient(const Shape& encoder, BlockWriter* w) {
  return Saved(w, kEncoderGradient, "encoder.output.gradient", encoder.local_bytes());
}
// Frames, and both convolutions' outputs before and behind their function; frozen, nothing is kept.
Buffer Frames(const Shape& s, BlockWriter* w) {
  const std::int64_t each =
      s.frozen() ? 0 : s.frame_values * kStride + (2 * kStride + 1) * s.hidden;
  return Saved(w, kFrames, "frames", s.tokens() * each * s.element_bytes);
}

Shape ForCross(const Shape& s) {
  Shape cross = s;
  cross.framework.attention = s.cross_attention;
  cross.bidirectional = true;
  cross.window = 0;
  return cross;
}

// A convolution of so many positions as products over its taps.
void Convolution(const Shape& s, BlockWriter* w, std::string_view name, std::int64_t positions,
                 std::int64_t in, Pass pass, bool data) {
  const std::int64_t k = kTaps * in;
  const auto product = [&](std::int64_t m, std::int64_t n, std::int64_t inner, GemmLayout layout) {
    WriteGemm(InBf16(s), w, name, {.m = m, .n = n, .k = inner, .dtype = s.dtype, .layout = layout});
  };
  if (pass == Pass::kForward) return product(positions, s.hidden, k, GemmLayout::kNT);
  if (data) product(positions, k, s.hidden, GemmLayout::kNN);
  product(s.hidden, k, positions, GemmLayout::kTN);
  BiasGradient(s, w, positions, s.hidden);
}

}  // namespace

Shape EncoderShape(const Shape& s) {
  Shape encoder = s;
  encoder.seq = s.encoder_seq;
  return encoder;
}

void FramesForward(const Shape& s, BlockWriter* w) {
  const std::int64_t e = s.element_bytes, frames = s.tokens() * kStride;
  const Pass pass = Pass::kForward;
  w->Module("embedding.frames");
  w->Alloc(Frames(s, w));
  Convolution(s, w, "conv1", frames, s.frame_values, pass, false);
  w->Kernel("gelu", Elementwise(s, MemoryOp::kGelu, frames, s.hidden, e, e, pass));
  Convolution(s, w, "conv2", s.tokens(), s.hidden, pass, false);
  w->Kernel("gelu", Elementwise(s, MemoryOp::kGelu, s.tokens(), s.hidden, e, e, pass));
  w->Module("embedding.position");
  w->Kernel("add", Elementwise(s, MemoryOp::kAdd, s.tokens(), s.hidden, 2 * e, e, pass));
}

void FramesBackward(const Shape& s, BlockWriter* w) {
  const std::int64_t e = s.element_bytes, frames = s.tokens() * kStride;
  const Pass pass = Pass::kBackward;
  w->Module("embedding.frames");
  if (s.frozen()) return w->Free(Frames(s, w));
  w->Kernel("gelu", Elementwise(s, MemoryOp::kGelu, s.tokens(), s.hidden, 2 * e, e, pass));
  Convolution(s, w, "conv2", s.tokens(), s.hidden, pass, true);
  w->Kernel("gelu", Elementwise(s, MemoryOp::kGelu, frames, s.hidden, 2 * e, e, pass));
  Convolution(s, w, "conv1", frames, s.frame_values, pass, false);
  w->Free(Frames(s, w));
}

void TurnForward(const Shape& s, BlockWriter* w) {
  const Shape encoder = EncoderShape(s);
  w->Module("encoder.norm");
  for (const Buffer& buffer :
       {TurnInput(encoder, w), EncoderOutput(encoder, w), EncoderGradient(encoder, w)}) {
    w->Alloc(buffer);
  }
  NormForward(encoder, w);
  WriteEmbeddingForward(s, w);
}

void TurnBackward(const Shape& s, BlockWriter* w) {
  const Shape encoder = EncoderShape(s);
  WriteEmbeddingBackward(s, w);
  w->Module("encoder.norm");
  NormBackward(encoder, w);
  for (const Buffer& buffer :
       {TurnInput(encoder, w), EncoderOutput(encoder, w), EncoderGradient(encoder, w)}) {
    w->Free(buffer);
  }
}

CrossWriter::CrossWriter(const Shape& s, BlockWriter* w)
    : s_(PartShape(ForCross(s), kBf16Attention)), encoder_(EncoderShape(s_)), w_(w) {
  const bool full = s.recompute == Recompute::kFull;
  std::uint32_t id = kCross;
  const auto make = [&](std::string_view name, std::int64_t bytes) {
    return w->Named(id++, name, bytes, MemoryKind::kActivation,
                    full ? Lifetime::kCall : Lifetime::kMicrobatch);
  };
  const std::int64_t e = s.element_bytes, local = s.local_tokens();
  const std::int64_t square = flash() ? 0 : rows() * s.encoder_seq;
  statistics_ = make("cross_norm.statistics", local * 4 * (s.norm == Norm::kLayerNorm ? 2 : 1));
  normed_ = make("cross_norm.output", LinearBytes(s_, local * s.hidden));
  query_ = make("cross.query", s.tokens() * s.query() * e);
  key_value_ = make("cross.key_value", encoder_.tokens() * 2 * s.key_value() * e);
  scores_ = make("cross.probabilities",
                 flash() ? s.tokens() * s.heads * 4 : square * (s.framework.fused_softmax ? e : 4));
  score_mask_ = make("cross.probability_mask", s.dropout ? square : 0);
  dropped_ = make("cross.dropped", s.dropout ? square * e : 0);
  context_ = make("cross.context", s.tokens() * s.context() * e);
  mask_ = make("cross.mask", s.dropout ? local * s.hidden : 0);
  residual_ = make("cross.residual", s.local_bytes());
}

graph::Attention CrossWriter::Flash(Pass pass) const {
  graph::Attention attention = FlashAttention(s_, pass);
  attention.seq_kv = s_.encoder_seq;
  return attention;
}

void CrossWriter::Core(bool keep) {
  Enter(s_, w_, "layers.cross_attention.core", Pass::kForward);
  w_->Host("attention", s_.framework.host.core);
  w_->Alloc(scores_);
  w_->Alloc(context_);
  if (flash()) {
    w_->Kernel("flash_attention", Flash(Pass::kForward));
  } else {
    w_->Kernel("scores", Batched(s_, s_.seq, s_.encoder_seq, s_.head_dim, GemmLayout::kNT));
    WriteSoftmax(s_, w_, rows(), s_.encoder_seq, Pass::kForward);
    w_->Alloc(score_mask_);
    w_->Alloc(dropped_);
    if (s_.dropout) {
      const std::int64_t e = s_.element_bytes;
      w_->Kernel("attention_dropout", Elementwise(s_, MemoryOp::kDropout, rows(), s_.encoder_seq, e,
                                                  e + 1, Pass::kForward));
    }
    w_->Kernel("context", Batched(s_, s_.seq, s_.head_dim, s_.encoder_seq, GemmLayout::kNN));
  }
  if (keep) return;
  w_->Free(scores_);
  if (flash()) return;
  w_->Free(score_mask_);
  w_->Free(dropped_);
}

void CrossWriter::Forward(bool keep) {
  const std::int64_t e = s_.element_bytes;
  const Pass pass = Pass::kForward;
  Enter(s_, w_, "layers.cross_norm", pass);
  w_->Alloc(statistics_);
  w_->Alloc(normed_);
  NormForward(s_, w_);
  Enter(s_, w_, "layers.cross_attention.query", pass);
  w_->Alloc(query_);
  ColumnForward(s_, w_, "cross_query", s_.hidden, s_.query());
  Enter(s_, w_, "layers.cross_attention.key_value", pass);
  w_->Alloc(key_value_);
  ColumnForward(encoder_, w_, "cross_key_value", s_.hidden, 2 * s_.key_value());
  Core(keep);
  Enter(s_, w_, "layers.cross_attention.projection", pass);
  const Buffer projected = w_->Temporary("projected", s_.full_bytes());
  w_->Alloc(projected);
  RowForward(s_, w_, "cross_projection", s_.context(), s_.hidden);
  Enter(s_, w_, "layers.cross_attention.bias_dropout_add", pass);
  w_->Alloc(mask_);
  w_->Alloc(residual_);
  w_->Kernel("bias_dropout_add", Elementwise(s_, MemoryOp::kBiasDropoutAdd, s_.local_tokens(),
                                             s_.hidden, 2 * e, e + (s_.dropout ? 1 : 0), pass));
  w_->Free(projected);
  if (keep) return;
  for (const Buffer& buffer : {statistics_, normed_, query_, key_value_, context_, mask_}) {
    w_->Free(buffer);
  }
}

void CrossWriter::CoreBackward() {
  Enter(s_, w_, "layers.cross_attention.core", Pass::kBackward);
  if (flash()) {
    w_->Kernel("flash_attention", Flash(Pass::kBackward));
  } else {
    const std::int64_t e = s_.element_bytes;
    const Buffer gradient =
        w_->Temporary("cross.probabilities.gradient", rows() * s_.encoder_seq * e);
    w_->Alloc(gradient);
    w_->Kernel("context.probabilities",
               Batched(s_, s_.seq, s_.encoder_seq, s_.head_dim, GemmLayout::kNT));
    w_->Kernel("context.values", Batched(s_, s_.encoder_seq, s_.head_dim, s_.seq, GemmLayout::kTN));
    if (s_.dropout) {
      w_->Kernel("attention_dropout", Elementwise(s_, MemoryOp::kDropout, rows(), s_.encoder_seq,
                                                  e + 1, e, Pass::kBackward));
    }
    WriteSoftmax(s_, w_, rows(), s_.encoder_seq, Pass::kBackward);
    w_->Kernel("scores.query", Batched(s_, s_.seq, s_.head_dim, s_.encoder_seq, GemmLayout::kNN));
    w_->Kernel("scores.key", Batched(s_, s_.encoder_seq, s_.head_dim, s_.seq, GemmLayout::kTN));
    w_->Free(gradient);
    w_->Free(score_mask_);
    w_->Free(dropped_);
  }
  w_->Free(scores_);
  w_->Free(context_);
}

void CrossWriter::Backward() {
  const std::int64_t e = s_.element_bytes;
  const Pass pass = Pass::kBackward;
  Enter(s_, w_, "layers.cross_attention.bias_dropout_add", pass);
  if (s_.dropout) {
    w_->Kernel("bias_dropout_add", Elementwise(s_, MemoryOp::kBiasDropoutAdd, s_.local_tokens(),
                                               s_.hidden, e + 1, e, pass));
  }
  if (s_.attention_bias) BiasGradient(s_, w_, s_.local_tokens(), s_.hidden);
  w_->Free(mask_);
  Enter(s_, w_, "layers.cross_attention.projection", pass);
  const Buffer context = w_->Temporary("context.gradient", s_.tokens() * s_.context() * e);
  const Buffer query = w_->Temporary("query.gradient", s_.tokens() * s_.query() * e);
  const Buffer key_value =
      w_->Temporary("key_value.gradient", encoder_.tokens() * 2 * s_.key_value() * e);
  w_->Alloc(context);
  RowBackward(s_, w_, "cross_projection", s_.context(), s_.hidden);
  w_->Alloc(query);
  w_->Alloc(key_value);
  CoreBackward();
  w_->Free(context);
  w_->Free(query_);
  w_->Free(key_value_);
  Enter(s_, w_, "layers.cross_attention.key_value", pass);
  ColumnBackward(encoder_, w_, "cross_key_value", s_.hidden, 2 * s_.key_value(), s_.qkv_bias);
  w_->Kernel("encoder_gradient", Elementwise(encoder_, MemoryOp::kAdd, encoder_.local_tokens(),
                                             s_.hidden, 2 * e, e, pass));
  w_->Free(key_value);
  Enter(s_, w_, "layers.cross_attention.query", pass);
  ColumnBackward(s_, w_, "cross_query", s_.hidden, s_.query(), s_.qkv_bias);
  w_->Free(query);
  w_->Free(normed_);
  Enter(s_, w_, "layers.cross_norm", pass);
  NormBackward(s_, w_);
  w_->Free(statistics_);
  ResidualGradient(s_, w_);
  w_->Free(residual_);
}

}  // namespace orrery::workload
