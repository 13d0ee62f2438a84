// Layers of several parts side by side, queries that alone are compressed, and heads that no fused
// kernel takes.
#include <gtest/gtest.h>

#include "orrery/graph/verify/verify.h"
#include "orrery/workload/generators/shape.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

constexpr std::int64_t kTokens = 512;

Model Decoder() {
  Model m = SmallGpt(2);
  m.norm = Norm::kRmsNorm;
  m.activation = Activation::kSwiglu;
  m.position = Position::kRotary;
  m.tied_embeddings = m.attention_bias = m.mlp_bias = false;
  m.vocab = 1024;
  return m;
}

Model Beside() {
  Model m = Decoder();
  m.mamba = {.heads = 8, .head_dim = 64, .state = 32, .groups = 4, .chunk = 128};
  m.mamba_beside = true;
  return m;
}

Plan OneGpu() {
  Plan p;
  p.batch.global_batch = 1;
  p.batch.seq_len = kTokens;
  return p;
}

std::int64_t Elements(const Model& m) {
  const Shape s = MakeShape(m, OneGpu());
  std::int64_t n = 0;
  for (const std::int64_t t : LayerParameters(OfKind(s, m.layer_kind(0)))) n += m.layers * t;
  for (const std::int64_t t : EmbeddingParameters(s)) n += t;
  for (const std::int64_t t : HeadParameters(s, true)) n += t;
  return n;
}

double LayerFlops(const Model& m, std::string_view block) {
  return BlockFlops(FindBlock(Make(m, OneGpu()), block));
}

// Norms of the residual stream in a layer.
int Norms(const Model& m) {
  const graph::Graph g = Make(m, OneGpu());
  int n = 0;
  for (const graph::Op& op : FindBlock(g, "layer.forward").ops) {
    if (op.kind == graph::OpKind::kKernel && g.name(op.name) == "rms_norm") ++n;
  }
  return n;
}

// A layer is attention and a feed-forward, with Mamba's own products besides; no second norm.
TEST(Beside, MambaAndAttentionAreOneLayer) {
  const Model m = Beside();
  EXPECT_EQ(Elements(m), m.parameters());
  Model mamba = Beside();
  mamba.mamba_beside = false;
  mamba.pattern = "MM";
  for (const std::string_view block : {"layer.forward", "layer.backward"}) {
    EXPECT_EQ(LayerFlops(m, block), LayerFlops(Decoder(), block) + LayerFlops(mamba, block));
  }
  EXPECT_EQ(Norms(m), 2);  // one of them before both mixers
  Model apart = m;
  apart.mamba_beside = false;
  EXPECT_EQ(m.parameters() - apart.parameters(),
            2 * (256 * (512 + 512 + 2 * 4 * 32 + 8 + 512) + (512 + 2 * 4 * 32) * 5 + 3 * 8 + 512));
}

// What forward leaves for backward is given back there, whatever runs again.
TEST(Beside, MemoryIsGivenBack) {
  for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    for (const int tp : {1, 2}) {
      Plan p = OneGpu();
      p.memory.recompute = recompute;
      if (recompute == Recompute::kSelective) p.memory.recompute_modules = kRecomputeCore;
      p.parallel.tp = tp;
      p.parallel.sequence_parallel = tp > 1;
      const graph::Graph g = Make(Beside(), p);
      const Status status = graph::Verify(g, graph::VerifyLevel::kFull);
      EXPECT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(SavedBytes(FindBlock(g, "layer.forward")),
                -SavedBytes(FindBlock(g, "layer.backward")));
    }
  }
}

TEST(Beside, WhatItIsNotBuiltForIsRefused) {
  Model m = Beside();
  m.window = 128;
  EXPECT_TRUE(Validate(m).message().starts_with("model.mamba_beside: built for decoders"));
  m = Beside();
  m.mamba.groups = 0;
  EXPECT_TRUE(Validate(m).message().starts_with("model.mamba_groups"));
}

