// Encoders of images: both ends, attention without a mask, and what they are not built for.
#include <gtest/gtest.h>

#include "orrery/graph/verify/verify.h"
#include "orrery/workload/generators/shape.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

constexpr std::int64_t kPatches = 256;

Model Encoder() {
  Model m = SmallGpt(2);
  m.bidirectional = true;
  m.patch_values = 3 * 16 * 16;
  m.tied_embeddings = false;
  m.vocab = 128;
  m.max_position = kPatches;
  return m;
}

Plan FourImages() {
  Plan p;
  p.batch.global_batch = 4;
  p.batch.micro_batch = 4;
  p.batch.seq_len = kPatches;
  return p;
}

double Forward(const graph::Graph& g, int layers) {
  return BlockFlops(FindBlock(g, "embedding.forward")) +
         layers * BlockFlops(FindBlock(g, "layer.forward")) +
         BlockFlops(FindBlock(g, "head.forward"));
}

TEST(Patches, TensorsAndProductsAreTheModels) {
  for (const bool pooled : {false, true}) {
    Model m = Encoder();
    m.attention_pool = pooled;
    const Shape s = MakeShape(m, FourImages());
    std::int64_t n = 0;
    for (const std::int64_t t : LayerParameters(OfKind(s, 0))) n += m.layers * t;
    for (const std::int64_t t : EmbeddingParameters(s)) n += t;
    for (const std::int64_t t : HeadParameters(s, true)) n += t;
    EXPECT_EQ(n, m.parameters());
    const graph::Graph g = Make(m, FourImages());
    const Status status = graph::Verify(g, graph::VerifyLevel::kFull);
    EXPECT_TRUE(status.ok()) << status.message();
    // The pool's products on one token an image are left out of the model's.
    EXPECT_NEAR(Forward(g, 2) / (4 * m.flops_per_sequence(kPatches) / 3), 1, pooled ? 0.01 : 1e-9);
    for (const std::string_view block : {"embedding", "layer", "head"}) {
      EXPECT_EQ(SavedBytes(FindBlock(g, std::string(block) + ".forward")),
                -SavedBytes(FindBlock(g, std::string(block) + ".backward")));
    }
  }
}

// Two layers of 256·256: scores and context over all pairs, twice those under a causal mask.
TEST(Patches, AttentionSeesAllTokens) {
  const Model m = Encoder();
  Model causal = m;
  causal.bidirectional = false;
  EXPECT_DOUBLE_EQ(m.flops_per_sequence(kPatches) - causal.flops_per_sequence(kPatches),
                   6.0 * kPatches * 2 * (kPatches / 2.0) * 2 * 256);
  for (const graph::Kernel& kernel : FindBlock(Make(m, FourImages()), "layer.forward").kernels) {
    if (const auto* attention = std::get_if<graph::Attention>(&kernel)) {
      EXPECT_FALSE(attention->causal);
    }
  }
}

TEST(Patches, WhatTheyAreNotBuiltForIsRefused) {
  Model m = Encoder();
  m.tied_embeddings = true;
  EXPECT_TRUE(Validate(m).message().starts_with("model.patch_values: built for encoders"));
  m = Encoder();
  m.window = 64;
  EXPECT_TRUE(Validate(m).message().starts_with("model.bidirectional: built for encoders"));
  m = SmallGpt(2);
  m.attention_pool = true;
  EXPECT_TRUE(Validate(m).message().starts_with("model.attention_pool: says how"));
  Plan p = FourImages();
  p.parallel.cp = 2;
  EXPECT_TRUE(Validate(Encoder(), p).message().starts_with("parallel.cp: not built for encoders"));
  p = FourImages();
  p.parallel.tp = 2;
  p.parallel.sequence_parallel = true;
  EXPECT_TRUE(
      Validate(Encoder(), p).message().starts_with("parallel.sequence_parallel: not built"));
}

}  // namespace
}  // namespace orrery::workload
