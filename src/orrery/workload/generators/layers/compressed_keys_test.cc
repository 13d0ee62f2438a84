// Compressed keys and streams of residuals: parameters, pairs and kernels by hand.
#include "orrery/workload/generators/layers/compressed_keys.h"

#include <gtest/gtest.h>

#include "orrery/graph/verify/verify.h"
#include "orrery/workload/generators/layers/hyper_streams.h"
#include "orrery/workload/layer_sizes.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

// Three layers of 8 heads of 32 over 256, one key: a window of 16 alone, compressed 4 to 1 with an
// indexer, compressed 16 to 1.
Model Compressing() {
  Model m = SmallGpt(3);
  m.vocab = 1024;
  m.norm = Norm::kRmsNorm;
  m.activation = Activation::kSwiglu;
  m.position = Position::kRotary;
  m.attention_bias = m.mlp_bias = false;
  m.heads = 8;
  m.head_dim = 32;
  m.kv_heads = 1;
  m.keys_are_values = true;
  m.latent.q_rank = 64;
  m.compressed = {.window = 16,
                  .sparse_rate = 4,
                  .index_heads = 2,
                  .index_dim = 16,
                  .index_topk = 8,
                  .out_groups = 2,
                  .out_rank = 32};
  m.hyper_streams = 4;
  EXPECT_TRUE(m.SetSizes(*ParseLayerSizes("1, 1*compress=4, 1*compress=16")).ok());
  return m;
}

Plan OneSequence(std::int64_t words) { return {.batch = {.global_batch = 1, .seq_len = words}}; }

TEST(CompressedKeys, Parameters) {
  const Model m = Compressing();
  // Queries by way of 64, one key; the output in two groups; norms; two mixes of four streams.
  const std::int64_t base = 64 * (256 + 256) + 256 * 32 + 32 * (256 + 2 * 256) + 64 + 32;
  const std::int64_t hyper = 2 * (24 * 4 * 256 + 24 + 3);
  const std::int64_t layer = base + hyper + 2 * 256 + 3 * 256 * m.ffn_hidden;
  const std::int64_t sparse =
      (2 * 256 + 4) * 64 + 32 + (2 * 256 + 4) * 32 + 16 + 2 * (64 * 16 + 256);
  const std::int64_t heavy = (2 * 256 + 16) * 32 + 32;
  const std::int64_t ends = m.vocab * 256 * (m.tied_embeddings ? 1 : 2) + 256 + 4 * 4 * 256 + 4 + 1;
  EXPECT_EQ(m.parameters(), 3 * layer + sparse + heavy + ends);
  const Shape s = MakeShape(m, OneSequence(128));
  std::int64_t n = 0;
  for (std::int64_t l = 0; l < 3; ++l) {
    for (const std::int64_t t : LayerParameters(OfKind(s, m.layer_kind(l)))) n += t;
  }
  for (const std::int64_t t : EmbeddingParameters(s)) n += t;
  for (const std::int64_t t : HeadParameters(s, !m.tied_embeddings)) n += t;
  EXPECT_EQ(n, m.parameters());
}

// Of 128 keys: the last 16; with 8 of 32 compressed ones; with all 8, half of them in the mean.
TEST(CompressedKeys, KeysThatAQuerySees) {
  const Model m = Compressing();
  const Shape s = MakeShape(m, OneSequence(128));
  EXPECT_EQ(OfKind(s, m.layer_kind(0)).window, 16);
  EXPECT_EQ(OfKind(s, m.layer_kind(1)).window, 16 + 8);
  EXPECT_EQ(OfKind(s, m.layer_kind(2)).window, 16 + 4);
}

TEST(CompressedKeys, KernelsInTheirOrder) {
  for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
    Plan plan = OneSequence(128);
    plan.memory.recompute = recompute;
    const graph::Graph g = Make(Compressing(), plan);
    EXPECT_TRUE(graph::Verify(g, graph::VerifyLevel::kFull).ok());
    int indexers = 0, compressors = 0;
    for (const graph::Block& block : g.blocks) {
      if (!g.name(block.name).starts_with("layer.forward")) continue;
      const std::string operations = Operations(g, block);
      EXPECT_TRUE(operations.starts_with("hyper.norm hyper.weights hyper.sinkhorn hyper.sum"))
          << operations;
      EXPECT_NE(operations.find("flash_attention projection_a projection_b"), std::string::npos)
          << operations;
      compressors += operations.find("compress_keys compress_gates") != std::string::npos ? 1 : 0;
      indexers +=
          operations.find("index_weights index_rotary index_scores topk") != std::string::npos ? 1
                                                                                               : 0;
    }
    EXPECT_EQ(compressors, 2);
    EXPECT_EQ(indexers, 1);
  }
}

}  // namespace
}  // namespace orrery::workload
