// Streams of residuals and low-rank residuals: parameters and kernels by hand.
#include "orrery/workload/generators/layers/altup.h"

#include <gtest/gtest.h>

#include "orrery/graph/verify/verify.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

Model WithStreams() {
  Model m = SmallGpt(2);
  m.vocab = 1024;
  m.norm = Norm::kRmsNorm;
  m.activation = Activation::kSwiglu;
  m.position = Position::kRotary;
  m.attention_bias = m.mlp_bias = false;
  m.layer_embedding = 64;
  m.altup_streams = 4;
  m.laurel_rank = 16;
  return m;
}

Plan OneReplicaOfStreams() {
  Plan p;
  p.batch = {.global_batch = 2, .micro_batch = 2, .seq_len = 128};
  return p;
}

// A layer: a product of rank 16 and its norm; a router 4 · 256 and its norm, 16 and 64
// coefficients, a scale of 256. The ends: 3 projections each.
TEST(AltUp, Parameters) {
  const Model with = WithStreams();
  Model without = with;
  without.altup_streams = without.laurel_rank = 0;
  const std::int64_t layer = 2 * 16 * 256 + 256 + 4 * 256 + 256 + 16 + 64 + 256;
  EXPECT_EQ(with.parameters() - without.parameters(), 2 * layer + 6 * 256 * 256);
  const Shape s = MakeShape(with, OneReplicaOfStreams());
  std::int64_t n = 0;
  for (std::int64_t l = 0; l < 2; ++l) {
    for (const std::int64_t t : LayerParameters(OfKind(s, with.layer_kind(l)))) n += t;
  }
  for (const std::int64_t t : EmbeddingParameters(s)) n += t;
  for (const std::int64_t t : HeadParameters(s, !with.tied_embeddings)) n += t;
  EXPECT_EQ(n, with.parameters());
}

// Of a forward pass: the streams around the layer, LAuReL between its halves.
TEST(AltUp, KernelsInTheirOrder) {
  const graph::Graph g = Make(WithStreams(), OneReplicaOfStreams());
  EXPECT_TRUE(graph::Verify(g, graph::VerifyLevel::kFull).ok());
  const std::string forward = Operations(g, FindBlock(g, "layer.forward"));
  EXPECT_TRUE(forward.starts_with("rms_norm router permute predict add permute rms_norm qkv"))
      << forward;
  EXPECT_NE(forward.find("left right rms_norm add_input add_attention scale rms_norm fc1"),
            std::string::npos)
      << forward;
  EXPECT_NE(forward.find("rms_norm router innovation repeat correct add scale"), std::string::npos)
      << forward;
}

// Three streams of the layer's input more, four for the product, five of the correction; recomputed
// in full, the layer's input alone stays.
TEST(AltUp, WhatStaysForBackward) {
  const auto kept = [](Recompute recompute, bool streams) {
    Model m = WithStreams();
    if (!streams) m.altup_streams = 0;
    Plan p = OneReplicaOfStreams();
    p.memory.recompute = recompute;
    return SavedBytes(FindBlock(Make(m, p), "layer.forward"));
  };
  const std::int64_t tensor = 2 * 128 * 256 * 2;
  EXPECT_EQ(kept(Recompute::kNone, true) - kept(Recompute::kNone, false), 12 * tensor);
  EXPECT_EQ(kept(Recompute::kFull, true) - kept(Recompute::kFull, false), 3 * tensor);
}

}  // namespace
}  // namespace orrery::workload
