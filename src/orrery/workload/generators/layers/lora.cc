#include "orrery/workload/generators/layers/lora.h"

#include <array>

#include "orrery/workload/generators/experts/expert_adapters.h"
#include "orrery/workload/generators/layers/encoder_decoder.h"
#include "orrery/workload/generators/layers/layer_ops.h"
#include "orrery/workload/generators/layers/prepared_base.h"
#include "orrery/workload/generators/sharding/tensor_gradients.h"

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
  Split split;
  std::int64_t (*in)(const Shape&);
  std::int64_t (*out)(const Shape&);
  bool (*exists)(const Shape&);
};
std::int64_t Hidden(const Shape& s) { return s.hidden; }
bool IsLatent(const Shape& s) { return s.attends && s.latent.kv_rank > 0; }
bool IsPlain(const Shape& s) {
  return s.attends && s.latent.kv_rank == 0 && !s.latent.queries_alone();
}
bool QueriesAlone(const Shape& s) { return s.attends && s.latent.queries_alone(); }
bool Attends(const Shape& s) { return s.attends; }
bool IsMamba(const Shape& s) { return s.mamba.heads > 0; }
// PEFT gives the names of experts' modules to the experts alone.
bool IsDense(const Shape& s) {
  return s.feeds_forward && s.experts.count == 0 && s.lora_experts != ExpertAdapterKind::kModules;
}
bool SharesExperts(const Shape& s) {
  return s.feeds_forward && s.experts.shared > 0 && s.lora_experts != ExpertAdapterKind::kModules;
}
std::int64_t SharedFc1(const Shape& s) {
  return (s.activation == Activation::kSwiglu ? 2 : 1) * s.experts.shared;
}
bool CompressesQueries(const Shape& s) { return s.attends && s.latent.q_rank > 0; }
bool Crosses(const Shape& s) { return s.crosses; }
bool ProjectsUp(const Shape& s) { return IsLatent(s) || QueriesAlone(s); }
// Latent attention has, in place of qkv, projections down to its ranks and up to the heads; a Mamba
// layer one into its inner width and one out of it; cross attention its own, keys and values of the
// encoder's tokens.
constexpr std::string_view kCrossKeyValue = "cross_key_value";
// clang-format off
constexpr std::array<Target, 16> kTargets = {{
    {"qkv", kLoraQkv, Split::kColumns, Hidden,
     [](const Shape& s) { return s.qkv(); }, IsPlain},
    {"q_down", kLoraQkv, Split::kWhole, Hidden,
     [](const Shape& s) { return s.latent.q_rank; }, CompressesQueries},
    {"q_up", kLoraQkv, Split::kColumns,
     [](const Shape& s) { return s.latent.q_rank > 0 ? s.latent.q_rank : s.hidden; },
     [](const Shape& s) { return s.query(); }, ProjectsUp},
    {"kv", kLoraQkv, Split::kColumns, Hidden,
     [](const Shape& s) { return s.qkv() - s.query(); }, QueriesAlone},
    {"kv_down", kLoraQkv, Split::kWhole, Hidden,
     [](const Shape& s) { return s.latent.kv_rank + s.latent.rope_dim; }, IsLatent},
    {"kv_up", kLoraQkv, Split::kColumns,
     [](const Shape& s) { return s.latent.kv_rank; },
     [](const Shape& s) { return s.heads * (s.latent.nope_dim + s.latent.v_dim); }, IsLatent},
    {"projection", kLoraProjection, Split::kRows,
     [](const Shape& s) { return s.context(); }, Hidden, Attends},
    {"cross_query", kLoraQkv, Split::kColumns, Hidden,
     [](const Shape& s) { return s.query(); }, Crosses},
    {kCrossKeyValue, kLoraQkv, Split::kColumns, Hidden,
     [](const Shape& s) { return 2 * s.key_value(); }, Crosses},
    {"cross_projection", kLoraProjection, Split::kRows,
     [](const Shape& s) { return s.context(); }, Hidden, Crosses},
    {"in_projection", kLoraQkv, Split::kColumns, Hidden,
     [](const Shape& s) { return s.mamba.projected(); }, IsMamba},
    {"out_projection", kLoraProjection, Split::kRows,
     [](const Shape& s) { return s.mamba.inner(); }, Hidden, IsMamba},
    {"fc1", kLoraFc1, Split::kColumns, Hidden,
     [](const Shape& s) { return s.fc1(); }, IsDense},
    {"fc2", kLoraFc2, Split::kRows,
     [](const Shape& s) { return s.ffn; }, Hidden, IsDense},
    {"shared_fc1", kLoraFc1, Split::kColumns, Hidden, SharedFc1, SharesExperts},
    {"shared_fc2", kLoraFc2, Split::kRows,
     [](const Shape& s) { return s.experts.shared; }, Hidden, SharesExperts},
}};
// clang-format on
bool Chosen(const Shape& s, const Target& t) {
  return (s.lora_targets & t.bit) != 0 && t.exists(s);
}
// The outputs of a layer that have an adapter each; `out`: all of them, or those that run again.
std::vector<std::int64_t> OutputsOf(const Shape& s, std::string_view layer, std::int64_t out) {
  if (!s.framework.separate_adapters) return {out};
  if (layer == "qkv") {
    std::vector<std::int64_t> parts = {s.query() + s.gate()};
    if (!s.borrows_keys) parts.push_back(s.key_value());
    if (!s.borrows_keys && !s.keys_are_values) parts.push_back(s.values());
    return out == s.qkv() ? parts : std::vector<std::int64_t>{out};
  }
  if (layer == "kv") return {s.key_value(), s.values()};
  const bool halves = layer == kCrossKeyValue || (layer == "fc1" && out == 2 * s.ffn) ||
                      (layer == "shared_fc1" && out == 2 * s.experts.shared);
  return halves ? std::vector<std::int64_t>(2, out / 2) : std::vector<std::int64_t>{out};
}

