// Multi-head latent attention (DeepSeek-V2, 2024, section 2.1), as Megatron Core's MLASelfAttention
// runs it: down-projections whole on every tensor-parallel rank, over its own tokens under SP;
// up-projections split by heads; rotary on the small parts of queries and keys; keys and values
// materialised for a flash kernel whose values are narrower than its keys. Source:
// megatron/core/transformer/multi_latent_attention.py, read for its behaviour.
#include "orrery/workload/generators/layers/latent.h"

#include "orrery/workload/generators/layers/layer_ops.h"
#include "orrery/workload/generators/layers/lora.h"
#include "orrery/workload/generators/layers/precision.h"
#include "orrery/workload/generators/layers/sparse_attention.h"

namespace orrery::workload {

using graph::GemmLayout;
using graph::MemoryOp;
using graph::Pass;

std::int64_t LatentSaved(const Shape& s) {
  const Latent& l = s.latent;
  // Before and after their norms.
  const std::int64_t before = s.local_tokens() * (l.q_rank + l.kv_rank + l.rope_dim);
  return before * s.element_bytes +
         (s.recomputes(kRecomputeLatentNorms) ? 0 : LatentNormedBytes(s)) + IndexSaved(s);
}

std::int64_t LatentNormedBytes(const Shape& s) {
  const Latent& l = s.latent;
  if (l.kv_rank == 0) return 0;
  const Shape attention = PartShape(s, kBf16Attention);
  return LinearBytes(attention, s.local_tokens() * (l.q_rank + l.kv_rank)) +
         s.local_tokens() * l.rope_dim * s.element_bytes;
}

std::int64_t LatentUpSaved(const Shape& s) {
  if (s.latent.kv_rank == 0) return 0;
  if (s.latent.sparse()) return AbsorbedSaved(s);
  // Queries and keys put together, and the up-projection's output, of which values are a view.
  return s.tokens() * s.heads * (2 * s.head_dim + s.latent.nope_dim + s.latent.v_dim) *
         s.element_bytes;
}

namespace {

void Down(const Shape& s, BlockWriter* w, std::string_view name, std::int64_t out, Pass pass) {
  const std::int64_t rows = s.local_tokens();
  const auto gemm = [&](std::int64_t m, std::int64_t n, std::int64_t k, GemmLayout layout) {
    WriteGemm(s, w, name, {.m = m, .n = n, .k = k, .dtype = s.dtype, .layout = layout});
  };
  if (pass == Pass::kForward) {
    gemm(rows, out, s.hidden, GemmLayout::kNT);
    AdapterForward(s, w, name, s.hidden, out, Split::kWhole);
    return;
  }
  gemm(rows, s.hidden, out, GemmLayout::kNN);
  AdapterBackward(s, w, name, s.hidden, out, Split::kWhole);
  gemm(out, s.hidden, rows, GemmLayout::kTN);
}

void SmallNorm(const Shape& s, BlockWriter* w, std::string_view name, std::int64_t width,
               Pass pass) {
  const std::int64_t e = s.element_bytes;
  const std::int64_t read = pass == Pass::kForward ? e : 2 * e;
  w->Kernel(name, Elementwise(s, MemoryOp::kRmsNorm, s.local_tokens(), width, read, e, pass));
  if (pass == Pass::kBackward) AccumulateGradient(s, w, "weight_gradient", width);
}

// Rotary on the small parts, then queries and keys put together (backward: taken apart).
void Rotate(const Shape& s, BlockWriter* w, Pass pass) {
  const std::int64_t e = s.element_bytes;
  w->Module("layers.self_attention.rotary");
  w->Kernel("rotary_q",
            Elementwise(s, MemoryOp::kRotary, s.tokens(), s.heads * s.latent.rope_dim, e, e, pass));
  w->Kernel("rotary_k",
            Elementwise(s, MemoryOp::kRotary, s.tokens(), s.latent.rope_dim, e, e, pass));
  if (pass == Pass::kBackward) return;  // the layer's copy of all gradients stands for this
  // Absorbed, queries are as wide as the latent vectors, which all heads share.
  const std::int64_t latent = s.latent.kv_rank + s.latent.rope_dim;
  const std::int64_t query = s.latent.sparse() ? s.heads * latent : s.query();
  const std::int64_t key = s.latent.sparse() ? latent : s.query();
  w->Kernel("concatenate_q", Elementwise(s, MemoryOp::kCopy, s.tokens(), query, e, e, pass));
  w->Kernel("concatenate_k", Elementwise(s, MemoryOp::kCopy, s.tokens(), key, e, e, pass));
}

// Of a token, what all heads share and is gathered over tp behind the down-projection.
std::int64_t SharedWidth(const Shape& s) {
  return s.latent.rope_dim + (s.latent.sparse() ? s.latent.kv_rank : 0);
}

}  // namespace

void CompressedForward(const Shape& s, BlockWriter* w) {
  Down(s, w, "q_down", s.latent.q_rank, Pass::kForward);
  SmallNorm(s, w, "q_norm", s.latent.q_rank, Pass::kForward);
  ColumnForward(s, w, "q_up", s.latent.q_rank, s.query());
  ColumnForward(s, w, "kv", s.hidden, s.qkv() - s.query());
}

void CompressedBackward(const Shape& s, BlockWriter* w) {
  ColumnBackward(s, w, "kv", s.hidden, s.qkv() - s.query(), s.qkv_bias);
  ColumnBackward(s, w, "q_up", s.latent.q_rank, s.query(), s.qkv_bias);
  SmallNorm(s, w, "q_norm", s.latent.q_rank, Pass::kBackward);
  Down(s, w, "q_down", s.latent.q_rank, Pass::kBackward);
  ResidualGradient(s, w);  // the two branches' gradients of the norm's output
}

void LatentForward(const Shape& s, BlockWriter* w) {
  const Latent& l = s.latent;
  Enter(s, w, "layers.self_attention.down", Pass::kForward);
  if (l.q_rank > 0) {
    Down(s, w, "q_down", l.q_rank, Pass::kForward);
    SmallNorm(s, w, "q_norm", l.q_rank, Pass::kForward);
  }
  Down(s, w, "kv_down", l.kv_rank + l.rope_dim, Pass::kForward);
  SmallNorm(s, w, "kv_norm", l.kv_rank, Pass::kForward);
  if (l.sparse()) IndexForward(s, w);
  LatentUp(s, w);
}

void LatentNormsAgain(const Shape& s, BlockWriter* w) {
  Enter(s, w, "layers.self_attention.down", Pass::kForward);
  if (s.latent.q_rank > 0) SmallNorm(s, w, "q_norm", s.latent.q_rank, Pass::kForward);
  SmallNorm(s, w, "kv_norm", s.latent.kv_rank, Pass::kForward);
}

void LatentUp(const Shape& s, BlockWriter* w) {
  const Latent& l = s.latent;
  Enter(s, w, "layers.self_attention.up", Pass::kForward);
  ColumnForward(s, w, "q_up", l.q_rank > 0 ? l.q_rank : s.hidden, s.query());
  if (l.sparse()) {
    AbsorbForward(s, w, "absorb_q", l.nope_dim);
  } else {
    ColumnForward(s, w, "kv_up", l.kv_rank, s.heads * (l.nope_dim + l.v_dim));
  }
  if (s.sequence_parallel) {  // what all heads share: the rotary part of keys, or all of the
                              // vectors
    TpCollective(s, w, "all_gather.rotary", graph::Collective::kAllGather,
                 s.tokens() * SharedWidth(s) * s.element_bytes, s.dtype);
  }
  Rotate(s, w, Pass::kForward);
}

void LatentBackward(const Shape& s, BlockWriter* w) {
  const Latent& l = s.latent;
  Rotate(s, w, Pass::kBackward);
  if (s.sequence_parallel) {
    TpCollective(s, w, "reduce_scatter.rotary", graph::Collective::kReduceScatter,
                 s.tokens() * SharedWidth(s) * s.element_bytes, s.dtype);
  }
  Enter(s, w, "layers.self_attention.up", Pass::kBackward);
  if (l.sparse()) {
    AbsorbBackward(s, w, "absorb_q", l.nope_dim);
  } else {
    ColumnBackward(s, w, "kv_up", l.kv_rank, s.heads * (l.nope_dim + l.v_dim), false);
  }
  ColumnBackward(s, w, "q_up", l.q_rank > 0 ? l.q_rank : s.hidden, s.query(), false);
  if (l.sparse()) IndexBackward(s, w);
  Enter(s, w, "layers.self_attention.down", Pass::kBackward);
  SmallNorm(s, w, "kv_norm", l.kv_rank, Pass::kBackward);
  Down(s, w, "kv_down", l.kv_rank + l.rope_dim, Pass::kBackward);
  if (l.q_rank > 0) {
    SmallNorm(s, w, "q_norm", l.q_rank, Pass::kBackward);
    Down(s, w, "q_down", l.q_rank, Pass::kBackward);
  }
  ResidualGradient(s, w);  // the two branches' gradients of the norm's output
}

}  // namespace orrery::workload
