#include "orrery/workload/generators/layers/chunked_loss.h"

#include <algorithm>
#include <bit>

namespace orrery::workload {

using graph::Buffer;
using graph::Gemm;
using graph::GemmLayout;
using graph::Lifetime;
using graph::MemoryKind;
using graph::MemoryOp;
using graph::Pass;

namespace {

// Buffer ids beside those of the head (embedding_and_head.cc).
enum : std::uint32_t { kInputGradient = 48, kWeightGradient };

Buffer InputGradient(const Shape& s, BlockWriter* w) {
  return w->Named(kInputGradient, "loss.input_gradient", s.full_bytes(), MemoryKind::kActivation,
                  Lifetime::kMicrobatch);
}
Buffer WeightGradient(const Shape& s, BlockWriter* w) {
  return w->Named(kWeightGradient, "loss.weight_gradient",
                  s.frozen() ? 0 : s.vocab * s.hidden * s.element_bytes, MemoryKind::kGradient,
                  Lifetime::kMicrobatch);
}

}  // namespace

std::int64_t LossChunk(const Shape& s) {
  const std::int64_t wider = (s.vocab + s.hidden - 1) / s.hidden;
  const std::int64_t even = (s.tokens() + wider - 1) / wider;
  const auto rounded = std::bit_ceil(static_cast<std::uint64_t>(even));
  return std::min(s.tokens(), static_cast<std::int64_t>(rounded));
}

void ChunkedLossForward(const Shape& s, BlockWriter* w) {
  const std::int64_t e = s.element_bytes;
  const std::int64_t most = LossChunk(s);
  w->Module("loss");
  w->Alloc(InputGradient(s, w));
  w->Alloc(WeightGradient(s, w));
  const Buffer logits = w->Temporary("logits.chunk", most * s.vocab * e);
  w->Alloc(logits);
  Gemm gemm{.dtype = s.dtype, .out_dtype = s.dtype};
  for (std::int64_t done = 0; done < s.tokens(); done += most) {
    const std::int64_t rows = std::min(most, s.tokens() - done);
    gemm.m = rows, gemm.n = s.vocab, gemm.k = s.hidden, gemm.layout = GemmLayout::kNT;
    w->Kernel("logits", gemm);
    w->Kernel("cross_entropy",
              Elementwise(s, MemoryOp::kCrossEntropy, rows, s.vocab, 2 * e, e, Pass::kForward));
    gemm.n = s.hidden, gemm.k = s.vocab, gemm.layout = GemmLayout::kNN;
    w->Kernel("logits.input", gemm);
    if (s.frozen()) continue;
    Gemm weight{.m = s.vocab,
                .n = s.hidden,
                .k = rows,
                .dtype = s.dtype,
                .layout = GemmLayout::kTN,
                .accumulate = true,
                .out_dtype = s.dtype};
    w->Kernel("logits.weight", weight);
  }
  w->Free(logits);
}

void ChunkedLossBackward(const Shape& s, BlockWriter* w) {
  const std::int64_t e = s.element_bytes;
  w->Module("loss");
  w->Kernel("scale",
            Elementwise(s, MemoryOp::kGradScale, s.tokens(), s.hidden, e, e, Pass::kBackward));
  if (!s.frozen()) {
    w->Kernel("scale",
              Elementwise(s, MemoryOp::kGradScale, s.vocab, s.hidden, e, e, Pass::kBackward));
    AccumulateGradient(s, w, "weight_gradient", s.vocab * s.hidden);
  }
  w->Free(WeightGradient(s, w));
  w->Free(InputGradient(s, w));
}

}  // namespace orrery::workload
