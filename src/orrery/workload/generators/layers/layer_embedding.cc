#include "orrery/workload/generators/layers/layer_embedding.h"

#include "orrery/workload/generators/layers/layer_ops.h"
#include "orrery/workload/generators/layers/precision.h"

namespace orrery::workload {

using graph::Buffer;
using graph::Lifetime;
using graph::MemoryKind;
using graph::MemoryOp;
using graph::Pass;

namespace {

// Buffer ids of Mamba, which these models do not have.
enum : std::uint32_t { kParts = 86, kProjected, kGateInput, kGate, kGated = 92, kBack };

std::int64_t Width(const Shape& s) { return s.layer_embedding * s.layer_embeddings; }
// All layers' parts, which each reads in its turn.
Buffer Parts(const Shape& s, BlockWriter* w) {
  return Saved(w, kParts, "layer_embeddings", s.local_tokens() * Width(s) * s.element_bytes);
}
// What the norm of every part reads.
Buffer Projected(const Shape& s, BlockWriter* w) {
  return Saved(w, kProjected, "layer_embeddings.projected",
               s.local_tokens() * (Width(s) * s.element_bytes + s.layer_embeddings * 4));
}

}  // namespace

void LayerEmbeddingsForward(const Shape& s, BlockWriter* w) {
  const std::int64_t e = s.element_bytes;
  const Pass pass = Pass::kForward;
  w->Module("embedding.layers");
  w->Alloc(Parts(s, w));
  w->Alloc(Projected(s, w));
  w->Kernel("embedding", Elementwise(s, MemoryOp::kEmbedding, s.tokens(), Width(s), e, e, pass));
  TpCollective(
      s, w, s.sequence_parallel ? "reduce_scatter" : "all_reduce",
      s.sequence_parallel ? graph::Collective::kReduceScatter : graph::Collective::kAllReduce,
      s.tokens() * Width(s) * e, s.dtype);
  DenseForward(InBf16(s), w, "projection", s.hidden, Width(s));
  w->Kernel("norm", Elementwise(s, MemoryOp::kRmsNorm, s.local_tokens() * s.layer_embeddings,
                                s.layer_embedding, e, e, pass));
  w->Kernel("add", Elementwise(s, MemoryOp::kAdd, s.local_tokens(), Width(s), 2 * e, e, pass));
}

void LayerEmbeddingsBackward(const Shape& s, BlockWriter* w) {
  const std::int64_t e = s.element_bytes;
  const Pass pass = Pass::kBackward;
  w->Module("embedding.layers");
  const Buffer gradient =
      w->Temporary("layer_embeddings.gradient", s.local_tokens() * Width(s) * e);
  w->Alloc(gradient);
  w->Kernel("norm", Elementwise(s, MemoryOp::kRmsNorm, s.local_tokens() * s.layer_embeddings,
                                s.layer_embedding, 2 * e, e, pass));
  AccumulateGradient(s, w, "weight_gradient", s.layer_embedding);
  DenseBackward(InBf16(s), w, "projection", s.hidden, Width(s));
  w->Free(gradient);
  w->Free(Projected(s, w));
  if (!s.frozen()) {
    const std::int64_t table = s.vocab * Width(s);
    const Buffer dense = w->Temporary("table.gradient", table * e);
    w->Alloc(dense);
    w->Kernel("zero", Elementwise(s, MemoryOp::kZero, s.vocab, Width(s), 0, e, pass));
    w->Kernel("embedding",
              Elementwise(s, MemoryOp::kEmbedding, s.tokens(), Width(s), 2 * e, e, pass));
    AccumulateGradient(s, w, "table_gradient", table);
    w->Free(dense);
  }
  w->Free(Parts(s, w));
}

LayerEmbeddingWriter::LayerEmbeddingWriter(const Shape& s, BlockWriter* w) : s_(s), w_(w) {
  const bool full = s.recompute == Recompute::kFull;
  const auto make = [&](std::uint32_t id, std::string_view name, std::int64_t bytes) {
    return w->Named(id, name, bytes, MemoryKind::kActivation,
                    full ? Lifetime::kCall : Lifetime::kMicrobatch);
  };
  const std::int64_t part = s.local_tokens() * s.layer_embedding * s.element_bytes;
  input_ = make(kGateInput, "layer_embedding.input", s.local_bytes());
  gate_ = make(kGate, "layer_embedding.gate", part);
  gated_ = make(kGated, "layer_embedding.gated", part);
  projected_ = make(kBack, "layer_embedding.projected", s.local_bytes() + s.local_tokens() * 4);
}

void LayerEmbeddingWriter::Forward(bool keep) {
  const std::int64_t e = s_.element_bytes;
  const Pass pass = Pass::kForward;
  w_->Module("layers.layer_embedding");
  w_->Host("module", s_.framework.host.module_forward);
  for (const Buffer& buffer : {input_, gate_, gated_, projected_}) w_->Alloc(buffer);
  DenseForward(s_, w_, "gate", s_.hidden, s_.layer_embedding);
  w_->Kernel("gelu", Elementwise(s_, MemoryOp::kSwiglu, s_.local_tokens(), s_.layer_embedding,
                                 2 * e, e, pass));
  DenseForward(s_, w_, "projection", s_.layer_embedding, s_.hidden);
  NormForward(s_, w_);
  w_->Kernel("add", Elementwise(s_, MemoryOp::kAdd, s_.local_tokens(), s_.hidden, 2 * e, e, pass));
  if (keep) return;
  for (const Buffer& buffer : {input_, gate_, gated_, projected_}) w_->Free(buffer);
}

void LayerEmbeddingWriter::Backward() {
  const std::int64_t e = s_.element_bytes;
  const Pass pass = Pass::kBackward;
  w_->Module("layers.layer_embedding");
  w_->Host("module", s_.framework.host.module_backward);
  const Buffer gradient = w_->Temporary("layer_embedding.gradient", s_.local_bytes());
  w_->Alloc(gradient);
  NormBackward(s_, w_);
  w_->Free(projected_);
  DenseBackward(s_, w_, "projection", s_.layer_embedding, s_.hidden);
  w_->Kernel("gelu", Elementwise(s_, MemoryOp::kSwiglu, s_.local_tokens(), s_.layer_embedding,
                                 3 * e, 2 * e, pass));
  w_->Free(gated_);
  w_->Free(gate_);
  DenseBackward(s_, w_, "gate", s_.hidden, s_.layer_embedding);
  w_->Free(input_);
  ResidualGradient(s_, w_);
  w_->Free(gradient);
}

}  // namespace orrery::workload
