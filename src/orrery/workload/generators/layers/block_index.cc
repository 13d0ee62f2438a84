#include "orrery/workload/generators/layers/block_index.h"

#include <algorithm>

#include "orrery/workload/generators/layers/layer_ops.h"

namespace orrery::workload {

using graph::DType;
using graph::MemoryOp;
using graph::Pass;

std::vector<std::int64_t> BlockIndexParameters(const Shape& s) {
  const BlockIndex& b = s.block_index;
  if (b.heads == 0) return {};
  return {b.heads * b.dim * s.hidden, b.dim * s.hidden, b.dim, b.dim};
}

void BlockIndexForward(const Shape& s, BlockWriter* w) {
  const BlockIndex& b = s.block_index;
  const std::int64_t e = s.element_bytes, len = s.sequence();
  const Pass pass = Pass::kForward;
  Enter(s, w, "layers.self_attention.indexer", pass);
  if (s.sequence_parallel) {
    TpCollective(s, w, "all_gather.hidden", graph::Collective::kAllGather,
                 s.tokens() * s.hidden * e, s.dtype);
  }
  for (const auto& [name, heads] :
       {std::pair{"index_q", b.heads}, std::pair{"index_k", std::int64_t{1}}}) {
    WriteGemm(s, w, name, {.m = s.tokens(), .n = heads * b.dim, .k = s.hidden, .dtype = s.dtype});
    w->Kernel("index_norm",
              Elementwise(s, MemoryOp::kRmsNorm, s.tokens() * heads, b.dim, e, e, pass));
    w->Kernel("index_rotary",
              Elementwise(s, MemoryOp::kRotary, s.tokens(), heads * b.dim, e, e, pass));
  }
  // Half of the square, in fp32; the largest of each block; a radix select, which reads twice.
  const std::int64_t keys = std::max<std::int64_t>(1, (len + 1) / 2);
  w->Kernel("index_scores", graph::Gemm{.m = len,
                                        .n = keys,
                                        .k = b.dim,
                                        .batch = s.tokens() / len * b.heads,
                                        .dtype = s.dtype,
                                        .out_dtype = DType::kFp32});
  const std::int64_t rows = s.tokens() * b.heads, blocks = (keys + b.size - 1) / b.size;
  const auto over = [&](std::string_view name, MemoryOp op, std::int64_t read,
                        std::int64_t written) {
    w->Kernel(name, graph::MemoryBound{.op = op,
                                       .rows = rows,
                                       .cols = keys,
                                       .bytes_read = rows * read,
                                       .bytes_written = rows * written,
                                       .dtype = DType::kFp32,
                                       .pass = pass});
  };
  over("block_maximum", MemoryOp::kGradNorm, 4 * keys, 4 * blocks);
  over("topk", MemoryOp::kRouterTopk, 2 * 4 * blocks, 8 * std::min(b.topk, blocks));
}

}  // namespace orrery::workload
