// Layers with a window that have heads of their own (Gemma 4, MiMo-V2, Step-3.5), values narrower
// than keys, and keys that are the values.
#include <gtest/gtest.h>

#include "orrery/graph/verify/verify.h"
#include "orrery/workload/generators/shape.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

constexpr std::int64_t kSequence = 512;

// A windowed layer, then one that sees everything. 8 heads of 48 with 2 of keys, values of 32; with
// the window 16 heads of 24 with 4.
Model Mixed() {
  Model m = SmallGpt(2);
  m.norm = Norm::kRmsNorm;
  m.activation = Activation::kSwiglu;
  m.position = Position::kRotary;
  m.attention_bias = m.mlp_bias = false;
  m.vocab = 1024;
  m.max_position = kSequence;
  m.head_dim = 48;
  m.kv_heads = 2;
  m.latent.v_dim = 32;
  m.window = 128;
  m.full_every = 2;
  m.window_heads = {.queries = 16, .keys = 4, .dim = 24};
  return m;
}

Plan OneSequence() {
  Plan p;
  p.batch.seq_len = kSequence;
  return p;
}

graph::Attention AttentionOf(const Model& m, const Plan& p, Kind kind) {
  const Shape s = OfKind(MakeShape(m, p), kind);
  return {.heads = s.heads,
          .kv_heads = s.kv_heads,
          .head_dim = s.head_dim,
          .v_head_dim = s.other_v_head_dim()};
}

TEST(WindowHeads, EachKindHasItsOwn) {
  const auto full = AttentionOf(Mixed(), OneSequence(), kDenseLayer);
  EXPECT_EQ(full.heads, 8);
  EXPECT_EQ(full.kv_heads, 2);
  EXPECT_EQ(full.head_dim, 48);
  EXPECT_EQ(full.v_head_dim, 32);
  Plan p = OneSequence();
  p.parallel.tp = 2;
  const auto windowed = AttentionOf(Mixed(), p, kWindowLayer);
  EXPECT_EQ(windowed.heads, 8);
  EXPECT_EQ(windowed.kv_heads, 2);
  EXPECT_EQ(windowed.head_dim, 24);
}

// By hand: hidden 256; queries, keys, values, projection; three matrices of 1,024; two norms.
TEST(WindowHeads, ParametersAndFlops) {
  Model m = Mixed();
  const std::int64_t full = 256 * (8 * 48 + 2 * 48 + 2 * 32 + 8 * 32);
  const std::int64_t windowed = 256 * (16 * 24 + 4 * 24 + 4 * 32 + 16 * 32);
  const std::int64_t rest = 2 * (3 * 256 * 1024 + 2 * 256) + 1024 * 256 + 256;
  EXPECT_EQ(m.parameters(), full + windowed + rest);
  const double pairs = 256.0 * 8 * (48 + 32) + (128 - 128.0 * 128 / 1024) * 16 * (24 + 32);
  const double matrices = static_cast<double>(full + windowed) + 2.0 * 3 * 256 * 1024;
  EXPECT_DOUBLE_EQ(m.flops_per_sequence(kSequence),
                   6.0 * kSequence * (matrices + pairs + 1024.0 * 256));
  m.latent.v_dim = 0;
  m.keys_are_values = true;  // of the layer without a window alone
  EXPECT_EQ(m.parameters(),
            256 * (8 * 48 + 2 * 48 + 8 * 48) + 256 * (16 * 24 + 2 * 4 * 24 + 16 * 24) + rest);
}

TEST(WindowHeads, EveryPlanVerifies) {
  for (const bool keys_are_values : {false, true}) {
    Model m = Mixed();
    if (keys_are_values) m.latent.v_dim = 0;
    m.keys_are_values = keys_are_values;
    for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
      for (const int cp : {1, 2}) {
        Plan p = OneSequence();
        p.parallel.tp = 2;
        p.parallel.cp = cp;
        p.parallel.sequence_parallel = true;
        p.memory.recompute = recompute;
        const graph::Graph g = Make(m, p);
        const Status status = graph::Verify(g, graph::VerifyLevel::kFull);
        EXPECT_TRUE(status.ok()) << status.message();
      }
    }
  }
}

TEST(WindowHeads, RulesNameTheRemedy) {
  Model m = Mixed();
  m.window_heads.keys = 3;
  EXPECT_EQ(Validate(m).message(),
            "model.window_kv_heads: 3 does not divide 16 heads of windowed layers");
  m = Mixed();
  m.window = 0;
  m.full_every = 0;
  EXPECT_EQ(Validate(m).message(),
            "model.window_heads: says how windowed layers attend, but model.window is 0");
  m = Mixed();
  m.keys_are_values = true;
  EXPECT_EQ(Validate(m).message(),
            "model.keys_are_values: values are as wide as keys then; v_head_dim is 32");
  Plan p = OneSequence();
  p.parallel.tp = 4;
  m = Mixed();
  m.kv_heads = 4;
  m.window_heads.keys = 2;
  EXPECT_NE(Validate(m, p).message().find("does not divide the key and value heads of windowed"),
            std::string::npos);
}

}  // namespace
}  // namespace orrery::workload
