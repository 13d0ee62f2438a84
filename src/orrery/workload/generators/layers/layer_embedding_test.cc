// Embeddings of every layer's own, and layers that borrow keys and values.
#include "orrery/workload/generators/layers/layer_embedding.h"

#include <gtest/gtest.h>

#include "orrery/graph/verify/verify.h"
#include "orrery/workload/layer_sizes.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

constexpr std::int64_t kWords = 256;

// Four layers of 8 heads of 32 over 256; the last two borrow their keys and are twice as wide.
// Every layer has an embedding of 64.
Model Small() {
  Model m = SmallGpt(4);
  m.vocab = 1024;
  m.norm = Norm::kRmsNorm;
  m.activation = Activation::kSwiglu;
  m.position = Position::kRotary;
  m.attention_bias = m.mlp_bias = false;
  m.qk_norm = true;
  m.kv_heads = 2;
  m.layer_embedding = 64;
  const Status status = m.SetSizes(*ParseLayerSizes("2, 2*ffn_hidden=2048+borrows_keys=1"));
  EXPECT_TRUE(status.ok()) << status.message();
  return m;
}

Plan OneReplica() {
  Plan p;
  p.batch.global_batch = p.batch.micro_batch = 2;
  p.batch.seq_len = kWords;
  return p;
}

// By hand. Queries and projection 2·256², keys and values 2·256·64, norms of queries and of keys 32
// each; three matrices of the width; norms of 256; the layer's own part 2·256·64 and a norm.
TEST(LayerEmbedding, Parameters) {
  const std::int64_t part = 2 * 256 * 64 + 256;
  const std::int64_t lends = 2 * 256 * 256 + 2 * 256 * 64 + 64 + 3 * 256 * 1024 + 512 + part;
  const std::int64_t borrows = 2 * 256 * 256 + 32 + 3 * 256 * 2048 + 512 + part;
  const std::int64_t tables = 1024 * 256 + 1024 * 4 * 64 + 256 * 4 * 64 + 64;
  EXPECT_EQ(Small().parameters(), 2 * lends + 2 * borrows + tables + 256);
}

TEST(LayerEmbedding, TensorsAndProductsAreTheModels) {
  const Shape s = MakeShape(Small(), OneReplica());
  std::int64_t n = 0;
  for (std::int64_t l = 0; l < 4; ++l) {
    for (const std::int64_t t : LayerParameters(OfKind(s, Small().layer_kind(l)))) n += t;
  }
  for (const std::int64_t t : EmbeddingParameters(s)) n += t;
  for (const std::int64_t t : HeadParameters(s, false)) n += t;
  EXPECT_EQ(n, Small().parameters());
  const graph::Graph g = Make(Small(), OneReplica());
  double flops = 0;
  std::int64_t kept = 0;
  for (const graph::Call& call : g.programs[0].calls) {
    if (call.microbatch < 0) continue;
    const graph::Block& block = g.blocks[call.block.index()];
    if (block.pass == graph::Pass::kForward) flops += call.repeat * BlockFlops(block);
    kept += call.repeat * SavedBytes(block);
  }
  // Of the causal square a model counts half, FLOPs of kernels count all.
  const double masked = 2.0 * 2 * 4 * kWords * (kWords / 2.0) * 2 * 256;
  EXPECT_NEAR((flops - masked) / (2 * Small().flops_per_sequence(kWords) / 3), 1, 1e-9);
  EXPECT_EQ(kept, 0);
}

// A layer that borrows has no kernel of keys but attention, and adds to gradients that it hands on.
TEST(LayerEmbedding, BorrowedKeysAreMadeOnce) {
  const graph::Graph g = Make(Small(), OneReplica());
  int lending = 0, borrowing = 0;
  for (const graph::Block& block : g.blocks) {
    const std::string operations = Operations(g, block);
    if (g.name(block.name) != "layer.backward") continue;
    const bool borrows = operations.find("borrowed_gradient") != std::string::npos;
    EXPECT_EQ(operations.find("rotary_k") == std::string::npos, borrows);
    EXPECT_EQ(operations.find("k_norm") == std::string::npos, borrows);
    ++(borrows ? borrowing : lending);
  }
  EXPECT_EQ(lending, 1);
  EXPECT_EQ(borrowing, 1);
}

TEST(LayerEmbedding, EveryPlanVerifies) {
  for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    Plan p = OneReplica();
    p.parallel.tp = 2;
    p.parallel.sequence_parallel = true;
    p.memory.recompute = recompute;
    const graph::Graph g = Make(Small(), p);
    const Status status = graph::Verify(g, graph::VerifyLevel::kFull);
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

TEST(LayerEmbedding, WhatTheyAreNotBuiltForIsRefused) {
  Plan p = OneReplica();
  p.parallel.pp = 2;
  EXPECT_TRUE(Validate(Small(), p).message().starts_with("parallel.pp: every layer of small adds"));
  Model m = Small();
  m.attention_bias = true;
  EXPECT_TRUE(Validate(m).message().starts_with("model.layer_sizes: borrows_keys is built for"));
  m = Small();
  m.parallel_block = true;
  m.sizes.clear();
  m.size_of.clear();
  EXPECT_TRUE(Validate(m).message().starts_with("model.layer_embedding: built for decoders"));
}

}  // namespace
}  // namespace orrery::workload