// hidden 256, queries of 8 heads of 32 by way of 64 values, one head of keys and of values.
TEST(CompressedQueries, ProductsAndTensors) {
  Model m = Decoder();
  m.kv_heads = 1;
  const Model plain = m;
  m.latent.q_rank = 64;
  EXPECT_EQ(Elements(m), m.parameters());
  EXPECT_EQ(m.parameters() - plain.parameters(), 2 * (64 * (256 + 256) + 64 - 256 * 256));
  const double fewer = 2.0 * kTokens * (256 * 256 - 64 * (256 + 256));
  EXPECT_DOUBLE_EQ(LayerFlops(plain, "layer.forward") - LayerFlops(m, "layer.forward"), fewer);
  EXPECT_DOUBLE_EQ(LayerFlops(plain, "layer.backward") - LayerFlops(m, "layer.backward"),
                   2 * fewer);
  const graph::Graph g = Make(m, OneGpu());
  EXPECT_TRUE(graph::Verify(g, graph::VerifyLevel::kFull).ok());
  EXPECT_EQ(SavedBytes(FindBlock(g, "layer.forward")), -SavedBytes(FindBlock(g, "layer.backward")));
}

// Norms behind the experts as behind a feed-forward (Gemma 4).
TEST(PostNorms, ExpertsHaveThem) {
  Model m = Decoder();
  m.experts = {.count = 8, .top_k = 2, .ffn_hidden = 128, .shared_ffn_hidden = 256};
  const Model before = m;
  m.post_norms = true;
  ASSERT_TRUE(Validate(m).ok()) << Validate(m).message();
  EXPECT_EQ(m.parameters() - before.parameters(), 2 * 2 * 256);
  EXPECT_EQ(Norms(before), 2);
  EXPECT_EQ(Norms(m), 4);
  const graph::Graph g = Make(m, OneGpu());
  EXPECT_TRUE(graph::Verify(g, graph::VerifyLevel::kFull).ok());
  EXPECT_EQ(SavedBytes(FindBlock(g, "layer.forward")), -SavedBytes(FindBlock(g, "layer.backward")));
}

// Norms behind short convolutions, and behind the feed-forwards that follow them (LFM3).
TEST(PostNorms, MixersHaveThem) {
  Model m = Decoder();
  m.pattern = "mm";
  m.mamba = {.kind = Mixer::kShortConv,
             .heads = 8,
             .head_dim = 32,
             .state = 1,
             .groups = 8,
             .conv = 7,
             .chunk = 64};
  const Model before = m;
  m.post_norms = true;
  ASSERT_TRUE(Validate(m).ok()) << Validate(m).message();
  EXPECT_EQ(m.parameters() - before.parameters(), 2 * 2 * 256);
  EXPECT_EQ(Elements(m), m.parameters());
  EXPECT_EQ(Norms(before), 2);
  EXPECT_EQ(Norms(m), 4);
  for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    Plan p = OneGpu();
    p.memory.recompute = recompute;
    const graph::Graph g = Make(m, p);
    const Status status = graph::Verify(g, graph::VerifyLevel::kFull);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(SavedBytes(FindBlock(g, "layer.forward")),
              -SavedBytes(FindBlock(g, "layer.backward")));
  }
}

// Heads of 512 in the layers without a window are unfused where the framework's library is
// Transformer Engine, those of 256 beside them are not.
TEST(WideHeads, AreUnfusedWhereNoKernelTakesThem) {
  Model m = Decoder();
  m.head_dim = 512;
  m.window = 128;
  m.full_every = 2;
  m.window_heads.dim = 256;
  Plan p = OneGpu();
  EXPECT_TRUE(OfKind(MakeShape(m, p), kDenseLayer).flash());
  p.framework.unfuses_wide_heads = true;
  EXPECT_FALSE(OfKind(MakeShape(m, p), kDenseLayer).flash());
  EXPECT_TRUE(OfKind(MakeShape(m, p), kWindowLayer).flash());
  EXPECT_TRUE(graph::Verify(Make(m, p), graph::VerifyLevel::kFull).ok());
  p.parallel.cp = 2;
  EXPECT_TRUE(Validate(m, p).message().starts_with("parallel.cp: 2 ranks share a sequence"));
}

}  // namespace
}  // namespace orrery::workload
