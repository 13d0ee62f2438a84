#include "orrery/workload/generators/lora.h"

#include <array>

#include "orrery/workload/generators/parts.h"
#include "orrery/workload/generators/tensor_gradients.h"

namespace orrery::workload {

using graph::Collective;
using graph::Gemm;
using graph::GemmLayout;
using graph::MemoryOp;
using graph::Pass;

namespace {

struct Target {
  std::string_view layer;
  LoraTarget bit;
  bool by_rows;
  std::int64_t (*in)(const Shape&);
  std::int64_t (*out)(const Shape&);
};
std::int64_t Hidden(const Shape& s) { return s.hidden; }
constexpr std::array<Target, 4> kTargets = {{
    {"qkv", kLoraQkv, false, Hidden, [](const Shape& s) { return s.qkv(); }},
    {"projection", kLoraProjection, true, [](const Shape& s) { return s.context(); }, Hidden},
    {"fc1", kLoraFc1, false, Hidden, [](const Shape& s) { return s.fc1(); }},
    {"fc2", kLoraFc2, true, [](const Shape& s) { return s.ffn; }, Hidden},
}};

Gemm Product(const Shape& s, std::int64_t m, std::int64_t n, std::int64_t k, GemmLayout layout) {
  return {.m = m, .n = n, .k = k, .dtype = s.dtype, .layout = layout, .out_dtype = s.dtype};
}
// Into the gradient buffer, or a tensor of its own.
Gemm Gradient(const Shape& s, std::int64_t m, std::int64_t n) {
  Gemm g = Product(s, m, n, s.tokens(), GemmLayout::kTN);
  if (s.separate_gradients()) return g;
  g.accumulate = true;
  g.out_dtype = s.gradient_dtype;
  return g;
}

// Rows of A and columns of B on this rank.
std::int64_t RankPart(const Shape& s, bool by_rows) {
  return by_rows ? s.lora_rank : s.lora_rank / s.tp;
}
std::int64_t OutPart(const Shape& s, std::int64_t out, bool by_rows) {
  return by_rows ? out / s.tp : out;
}
std::int64_t InnerBytes(const Shape& s) { return s.tokens() * s.lora_rank * s.element_bytes; }

}  // namespace

bool Adapts(const Shape& s, std::string_view layer) {
  for (const Target& t : kTargets) {
    if (t.layer == layer) return (s.lora_targets & t.bit) != 0;
  }
  return false;
}

void AdapterForward(const Shape& s, BlockWriter* w, std::int64_t in, std::int64_t out,
                    bool by_rows) {
  const std::int64_t e = s.element_bytes;
  if (s.autocasts()) {  // adapters are in fp32
    for (const std::int64_t n :
         {RankPart(s, by_rows) * in, OutPart(s, out, by_rows) * s.lora_rank}) {
      w->Kernel("weight.cast", Elementwise(s, MemoryOp::kCast, 1, n, 4, e, Pass::kForward));
    }
  }
  w->Kernel("lora_a", Product(s, s.tokens(), RankPart(s, by_rows), in, GemmLayout::kNT));
  TpCollective(s, w, by_rows ? "all_reduce" : "all_gather",
               by_rows ? Collective::kAllReduce : Collective::kAllGather, InnerBytes(s), s.dtype);
  w->Kernel("lora_b",
            Product(s, s.tokens(), OutPart(s, out, by_rows), s.lora_rank, GemmLayout::kNT));
  if (by_rows) {
    TpCollective(s, w, "all_gather", Collective::kAllGather, s.tokens() * out * e, s.dtype);
  }
  const std::int64_t rows = by_rows ? s.local_tokens() : s.tokens();
  w->Kernel("lora_scale", Elementwise(s, MemoryOp::kGradScale, rows, out, e, e, Pass::kForward));
  w->Kernel("lora_add", Elementwise(s, MemoryOp::kAdd, rows, out, 2 * e, e, Pass::kForward));
}

void AdapterBackward(const Shape& s, BlockWriter* w, std::int64_t in, std::int64_t out,
                     bool by_rows) {
  const std::int64_t e = s.element_bytes, columns = OutPart(s, out, by_rows);
  const std::int64_t rank = RankPart(s, by_rows);
  w->Kernel("lora_scale",
            Elementwise(s, MemoryOp::kGradScale, s.tokens(), columns, e, e, Pass::kBackward));
  const auto gradient = [&](std::string_view name, std::int64_t m, std::int64_t n) {
    w->Kernel(name, Gradient(s, m, n));
    if (s.separate_gradients()) AddTensorGradient(s, w, "weight_gradient", m * n);
  };
  gradient("lora_b", columns, s.lora_rank);
  w->Kernel("lora_b", Product(s, s.tokens(), s.lora_rank, columns, GemmLayout::kNN));
  TpCollective(s, w, by_rows ? "all_reduce" : "reduce_scatter",
               by_rows ? Collective::kAllReduce : Collective::kReduceScatter, InnerBytes(s),
               s.dtype);
  gradient("lora_a", rank, in);
  w->Kernel("lora_a", Product(s, s.tokens(), in, rank, GemmLayout::kNN));
  w->Kernel("lora_add", Elementwise(s, MemoryOp::kAdd, s.tokens(), in, 2 * e, e, Pass::kBackward));
}

std::vector<std::int64_t> AdapterParameters(const Shape& s) {
  std::vector<std::int64_t> p;
  for (const Target& t : kTargets) {
    if ((s.lora_targets & t.bit) == 0) continue;
    p.push_back(RankPart(s, t.by_rows) * t.in(s));
    p.push_back(OutPart(s, t.out(s), t.by_rows) * s.lora_rank);
  }
  return p;
}

std::int64_t AdapterSavedBytes(const Shape& s) {
  std::int64_t targets = 0;
  for (const Target& t : kTargets) targets += (s.lora_targets & t.bit) != 0 ? 1 : 0;
  return s.frozen() ? targets * InnerBytes(s) : 0;
}

graph::Block FrozenMemory(const Shape& s, std::int64_t elements, Names* names) {
  BlockWriter w(names, "frozen", Pass::kOptimizer);
  w.Alloc(w.Named(20, "frozen_parameters", elements * s.element_bytes,
                  graph::MemoryKind::kParameter, graph::Lifetime::kForever));
  return w.Finish();
}

}  // namespace orrery::workload
