#include "orrery/workload/generators/layers/sparse_attention.h"

#include <algorithm>

#include "orrery/workload/generators/layers/layer_ops.h"

namespace orrery::workload {

using graph::DType;
using graph::GemmLayout;
using graph::MemoryOp;
using graph::Pass;

namespace {

// Width of a latent vector: the compressed part and the rotary one.
std::int64_t LatentWidth(const Shape& s) { return s.latent.kv_rank + s.latent.rope_dim; }

// A linear layer of the indexer, whole on every rank, over all tokens; backward its weights alone.
void Linear(const Shape& s, BlockWriter* w, std::string_view name, std::int64_t in,
            std::int64_t out, Pass pass) {
  if (pass == Pass::kForward) {
    WriteGemm(s, w, name, {.m = s.tokens(), .n = out, .k = in, .dtype = s.dtype});
  } else {
    WriteGemm(s, w, name,
              {.m = out, .n = in, .k = s.tokens(), .dtype = s.dtype, .layout = GemmLayout::kTN});
  }
}

// Rotary, then a Hadamard transform of queries and of the one key, then their cast to 8 bits.
void Turn(const Shape& s, BlockWriter* w, Pass pass) {
  const Latent& l = s.latent;
  const std::int64_t e = s.element_bytes;
  for (const auto& [name, heads] :
       {std::pair{"index_q", l.index_heads}, std::pair{"index_k", std::int64_t{1}}}) {
    w->Kernel(name, Elementwise(s, MemoryOp::kRotary, s.tokens(), heads * l.rope_dim, e, e, pass));
    w->Kernel(name, Elementwise(s, MemoryOp::kCopy, s.tokens(), heads * l.index_dim, e, e, pass));
    if (pass == Pass::kForward && s.low_precision != LowPrecision::kNone) {
      w->Kernel(name, Elementwise(s, MemoryOp::kCast, s.tokens(), heads * l.index_dim, e, 1, pass));
    }
  }
}

// A product over so many tokens of every query whose sum runs over heads as well.
graph::Gemm Pairs(const Shape& s, std::int64_t tokens, std::int64_t width, DType type) {
  const std::int64_t len = s.sequence();
  return {.m = len,
          .n = std::max<std::int64_t>(1, tokens),
          .k = width,
          .batch = s.tokens() / len,
          .dtype = type,
          .out_dtype = DType::kFp32};
}

}  // namespace

std::int64_t SelectedTokens(const Shape& s) {
  const std::int64_t len = s.sequence(), most = s.latent.index_topk;
  return most < len ? most - most * most / (2 * len) : (len + 1) / 2;
}

void IndexForward(const Shape& s, BlockWriter* w) {
  const Latent& l = s.latent;
  const std::int64_t e = s.element_bytes, len = s.sequence();
  Enter(s, w, "layers.self_attention.indexer", Pass::kForward);
  if (s.sequence_parallel) {
    TpCollective(s, w, "all_gather.hidden", graph::Collective::kAllGather,
                 s.tokens() * s.hidden * e, s.dtype);
    if (l.q_rank > 0) {
      TpCollective(s, w, "all_gather.queries", graph::Collective::kAllGather,
                   s.tokens() * l.q_rank * e, s.dtype);
    }
  }
  if (l.q_rank == 0) {
    w->Kernel("index_q_norm",
              Elementwise(s, MemoryOp::kLayerNorm, s.tokens(), s.hidden, e, e, Pass::kForward));
  }
  Linear(s, w, "index_q", l.index_width(s.hidden), l.index_heads * l.index_dim, Pass::kForward);
  Linear(s, w, "index_k", s.hidden, l.index_dim, Pass::kForward);
  w->Kernel("index_norm",
            Elementwise(s, MemoryOp::kLayerNorm, s.tokens(), l.index_dim, e, e, Pass::kForward));
  Linear(s, w, "index_weights", s.hidden, l.index_heads, Pass::kForward);
  Turn(s, w, Pass::kForward);
  const DType type = s.low_precision != LowPrecision::kNone ? DType::kFp8 : s.dtype;
  w->Kernel("index_scores", Pairs(s, (len + 1) / 2, l.index_heads * l.index_dim, type));
  // A radix select reads the scores twice and writes indices of 4 bytes.
  const std::int64_t pairs = s.tokens() * ((len + 1) / 2);
  w->Kernel("topk", graph::MemoryBound{.op = MemoryOp::kRouterTopk,
                                       .rows = s.tokens(),
                                       .cols = (len + 1) / 2,
                                       .bytes_read = 2 * 4 * pairs,
                                       .bytes_written = s.tokens() * SelectedTokens(s) * 4,
                                       .dtype = DType::kFp32,
                                       .pass = Pass::kForward});
}

void IndexLoss(const Shape& s, BlockWriter* w) {
  if (s.frozen()) return;
  const std::int64_t selected = SelectedTokens(s);
  Enter(s, w, "layers.self_attention.indexer_loss", Pass::kForward);
  // Attention's probabilities once more, summed over heads; then the divergence of two rows.
  w->Kernel("target", Pairs(s, selected, s.heads * LatentWidth(s), s.dtype));
  TpCollective(s, w, "all_reduce.target", graph::Collective::kAllReduce, s.tokens() * selected * 4,
               DType::kFp32);
  w->Kernel("divergence", Elementwise(s, MemoryOp::kScaledMaskSoftmax, s.tokens(), selected, 8, 4,
                                      Pass::kForward));
}

void IndexBackward(const Shape& s, BlockWriter* w) {
  if (s.frozen()) return;
  const Latent& l = s.latent;
  const std::int64_t width = l.index_heads * l.index_dim, selected = SelectedTokens(s);
  const std::int64_t e = s.element_bytes;
  Enter(s, w, "layers.self_attention.indexer", Pass::kBackward);
  // Scores of the selected tokens again, then gradients of queries and keys.
  for (const std::string_view name : {"index_scores", "index_scores.query", "index_scores.key"}) {
    w->Kernel(name, Pairs(s, selected, width, s.dtype));
  }
  Turn(s, w, Pass::kBackward);
  Linear(s, w, "index_weights", s.hidden, l.index_heads, Pass::kBackward);
  w->Kernel("index_norm", Elementwise(s, MemoryOp::kLayerNorm, s.tokens(), l.index_dim, 2 * e, e,
                                      Pass::kBackward));
  AccumulateGradient(s, w, "weight_gradient", 2 * l.index_dim);
  Linear(s, w, "index_k", s.hidden, l.index_dim, Pass::kBackward);
  Linear(s, w, "index_q", l.index_width(s.hidden), width, Pass::kBackward);
  if (l.q_rank > 0) return;
  WriteGemm(s, w, "index_q",
            {.m = s.tokens(),
             .n = s.hidden,
             .k = width,
             .dtype = s.dtype,
             .layout = GemmLayout::kNN});  // for the norm's weights
  w->Kernel("index_q_norm",
            Elementwise(s, MemoryOp::kLayerNorm, s.tokens(), s.hidden, 2 * e, e, Pass::kBackward));
  AccumulateGradient(s, w, "weight_gradient", 2 * s.hidden);
}

void AbsorbForward(const Shape& s, BlockWriter* w, std::string_view name, std::int64_t width) {
  const bool queries = name == "absorb_q";
  const std::int64_t rank = s.latent.kv_rank;
  WriteGemm(s, w, name,
            {.m = s.tokens(),
             .n = queries ? rank : width,
             .k = queries ? width : rank,
             .batch = s.heads,
             .dtype = s.dtype});
}

void AbsorbBackward(const Shape& s, BlockWriter* w, std::string_view name, std::int64_t width) {
  const bool queries = name == "absorb_q";
  const std::int64_t rank = s.latent.kv_rank;
  const std::int64_t in = queries ? width : rank, out = queries ? rank : width;
  const auto product = [&](std::int64_t m, std::int64_t n, std::int64_t k, GemmLayout layout) {
    WriteGemm(s, w, name,
              {.m = m, .n = n, .k = k, .batch = s.heads, .dtype = s.dtype, .layout = layout});
  };
  product(s.tokens(), in, out, GemmLayout::kNN);
  product(out, in, s.tokens(), GemmLayout::kTN);
}

graph::Attention SparseAttention(const Shape& s, Pass pass) {
  const std::int64_t len = s.sequence();
  return {.batch = s.tokens() / len,
          .heads = s.heads,
          .kv_heads = 1,
          .seq_q = len,
          .seq_kv = len,
          .head_dim = LatentWidth(s),
          .dtype = s.dtype,
          .causal = true,
          .pass = pass,
          .kernel = graph::AttentionKernel::kCudnn,
          .v_head_dim = s.latent.kv_rank,
          .window = s.latent.index_topk < len ? s.latent.index_topk : 0};
}

std::int64_t IndexSaved(const Shape& s) {
  const Latent& l = s.latent;
  if (l.index_heads == 0) return 0;
  const std::int64_t e = s.element_bytes;
  // Queries, the key before and after its norm, weights in fp32; indices, and scores of the
  // selected tokens.
  const std::int64_t normed = l.q_rank == 0 ? s.hidden * e : 0;
  return s.tokens() * ((l.index_heads + 2) * l.index_dim * e + l.index_heads * 4 + normed) +
         s.tokens() * SelectedTokens(s) * 8;
}

std::int64_t AbsorbedSaved(const Shape& s) {
  // Queries before and after their product, the latent vectors, the kernel's output.
  return s.tokens() * s.element_bytes *
         (s.heads * (s.head_dim + LatentWidth(s) + s.latent.kv_rank) + LatentWidth(s));
}

}  // namespace orrery::workload
