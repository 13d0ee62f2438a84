#include "orrery/workload/generators/layers/precision.h"

#include <array>

#include "orrery/workload/generators/layers/layer_ops.h"

namespace orrery::workload {

using graph::DType;
using graph::MemoryBound;
using graph::MemoryOp;
using graph::Pass;

namespace {

struct Recipe {
  DType type = DType::kBf16;
  std::int64_t bytes_per_32 = 64;  // elements, their scales included
  bool finds_maximum = false;      // in a pass of its own
  bool scale_known = false;        // before the operand is: a producer can write it cast
  bool block_scales = false;     // each direction has its own: one cannot be turned into the other
  bool rotates_columns = false;  // a Hadamard transform along tokens, in a kernel of its own
};
constexpr std::array<Recipe, 6> kRecipes = {{
    {},
    {DType::kFp8, 32, false, true},              // delayed
    {DType::kFp8, 32, true, false},              // current
    {DType::kFp8, 33, false, false, true},       // blockwise: 4 bytes per 128
    {DType::kMxfp8, 33, false, false, true},     // mxfp8
    {DType::kFp4, 18, true, false, true, true},  // nvfp4: half a byte each and 1 byte per 16
}};
const Recipe& RecipeOf(const Shape& s) {
  return kRecipes[static_cast<std::size_t>(s.low_precision)];
}

// Frozen weights have no gradient, whose GEMM would contract over tokens.
int Directions(const Shape& s) { return s.lora_rank > 0 ? 1 : 2; }

// The pass that a scale needs before the cast, where it takes one.
void FindMaximum(const Shape& s, BlockWriter* w, std::string_view name, std::int64_t rows,
                 std::int64_t cols, Pass pass) {
  if (!RecipeOf(s).finds_maximum) return;
  w->Kernel(name, Elementwise(s, MemoryOp::kGradNorm, rows, cols, s.element_bytes, 0, pass));
}

}  // namespace

DType LinearType(const Shape& s) { return IsLow(s) ? RecipeOf(s).type : s.dtype; }

std::int64_t LinearBytes(const Shape& s, std::int64_t elements) {
  if (!IsLow(s)) return elements * s.element_bytes;
  return (elements * RecipeOf(s).bytes_per_32 + 31) / 32;
}

void CastOperand(const Shape& s, BlockWriter* w, std::string_view name, std::int64_t rows,
                 std::int64_t cols, Pass pass, bool fused, bool split) {
  if (!IsLow(s)) return;
  w->Host("scales", s.framework.host.low_precision);
  const Recipe& recipe = RecipeOf(s);
  if (fused && recipe.scale_known) return;
  FindMaximum(s, w, "maximum", rows, cols, pass);
  // Called from C++: no torch.distributed Python around it.
  if (recipe.finds_maximum && split && s.sequence_parallel && s.tp > 1) {
    w->Comm("all_reduce.maximum", {.collective = graph::Collective::kAllReduce,
                                   .group = graph::GroupSlot::kTp,
                                   .stream = kTpStream,
                                   .dtype = DType::kFp32,
                                   .bytes = {.value = recipe.rotates_columns ? 8 : 4}});
  }
  MemoryBound cast = Elementwise(s, MemoryOp::kCast, rows, cols, s.element_bytes, 0, pass);
  const int kernels = recipe.rotates_columns ? Directions(s) : 1;
  cast.bytes_written = Directions(s) * LinearBytes(s, rows * cols) / kernels;
  for (int i = 0; i < kernels; ++i) w->Kernel(name, cast);
}

void CastAttention(const Shape& s, BlockWriter* w, std::int64_t cols, Pass pass) {
  if (!AttendsIn8Bits(s)) return;
  w->Host("scales", s.framework.host.low_precision);
  const std::int64_t rows = s.tokens();
  FindMaximum(s, w, "attention.maximum", rows, cols, pass);
  MemoryBound cast = Elementwise(s, MemoryOp::kCast, rows, cols, s.element_bytes, 1, pass);
  if (s.low_precision == LowPrecision::kMxfp8) {  // along rows and columns
    cast.bytes_written = 2 * LinearBytes(s, rows * cols);
  }
  w->Kernel("attention.cast", cast);
}

bool GathersBothDirections(const Shape& s) {
  return IsLow(s) && RecipeOf(s).block_scales && Directions(s) == 2;
}

void CastWeights(const Shape& s, BlockWriter* w, std::int64_t elements, Pass pass) {
  if (!IsLow(s)) return;
  // Gathered in low precision a weight is only turned.
  const std::int64_t cast = LinearBytes(s, elements);
  if (!s.framework.low_precision_gather) FindMaximum(s, w, "weights.maximum", 1, elements, pass);
  w->Kernel("weights.cast",
            MemoryBound{
                .op = MemoryOp::kCast,
                .rows = 1,
                .cols = elements,
                .bytes_read = s.framework.low_precision_gather ? cast : elements * s.element_bytes,
                .bytes_written = s.framework.low_precision_gather ? cast : 2 * cast,
                .dtype = s.dtype,
                .pass = pass});
}

namespace {

std::int64_t AttentionWeights(const Shape& s) {
  const std::int64_t projection = s.context() * s.hidden;
  const Latent& l = s.latent;
  if (l.queries_alone()) {
    return l.q_rank * s.query() + s.hidden * (s.qkv() - s.query()) + projection;
  }
  if (l.kv_rank == 0) return s.hidden * s.qkv() + projection;
  // The down-projections stay in bf16 (Megatron's plain linear layers).
  return (l.q_rank > 0 ? l.q_rank : s.hidden) * s.query() +
         l.kv_rank * s.heads * (l.nope_dim + l.v_dim) + projection;
}

}  // namespace

std::int64_t LinearWeights(const Shape& s) {
  if (!IsLow(s)) return 0;
  const auto low = [&](Bf16Module part) { return (s.bf16_modules & part) == 0; };
  std::int64_t n = s.hidden * (s.mamba.projected() + s.mamba.inner());
  if (s.attends && low(kBf16Attention)) n += AttentionWeights(s);
  if (!s.feeds_forward) return n;
  const ExpertShape& e = s.experts;
  if (e.count == 0) return n + (low(kBf16Mlp) ? s.hidden * (s.fc1() + s.ffn) : 0);
  const std::int64_t matrices = s.activation == Activation::kSwiglu ? 3 : 2;
  return n + (low(kBf16Experts) ? matrices * e.local * e.width * e.ffn : 0) +
         (low(kBf16Mlp) ? matrices * s.hidden * e.shared : 0) +
         (e.latent && low(kBf16ExpertLatent) ? 2 * e.width * s.hidden : 0);
}

graph::Block CastAllWeights(const Shape& s, std::int64_t weights, std::int64_t norm_group,
                            std::int64_t model_layers, Names* names) {
  BlockWriter w(names, "weights.cast", Pass::kForward);
  // Frozen and kept in low precision, they are turned once and for all.
  if (s.lora_rank == 0 || !s.framework.low_precision_gather)
    CastWeights(s, &w, weights, Pass::kForward);
  if (s.low_precision == LowPrecision::kDelayed && norm_group > 1) {
    constexpr std::int64_t kMaximaPerLayer = 3 * 4;  // input, weight, gradient of four layers
    w.Comm("all_reduce.maxima", {.collective = graph::Collective::kAllReduce,
                                 .group = graph::GroupSlot::kModel,
                                 .stream = kModelStream,
                                 .dtype = DType::kFp32,
                                 .bytes = {.value = model_layers * kMaximaPerLayer * 4}});
  }
  return w.Finish();
}

graph::Block LowPrecisionMemory(const Shape& s, std::int64_t weights, Names* names) {
  BlockWriter w(names, "static.low_precision", Pass::kOptimizer);
  const std::int64_t in_place = s.framework.low_precision_gather ? weights * s.element_bytes : 0;
  const std::int64_t bytes = 2 * LinearBytes(s, weights) - in_place;
  if (bytes > 0) {
    w.Alloc(w.Named(6, "parameters.cast", bytes, graph::MemoryKind::kParameter,
                    graph::Lifetime::kForever));
  }
  return w.Finish();
}

}  // namespace orrery::workload
