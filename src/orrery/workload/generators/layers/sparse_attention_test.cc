#include "orrery/workload/generators/layers/sparse_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "orrery/graph/verify/verify.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

using testing::HasSubstr;

// 4 heads of 24 + 8, values of 24; latent vectors of 56 + 8; an indexer of 2 heads of 16.
Model Latents(std::int64_t topk) {
  Model m = SmallGpt(2);
  m.position = Position::kRotary;
  m.attention_bias = m.mlp_bias = false;
  m.norm = Norm::kRmsNorm;
  m.heads = m.kv_heads = 4;
  m.head_dim = 32;
  m.latent = {.q_rank = 96, .kv_rank = 56, .nope_dim = 24, .rope_dim = 8, .v_dim = 24};
  if (topk > 0) {
    m.latent.index_heads = 2;
    m.latent.index_dim = 16;
    m.latent.index_topk = topk;
  }
  return m;
}

Plan Flash(int tp = 1) {
  return {.parallel = {.tp = tp, .sequence_parallel = tp > 1},
          .batch = {.global_batch = 2, .micro_batch = 2, .seq_len = 128}};
}

const graph::Kernel& KernelOf(const graph::Graph& g, const graph::Block& block,
                              std::string_view name) {
  for (const graph::Op& op : block.ops) {
    if (op.kind == graph::OpKind::kKernel && g.name(op.name) == name)
      return block.kernels[op.index];
  }
  ADD_FAILURE() << "no kernel " << name;
  return block.kernels.front();
}

// 96·2·16 of queries, 256·16 of the key, 2·16 of its norm, 256·2 of weights a layer.
TEST(SparseAttention, TheIndexersParameters) {
  EXPECT_EQ(Latents(32).parameters() - Latents(0).parameters(), 2 * (3072 + 4096 + 32 + 512));
}

// From the layer's input in place of 96 values, and its LayerNorm of 2·256 weights (Mistral Large
// 4): 256·2·16 of queries.
TEST(SparseAttention, QueriesThatAreNotCompressed) {
  Model m = Latents(32), dense = Latents(0);
  m.latent.q_rank = dense.latent.q_rank = 0;
  ASSERT_TRUE(Validate(m).ok()) << Validate(m).message();
  EXPECT_EQ(m.parameters() - dense.parameters(), 2 * (8192 + 4096 + 32 + 512 + 512));
  for (const int tp : {1, 2}) {
    const graph::Graph g = Make(m, Flash(tp));
    const Status status = graph::Verify(g, graph::VerifyLevel::kFull);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(SavedBytes(FindBlock(g, "layer.forward")),
              -SavedBytes(FindBlock(g, "layer.backward")));
  }
}

// Of 128 queries with at most 32 tokens, the first 32 see 1 to 32: 32 - 32² / 256 = 28 in the mean.
// With as many tokens as there are, half of the square.
TEST(SparseAttention, QueriesSeeTheBest) {
  const graph::Graph g = Make(Latents(32), Flash());
  const graph::Block& forward = FindBlock(g, "layer.forward");
  const auto& attention = std::get<graph::Attention>(KernelOf(g, forward, "sparse_attention"));
  EXPECT_EQ(attention.window, 32);
  EXPECT_EQ(attention.kv_heads, 1);
  EXPECT_EQ(attention.head_dim, 64);
  EXPECT_EQ(attention.v_head_dim, 56);
  const auto& target = std::get<graph::Gemm>(KernelOf(g, forward, "target"));
  EXPECT_EQ(target.n, 28);
  EXPECT_EQ(target.k, 4 * 64);
  // Scores of all earlier tokens: 2 sequences of 128 · 64 pairs over 2 heads of 16.
  const auto& scores = std::get<graph::Gemm>(KernelOf(g, forward, "index_scores"));
  EXPECT_EQ(graph::Flops(graph::Kernel(scores)), 2.0 * 2 * 128 * 64 * 32);
  const graph::Graph all = Make(Latents(4096), Flash());
  const graph::Block& whole = FindBlock(all, "layer.forward");
  EXPECT_EQ(std::get<graph::Attention>(KernelOf(all, whole, "sparse_attention")).window, 0);
  EXPECT_EQ(std::get<graph::Gemm>(KernelOf(all, whole, "target")).n, 64);
}

// Absorbed, the products cost what the materialised keys and values do: per token and head 56·24
// for queries and again for outputs, beside 56·(24 + 24).
TEST(SparseAttention, AbsorbingIsTheSameProduct) {
  const graph::Graph sparse = Make(Latents(32), Flash()), full = Make(Latents(0), Flash());
  const graph::Block& s = FindBlock(sparse, "layer.forward");
  const graph::Block& f = FindBlock(full, "layer.forward");
  EXPECT_EQ(graph::Flops(KernelOf(sparse, s, "absorb_q")) +
                graph::Flops(KernelOf(sparse, s, "absorb_out")),
            graph::Flops(KernelOf(full, f, "kv_up")));
}

// What forward allocates backward gives back, with tensor parallelism and recomputation, too; every
// tensor-parallel rank has the indexer whole.
TEST(SparseAttention, GraphsAreWhole) {
  for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    for (const int tp : {1, 2}) {
      Plan plan = Flash(tp);
      plan.memory.recompute = recompute;
      const graph::Graph g = Make(Latents(32), plan);
      const Status status = graph::Verify(g, graph::VerifyLevel::kFull);
      EXPECT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(std::get<graph::Gemm>(KernelOf(g, FindBlock(g, "layer.forward"), "index_q")).n, 32);
    }
  }
}

TEST(SparseAttention, WhatItIsNotBuiltWith) {
  Plan plan = Flash();
  plan.parallel.cp = 2;
  EXPECT_THAT(Validate(Latents(32), plan).message(),
              HasSubstr("parallel.cp: the sparse attention"));
  plan = Flash();
  plan.framework.attention = AttentionBackend::kUnfused;
  EXPECT_THAT(Validate(Latents(32), plan).message(), HasSubstr("has kernels of its own"));
  Model m = SmallGpt(2);
  m.latent.index_topk = 32;
  EXPECT_THAT(Validate(m).message(), HasSubstr("set model.kv_lora_rank"));
}

}  // namespace
}  // namespace orrery::workload
