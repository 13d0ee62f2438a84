#include "orrery/workload/generators/layers/hyper_streams.h"

#include "orrery/workload/generators/layers/layer_ops.h"

namespace orrery::workload {

using graph::Buffer;
using graph::DType;
using graph::Gemm;
using graph::GemmLayout;
using graph::Lifetime;
using graph::MemoryKind;
using graph::MemoryOp;
using graph::Pass;

namespace {

// Buffer ids of cross attention and Mamba, which these models do not have.
enum : std::uint32_t { kHyperAttention = 86, kHyperFeedForward, kHyperHead };

// The other streams of what a part reads. In front of the feed-forward they come again with the
// layer.
Buffer OtherStreams(const Shape& s, HyperPart part, BlockWriter* w) {
  const bool first = part == HyperPart::kAttention;
  const bool call = !first && s.recompute == Recompute::kFull;
  return w->Named(first ? kHyperAttention : kHyperFeedForward, "hyper.streams",
                  (s.hyper_streams - 1) * s.local_bytes(), MemoryKind::kActivation,
                  call ? Lifetime::kCall : Lifetime::kMicrobatch);
}
Buffer HeadStreams(const Shape& s, BlockWriter* w) {
  return Saved(w, kHyperHead, "hyper.streams", (s.hyper_streams - 1) * s.local_bytes());
}

// Weights of `columns` a token from all of its streams.
void HyperWeights(const Shape& s, BlockWriter* w, std::int64_t columns, Pass pass) {
  const std::int64_t n = s.hyper_streams, width = n * s.hidden, tokens = s.local_tokens();
  const auto product = [&](std::int64_t m, std::int64_t cols, std::int64_t k, GemmLayout layout) {
    w->Kernel("hyper.weights", Gemm{.m = m,
                                    .n = cols,
                                    .k = k,
                                    .dtype = DType::kTf32,
                                    .layout = layout,
                                    .out_dtype = DType::kFp32});
  };
  if (pass == Pass::kForward) {
    OverStream(s, w, "hyper.norm", MemoryOp::kRmsNorm, n, 2 * n, pass);  // in fp32
    product(tokens, columns, width, GemmLayout::kNT);
    return w->Kernel("hyper.sinkhorn",
                     Elementwise(s, MemoryOp::kScaledMaskSoftmax, tokens, columns, 4, 4, pass));
  }
  w->Kernel("hyper.sinkhorn",
            Elementwise(s, MemoryOp::kScaledMaskSoftmax, tokens, columns, 8, 4, pass));
  product(tokens, width, columns, GemmLayout::kNN);
  product(columns, width, tokens, GemmLayout::kTN);
  AccumulateGradient(s, w, "weight_gradient", columns * width);
  OverStream(s, w, "hyper.norm", MemoryOp::kRmsNorm, 3 * n, n, pass);
}

}  // namespace

std::vector<std::int64_t> HyperParameters(const Shape& s) {
  std::vector<std::int64_t> p;
  const std::int64_t n = s.hyper_streams, columns = (2 + n) * n;
  for (int part = 0; n > 0 && part < 2; ++part) {
    for (const std::int64_t tensor : {columns * n * s.hidden, columns, std::int64_t{3}}) {
      p.push_back(tensor);
    }
  }
  return p;
}

void GatherStreams(const Shape& s, HyperPart part, bool again, BlockWriter* w) {
  const std::int64_t n = s.hyper_streams;
  Enter(s, w, "layers.hyper_connection", Pass::kForward);
  if (!again || part == HyperPart::kFeedForward) w->Alloc(OtherStreams(s, part, w));
  HyperWeights(s, w, (2 + n) * n, Pass::kForward);
  OverStream(s, w, "hyper.sum", MemoryOp::kAdd, n, 1, Pass::kForward);
}

void SpreadStreams(const Shape& s, BlockWriter* w) {
  const std::int64_t n = s.hyper_streams;
  w->Module("layers.hyper_connection");
  OverStream(s, w, "hyper.mix", MemoryOp::kAdd, n + 1, n, Pass::kForward);
}

void DropStreams(const Shape& s, BlockWriter* w) {
  if (s.recompute == Recompute::kFull) w->Free(OtherStreams(s, HyperPart::kFeedForward, w));
}

void GatherStreamsBackward(const Shape& s, HyperPart part, BlockWriter* w) {
  const std::int64_t n = s.hyper_streams;
  Enter(s, w, "layers.hyper_connection", Pass::kBackward);
  OverStream(s, w, "hyper.sum", MemoryOp::kAdd, n + 1, n, Pass::kBackward);
  HyperWeights(s, w, (2 + n) * n, Pass::kBackward);
  OverStream(s, w, "hyper.gradient", MemoryOp::kAdd, 2 * n, n, Pass::kBackward);
  w->Free(OtherStreams(s, part, w));
}

void SpreadStreamsBackward(const Shape& s, BlockWriter* w) {
  const std::int64_t n = s.hyper_streams;
  w->Module("layers.hyper_connection");
  // Gradients of the streams and of the part's output; of the weights.
  OverStream(s, w, "hyper.mix", MemoryOp::kAdd, n, n + 1, Pass::kBackward);
  OverStream(s, w, "hyper.weights.gradient", MemoryOp::kAdd, 2 * n + 1, 0, Pass::kBackward);
}

void SumStreams(const Shape& s, BlockWriter* w) {
  w->Module("head.hyper_connection");
  w->Alloc(HeadStreams(s, w));
  HyperWeights(s, w, s.hyper_streams, Pass::kForward);
  OverStream(s, w, "hyper.sum", MemoryOp::kAdd, s.hyper_streams, 1, Pass::kForward);
}

void SumStreamsBackward(const Shape& s, BlockWriter* w) {
  const std::int64_t n = s.hyper_streams;
  w->Module("head.hyper_connection");
  OverStream(s, w, "hyper.sum", MemoryOp::kAdd, n + 1, n, Pass::kBackward);
  HyperWeights(s, w, n, Pass::kBackward);
  w->Free(HeadStreams(s, w));
}

}  // namespace orrery::workload