Gemm Product(const Shape& s, std::int64_t m, std::int64_t n, std::int64_t k, GemmLayout layout) {
  return {.m = m, .n = n, .k = k, .dtype = s.dtype, .layout = layout, .out_dtype = s.dtype};
}
// Into the gradient buffer, or a tensor of its own.
Gemm Gradient(const Shape& s, std::int64_t m, std::int64_t n, std::int64_t tokens) {
  Gemm g = Product(s, m, n, tokens, GemmLayout::kTN);
  if (s.separate_gradients()) return g;
  g.accumulate = true;
  g.out_dtype = s.gradient_dtype;
  return g;
}

// Rows of A and columns of B on this rank, and tokens that it has in front of A.
std::int64_t RankPart(const Shape& s, Split split) {
  return split == Split::kColumns ? s.lora_rank / s.tp : s.lora_rank;
}
std::int64_t OutPart(const Shape& s, std::int64_t out, Split split) {
  return split == Split::kRows ? out / s.tp : out;
}
std::int64_t Tokens(const Shape& s, Split split) {
  return split == Split::kWhole ? s.local_tokens() : s.tokens();
}
std::int64_t InnerBytes(const Shape& s, Split split) {
  return Tokens(s, split) * s.lora_rank * s.product_bytes();
}

// Beside the linear layer that was there: its wrapper, A, B and the dropout in front of them.
constexpr std::int64_t kAdapterModules = 4;

void OneForward(const Shape& s, BlockWriter* w, std::int64_t in, std::int64_t out, Split split);
void OneBackward(const Shape& s, BlockWriter* w, std::int64_t in, std::int64_t out, Split split);

}  // namespace

bool Adapts(const Shape& s, std::string_view layer) {
  for (const Target& t : kTargets) {
    if (t.layer == layer) return Chosen(s, t);
  }
  return false;
}

void AdapterForward(const Shape& s, BlockWriter* w, std::string_view layer, std::int64_t in,
                    std::int64_t out, Split split) {
  if (!Adapts(s, layer)) return;
  for (const std::int64_t each : OutputsOf(s, layer, out)) OneForward(s, w, in, each, split);
}

void AdapterBackward(const Shape& s, BlockWriter* w, std::string_view layer, std::int64_t in,
                     std::int64_t out, Split split) {
  if (!Adapts(s, layer)) return;
  for (const std::int64_t each : OutputsOf(s, layer, out)) OneBackward(s, w, in, each, split);
}

