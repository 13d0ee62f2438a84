#include "orrery/workload/generators/layers/compressed_keys.h"

#include <algorithm>

#include "orrery/workload/generators/layers/layer_ops.h"

namespace orrery::workload {

using graph::DType;
using graph::Gemm;
using graph::GemmLayout;
using graph::MemoryOp;
using graph::Pass;

namespace {

bool Chooses(const Shape& s) {
  return s.compress > 0 && s.compress == s.compressed_keys.sparse_rate;
}
// Of keys and of gates, each.
std::int64_t SeriesWidth(const Shape& s) { return (Chooses(s) ? 2 : 1) * s.head_dim; }

// A linear layer over all tokens.
void CompressorLinear(const Shape& s, BlockWriter* w, std::string_view name, std::int64_t in,
                      std::int64_t out, Pass pass) {
  pass == Pass::kForward ? DenseForward(s, w, name, in, out) : DenseBackward(s, w, name, in, out);
}

// Gates and places summed, a softmax over each window, the keys' weighted sum, its norm.
void Pool(const Shape& s, BlockWriter* w, std::int64_t width, Pass pass) {
  const std::int64_t e = s.element_bytes, kept = s.tokens() / s.compress;
  const std::int64_t times = pass == Pass::kForward ? 1 : 2;
  const auto run = [&](std::string_view name, MemoryOp op, std::int64_t rows, std::int64_t read,
                       std::int64_t written) {
    w->Kernel(name, Elementwise(s, op, rows, width, times * read, times * written, pass));
  };
  run("compress.gates", MemoryOp::kScaledMaskSoftmax, s.tokens(), e + 4, e);
  run("compress.sum", MemoryOp::kAdd, s.tokens(), 2 * e, e);
  run("compress.norm", MemoryOp::kRmsNorm, kept, e, e);
}

}  // namespace

std::int64_t CompressedWindow(const Shape& s) {
  const CompressedKeys& c = s.compressed_keys;
  if (s.compress == 0) return c.window;
  const std::int64_t far = s.sequence() / s.compress;
  // All compressed keys: half of them in the mean, as many as a window of half of them has.
  return c.window + (Chooses(s) ? std::min(c.index_topk, far) : (far + 1) / 2);
}

std::vector<std::int64_t> CompressedParameters(const Shape& s) {
  const CompressedKeys& c = s.compressed_keys;
  std::vector<std::int64_t> p;
  p.reserve(16);
  const auto add = [&p](std::initializer_list<std::int64_t> tensors) {
    for (const std::int64_t n : tensors) p.push_back(n);
  };
  add({s.context() * c.out_rank, c.out_groups * c.out_rank * s.hidden, s.head_dim});
  if (s.compress == 0) return p;
  const std::int64_t width = SeriesWidth(s);
  add({s.hidden * width, s.hidden * width, s.compress * width, s.head_dim});
  if (!Chooses(s)) return p;
  const std::int64_t index = 2 * c.index_dim;
  add({s.hidden * index, s.hidden * index, s.compress * index, c.index_dim,
       s.latent.q_rank * c.index_heads * c.index_dim, s.hidden * c.index_heads});
  return p;
}

void CompressKeys(const Shape& s, BlockWriter* w) {
  if (s.compress == 0) return;
  const CompressedKeys& c = s.compressed_keys;
  const Pass pass = Pass::kForward;
  const std::int64_t e = s.element_bytes, len = s.sequence();
  Enter(s, w, "layers.self_attention.compressor", pass);
  for (const std::string_view name : {"compress_keys", "compress_gates"}) {
    CompressorLinear(s, w, name, s.hidden, SeriesWidth(s), pass);
  }
  Pool(s, w, SeriesWidth(s), pass);
  if (!Chooses(s)) return;
  Enter(s, w, "layers.self_attention.indexer", pass);
  for (const std::string_view name : {"index_keys", "index_gates"}) {
    CompressorLinear(s, w, name, s.hidden, 2 * c.index_dim, pass);
  }
  Pool(s, w, 2 * c.index_dim, pass);
  CompressorLinear(s, w, "index_q", s.latent.q_rank, c.index_heads * c.index_dim, pass);
  CompressorLinear(s, w, "index_weights", s.hidden, c.index_heads, pass);
  w->Kernel("index_rotary",
            Elementwise(s, MemoryOp::kRotary, s.tokens(), c.index_heads * c.index_dim, e, e, pass));
  // Half of the square of compressed keys, summed over heads; a radix select, which reads twice.
  const std::int64_t keys = std::max<std::int64_t>(1, len / s.compress / 2);
  w->Kernel("index_scores", Gemm{.m = len,
                                 .n = keys,
                                 .k = c.index_heads * c.index_dim,
                                 .batch = s.tokens() / len,
                                 .dtype = s.dtype,
                                 .out_dtype = DType::kFp32});
  w->Kernel("topk",
            graph::MemoryBound{.op = MemoryOp::kRouterTopk,
                               .rows = s.tokens(),
                               .cols = keys,
                               .bytes_read = 2 * 4 * s.tokens() * keys,
                               .bytes_written = 8 * s.tokens() * std::min(c.index_topk, keys),
                               .dtype = DType::kFp32,
                               .pass = pass});
}

void CompressKeysBackward(const Shape& s, BlockWriter* w) {
  if (s.compress == 0) return;
  Enter(s, w, "layers.self_attention.compressor", Pass::kBackward);
  Pool(s, w, SeriesWidth(s), Pass::kBackward);
  for (const std::string_view name : {"compress_gates", "compress_keys"}) {
    CompressorLinear(s, w, name, s.hidden, SeriesWidth(s), Pass::kBackward);
    ResidualGradient(s, w);
  }
}

void GroupedProjection(const Shape& s, BlockWriter* w) {
  const CompressedKeys& c = s.compressed_keys;
  WriteGemm(s, w, "projection_a",
            {.m = s.tokens(),
             .n = c.out_rank,
             .k = s.context() / c.out_groups,
             .batch = c.out_groups,
             .dtype = s.dtype});
  DenseForward(s, w, "projection_b", c.out_groups * c.out_rank, s.hidden);
}

void GroupedProjectionBackward(const Shape& s, BlockWriter* w) {
  const CompressedKeys& c = s.compressed_keys;
  const std::int64_t in = s.context() / c.out_groups;
  DenseBackward(s, w, "projection_b", c.out_groups * c.out_rank, s.hidden);
  const auto product = [&](std::int64_t m, std::int64_t n, std::int64_t k, GemmLayout layout) {
    WriteGemm(s, w, "projection_a",
              {.m = m, .n = n, .k = k, .batch = c.out_groups, .dtype = s.dtype, .layout = layout});
  };
  product(s.tokens(), in, c.out_rank, GemmLayout::kNN);
  product(c.out_rank, in, s.tokens(), GemmLayout::kTN);
}

std::int64_t CompressedSaved(const Shape& s) {
  const CompressedKeys& c = s.compressed_keys;
  if (!c.any()) return 0;
  // Between the projections; keys, gates and their softmax; the chosen places.
  std::int64_t bytes = s.tokens() * c.out_groups * c.out_rank * s.element_bytes;
  if (s.compress > 0) bytes += 3 * s.tokens() * SeriesWidth(s) * s.element_bytes;
  if (Chooses(s)) {
    bytes += 8 * s.tokens() * std::min(c.index_topk, s.sequence() / s.compress);
  }
  return bytes;
}

}  // namespace orrery::workload
