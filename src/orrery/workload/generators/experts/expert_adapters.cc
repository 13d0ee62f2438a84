#include "orrery/workload/generators/experts/expert_adapters.h"

#include "orrery/workload/generators/experts/expert_host.h"
#include "orrery/workload/generators/layers/layer_ops.h"
#include "orrery/workload/generators/sharding/tensor_gradients.h"
#include "orrery/workload/plan_adapters.h"

namespace orrery::workload {

using graph::Gemm;
using graph::GemmLayout;
using graph::MemoryOp;
using graph::Pass;

namespace {

constexpr std::array<ExpertProduct, 2> kProducts = {ExpertProduct::kFc1, ExpertProduct::kFc2};

bool AdaptsProduct(const Shape& s, ExpertProduct product) {
  const std::uint8_t bit = product == ExpertProduct::kFc1 ? kLoraFc1 : kLoraFc2;
  if (s.lora_experts == ExpertAdapterKind::kNone || s.experts.count == 0) return false;
  return s.lora_experts == ExpertAdapterKind::kParameters || (s.lora_targets & bit) != 0;
}
bool Gated(const Shape& s) { return s.activation == Activation::kSwiglu; }

// Of one expert's matrix.
struct Sizes {
  std::int64_t in = 0, out = 0, rank = 0;
};
Sizes SizesOf(const Shape& s, ExpertProduct product) {
  const ExpertShape& e = s.experts;
  if (product == ExpertProduct::kFc2) return {e.ffn, e.width, s.lora_rank};
  const bool halves = s.lora_experts == ExpertAdapterKind::kModules && Gated(s);
  return {e.width, (Gated(s) ? 2 : 1) * e.ffn, (halves ? 2 : 1) * s.lora_rank};
}
// Adapters of one product on this rank.
std::int64_t Count(const Shape& s) {
  return s.lora_experts == ExpertAdapterKind::kShared ? 1 : s.experts.local;
}

}  // namespace

std::vector<std::int64_t> ExpertAdapterParameters(const Shape& s) {
  std::vector<std::int64_t> p;
  for (const ExpertProduct product : kProducts) {
    if (!AdaptsProduct(s, product)) continue;
    const Sizes z = SizesOf(s, product);
    const std::int64_t tensors = MergesAdapters(s.lora_experts) ? 1 : Count(s),
                       each = MergesAdapters(s.lora_experts) ? Count(s) : 1;
    for (std::int64_t i = 0; i < tensors; ++i) {
      p.push_back(each * z.rank * z.in);
      p.push_back(each * z.rank * z.out);
    }
  }
  return p;
}

ExpertAdapters::ExpertAdapters(const Shape& s, const ExpertRows& rows, bool again, std::uint32_t id,
                               BlockWriter* w)
    : s_(s), rows_(rows), w_(w) {
  for (std::size_t i = 0; i < kProducts.size(); ++i) {
    const Sizes z = SizesOf(s, kProducts[i]);
    const std::int64_t elements = !adapts(kProducts[i]) ? 0
                                  : merges()            ? s.experts.local * z.in * z.out
                                                        : rows.all * z.rank;
    kept_[i] = w->Named(++id, merges() ? "experts.merged" : "experts.adapters",
                        elements * s.element_bytes, graph::MemoryKind::kActivation,
                        again ? graph::Lifetime::kCall : graph::Lifetime::kMicrobatch);
  }
}

bool ExpertAdapters::adapts(ExpertProduct product) const { return AdaptsProduct(s_, product); }
bool ExpertAdapters::merges() const { return MergesAdapters(s_.lora_experts); }

void ExpertAdapters::InFront(ExpertProduct product) {
  if (!adapts(product)) return;
  const Sizes z = SizesOf(s_, product);
  const std::int64_t e = s_.element_bytes, n = Count(s_);
  w_->Module(product == ExpertProduct::kFc1 ? "layers.mlp.experts.fc1.adapters"
                                            : "layers.mlp.experts.fc2.adapters");
  const auto flat = [&](std::string_view name, MemoryOp op, std::int64_t elements,
                        std::int64_t read, std::int64_t written) {
    w_->Kernel(name, Elementwise(s_, op, 1, elements, read, written, Pass::kForward));
  };
  if (s_.autocasts()) {  // adapters are in fp32
    flat("weight.cast", MemoryOp::kCast, n * z.rank * z.in, 4, e);
    flat("weight.cast", MemoryOp::kCast, n * z.rank * z.out, 4, e);
  }
  w_->Alloc(kept_[static_cast<std::size_t>(product)]);
  if (!merges()) return;
  flat("lora_b.copy", MemoryOp::kCopy, n * z.rank * z.out, e, e);  // experts stand last in it
  flat("weight.copy", MemoryOp::kCopy, n * z.out * z.in, e, e);
  w_->Kernel("merge", Gemm{.m = z.out,
                           .n = z.in,
                           .k = z.rank,
                           .batch = n,
                           .dtype = s_.dtype,
                           .layout = GemmLayout::kNN,
                           .accumulate = true,
                           .out_dtype = s_.dtype});
}

void ExpertAdapters::Behind(ExpertProduct product) {
  if (!adapts(product) || merges()) return;
  const Sizes z = SizesOf(s_, product);
  const std::int64_t e = s_.element_bytes;
  const auto run = [&](std::string_view name, std::int64_t n, std::int64_t k) {
    Gemm g{.m = rows_.all, .n = n, .k = k, .dtype = s_.dtype, .out_dtype = s_.dtype};
    if (s_.lora_experts == ExpertAdapterKind::kGrouped) {
      g.m = rows_.each;
      g.batch = s_.experts.local;
      g.kind = graph::GemmKind::kGrouped;
      GroupedHost(s_, w_, 1);
    }
    w_->Kernel(name, g);
  };
  run("lora_a", z.rank, z.in);
  run("lora_b", z.out, z.rank);
  w_->Kernel("lora_scale",
             Elementwise(s_, MemoryOp::kGradScale, rows_.all, z.out, e, e, Pass::kForward));
  w_->Kernel("lora_add",
             Elementwise(s_, MemoryOp::kAdd, rows_.all, z.out, 2 * e, e, Pass::kForward));
}

// The weights' gradient as if they were trained; of it those of B and of A.
void ExpertAdapters::Gradients(std::string_view name, std::int64_t in, std::int64_t out,
                               std::int64_t rank) {
  const std::int64_t n = s_.experts.local;
  const graph::Buffer whole =
      w_->Temporary("experts.merged.gradient", n * in * out * s_.element_bytes);
  w_->Alloc(whole);
  w_->Kernel(name, Gemm{.m = out,
                        .n = in,
                        .k = rows_.each,
                        .batch = n,
                        .dtype = s_.dtype,
                        .layout = GemmLayout::kTN,
                        .out_dtype = s_.dtype,
                        .kind = graph::GemmKind::kGrouped});
  const auto product = [&](std::string_view of, std::int64_t rows, std::int64_t cols,
                           std::int64_t inner, GemmLayout layout) {
    w_->Kernel(of, Gemm{.m = rows,
                        .n = cols,
                        .k = inner,
                        .batch = n,
                        .dtype = s_.dtype,
                        .layout = layout,
                        .out_dtype = s_.dtype});
    AddTensorGradient(s_, w_, "weight_gradient", n * rows * cols);
  };
  product("lora_b", out, rank, in, GemmLayout::kNT);
  product("lora_a", rank, in, out, GemmLayout::kTN);
  w_->Free(whole);
}

void ExpertAdapters::Backward(ExpertProduct product) {
  if (!adapts(product)) return;
  const Sizes z = SizesOf(s_, product);
  const std::int64_t e = s_.element_bytes;
  if (merges()) {
    Gradients(product == ExpertProduct::kFc1 ? "grouped_fc1" : "grouped_fc2", z.in, z.out, z.rank);
    return w_->Free(kept_[static_cast<std::size_t>(product)]);
  }
  const bool grouped = s_.lora_experts == ExpertAdapterKind::kGrouped;
  const auto run = [&](std::string_view name, Gemm g, bool weights) {
    g.dtype = s_.dtype;
    g.out_dtype = s_.dtype;
    if (grouped) {
      g.batch = s_.experts.local;
      g.kind = graph::GemmKind::kGrouped;
      GroupedHost(s_, w_, 1);
    }
    if (weights && !s_.separate_gradients()) {
      g.accumulate = true;
      g.out_dtype = s_.gradient_dtype;
    }
    w_->Kernel(name, g);
    if (weights && s_.separate_gradients()) {
      AddTensorGradient(s_, w_, "weight_gradient", g.batch * g.m * g.n);
    }
  };
  const std::int64_t rows = grouped ? rows_.each : rows_.all;
  w_->Kernel("lora_scale",
             Elementwise(s_, MemoryOp::kGradScale, rows_.all, z.out, e, e, Pass::kBackward));
  run("lora_b", {.m = z.out, .n = z.rank, .k = rows, .layout = GemmLayout::kTN}, true);
  run("lora_b", {.m = rows, .n = z.rank, .k = z.out, .layout = GemmLayout::kNN}, false);
  run("lora_a", {.m = z.rank, .n = z.in, .k = rows, .layout = GemmLayout::kTN}, true);
  run("lora_a", {.m = rows, .n = z.in, .k = z.rank, .layout = GemmLayout::kNN}, false);
  w_->Kernel("lora_add",
             Elementwise(s_, MemoryOp::kAdd, rows_.all, z.in, 2 * e, e, Pass::kBackward));
  w_->Free(kept_[static_cast<std::size_t>(product)]);
}

void ExpertAdapters::Drop() {
  for (const ExpertProduct product : kProducts) {
    if (adapts(product)) w_->Free(kept_[static_cast<std::size_t>(product)]);
  }
}

}  // namespace orrery::workload