namespace {

void OneForward(const Shape& s, BlockWriter* w, std::int64_t in, std::int64_t out, Split split) {
  const std::int64_t e = s.element_bytes, p = s.product_bytes(), tokens = Tokens(s, split);
  if (s.framework.separate_adapters) {
    w->Host("adapter.modules", kAdapterModules * s.framework.host.module_forward);
  }
  const std::int64_t rank = RankPart(s, split), columns = OutPart(s, out, split);
  const bool by_rows = split == Split::kRows;
  if (s.autocasts()) {  // adapters are in fp32
    for (const std::int64_t n : {rank * in, columns * s.lora_rank}) {
      w->Kernel("weight.cast", Elementwise(s, MemoryOp::kCast, 1, n, 4, p, Pass::kForward));
    }
  }
  ToProduct(s, w, "lora_cast", tokens, in, Pass::kForward);
  w->Kernel("lora_a", Product(s, tokens, rank, in, GemmLayout::kNT));
  if (split != Split::kWhole) {
    TpCollective(s, w, by_rows ? "all_reduce" : "all_gather",
                 by_rows ? Collective::kAllReduce : Collective::kAllGather, InnerBytes(s, split),
                 s.dtype);
  }
  w->Kernel("lora_b", Product(s, tokens, columns, s.lora_rank, GemmLayout::kNT));
  if (by_rows) {
    TpCollective(s, w, "all_gather", Collective::kAllGather, tokens * out * p, s.dtype);
  }
  const std::int64_t rows = by_rows ? s.local_tokens() : tokens;
  w->Kernel("lora_scale", Elementwise(s, MemoryOp::kGradScale, rows, out, p, p, Pass::kForward));
  w->Kernel("lora_add", Elementwise(s, MemoryOp::kAdd, rows, out, e + p, e, Pass::kForward));
}

void OneBackward(const Shape& s, BlockWriter* w, std::int64_t in, std::int64_t out, Split split) {
  const std::int64_t e = s.element_bytes, p = s.product_bytes(), tokens = Tokens(s, split);
  const std::int64_t rank = RankPart(s, split), columns = OutPart(s, out, split);
  const bool by_rows = split == Split::kRows;
  if (s.framework.separate_adapters) {
    w->Host("adapter.modules", 2 * s.framework.host.module_backward);  // A and B
  }
  w->Kernel("lora_scale",
            Elementwise(s, MemoryOp::kGradScale, tokens, columns, p, p, Pass::kBackward));
  const auto gradient = [&](std::string_view name, std::int64_t m, std::int64_t n) {
    w->Kernel(name, Gradient(s, m, n, tokens));
    if (s.separate_gradients()) AddTensorGradient(s, w, "weight_gradient", m * n);
  };
  gradient("lora_b", columns, s.lora_rank);
  w->Kernel("lora_b", Product(s, tokens, s.lora_rank, columns, GemmLayout::kNN));
  if (split != Split::kWhole) {
    TpCollective(s, w, by_rows ? "all_reduce" : "reduce_scatter",
                 by_rows ? Collective::kAllReduce : Collective::kReduceScatter,
                 InnerBytes(s, split), s.dtype);
  }
  gradient("lora_a", rank, in);
  w->Kernel("lora_a", Product(s, tokens, in, rank, GemmLayout::kNN));
  w->Kernel("lora_add", Elementwise(s, MemoryOp::kAdd, tokens, in, e + p, e, Pass::kBackward));
}

}  // namespace

std::vector<std::int64_t> AdapterParameters(const Shape& s) {
  std::vector<std::int64_t> p;
  for (const Target& t : kTargets) {
    if (!Chosen(s, t)) continue;
    for (const std::int64_t out : OutputsOf(s, t.layer, t.out(s))) {
      p.push_back(RankPart(s, t.split) * t.in(s));
      p.push_back(OutPart(s, out, t.split) * s.lora_rank);
    }
  }
  // Over ranks of their own they are reduced among those that hold the same experts.
  if (s.experts.count > 0 && s.experts.ep == 1) {
    for (const std::int64_t n : ExpertAdapterParameters(s)) p.push_back(n);
  }
  return p;
}

std::int64_t WholeAdapterParameters(const Shape& s) {
  std::int64_t n = 0;
  for (const Target& t : kTargets) {
    if (t.split == Split::kWhole && Chosen(s, t)) n += s.lora_rank * (t.in(s) + t.out(s));
  }
  return n;
}

std::int64_t AdapterSavedBytes(const Shape& s) {
  std::int64_t bytes = 0;
  for (const Target& t : kTargets) {
    if (!Chosen(s, t)) continue;
    const Shape of = t.layer == kCrossKeyValue ? EncoderShape(s) : s;
    const auto adapters = static_cast<std::int64_t>(OutputsOf(s, t.layer, t.out(s)).size());
    bytes += adapters * InnerBytes(of, t.split);
  }
  return s.frozen() ? bytes : 0;
}

}  // namespace orrery::workload
