// Layers with sizes of their own: as a job file says them, as tensors and products, and across a
// plan's ranks.
#include "orrery/workload/layer_sizes.h"

#include <gtest/gtest.h>

#include "orrery/graph/verify/verify.h"
#include "orrery/workload/generators/shape.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

// Four layers: two of the model's own sizes (8 heads, 1,024 wide), one half as wide, one with 2
// heads of keys and twice the width, and a pattern that takes attention off the third.
Model Searched() {
  Model m = SmallGpt(4);
  m.vocab = 1024;
  m.position = Position::kRotary;
  m.attention_bias = m.mlp_bias = false;
  m.pattern = "DD-D";
  const Result<std::vector<LayerSizes>> sizes =
      ParseLayerSizes("2, 1*ffn_hidden=512, 1*kv_heads=2+ffn_hidden=2048");
  EXPECT_TRUE(sizes.ok()) << sizes.status().message();
  const Status status = m.SetSizes(*sizes);
  EXPECT_TRUE(status.ok()) << status.message();
  return m;
}

TEST(LayerSizes, AreSaidAsTheyAreRead) {
  EXPECT_EQ(SayLayerSizes(Searched()), "2, 1*ffn_hidden=512, 1*kv_heads=2+ffn_hidden=2048");
  EXPECT_EQ(SayLayerSizes(SmallGpt(4)), "");
  Model m = SmallGpt(4);  // the model's own are none of a layer
  ASSERT_TRUE(m.SetSizes(*ParseLayerSizes("4*ffn_hidden=1024")).ok());
  EXPECT_TRUE(m.sizes.empty());
}

TEST(LayerSizes, ErrorsSayHowToWriteThem) {
  EXPECT_EQ(ParseLayerSizes("4*width=3").status().message(),
            "unknown size 'width'; valid: heads, kv_heads, head_dim, ffn_hidden, "
            "compress, borrows_keys; write runs as "
            "4*ffn_hidden=5376");
  EXPECT_EQ(ParseLayerSizes("4*ffn_hidden=0").status().message(),
            "'0' is no whole number from 1; write runs as 4*ffn_hidden=5376");
  EXPECT_EQ(ParseLayerSizes("20000").status().message(), "more than 10000 layers");
  Model m = Searched();
  m.layers = 5;
  m.pattern = "DD-DD";
  EXPECT_EQ(Validate(m).message(), "model.layer_sizes: says 4 layers of 5; say each");
  m = Searched();
  m.sizes[1].heads.keys = 3;
  EXPECT_EQ(Validate(m).message(),
            "model.layer_sizes: 3 key and value heads do not divide 8 heads");
}

// By hand: attention 4·256² or, with 2 of 8 heads of keys, 2.5·256²; two matrices of the width;
// LayerNorms of 512.
TEST(LayerSizes, ParametersAndFlops) {
  const std::int64_t own = 4 * 256 * 256 + 2 * 256 * 1024 + 2 * 512;
  const std::int64_t narrow = 2 * 256 * 512 + 512;
  const std::int64_t last = 2 * 256 * 256 + 2 * 256 * 64 + 2 * 256 * 2048 + 2 * 512;
  EXPECT_EQ(Searched().parameters(), 2 * own + narrow + last + 1024 * 256 + 512);
  const double matrices = static_cast<double>(2 * own + narrow + last) - 7 * 512;
  EXPECT_DOUBLE_EQ(Searched().flops_per_sequence(128),
                   6.0 * 128 * (matrices + 3 * 64.0 * 2 * 256 + 1024.0 * 256));
}

// Of the causal square a model counts half, FLOPs of kernels count all.
TEST(LayerSizes, ProductsAreTheModels) {
  Plan p;
  p.batch.seq_len = 128;
  const graph::Graph g = Make(Searched(), p);
  double flops = 0;
  for (const graph::Call& call : g.programs[0].calls) {
    const graph::Block& block = g.blocks[call.block.index()];
    const bool forward = block.pass == graph::Pass::kForward && call.microbatch >= 0;
    if (forward) flops += call.repeat * BlockFlops(block);
  }
  const double masked = 2.0 * 3 * 128 * 64 * 2 * 256;
  EXPECT_NEAR((flops - masked) / (Searched().flops_per_sequence(128) / 3), 1, 1e-9);
}

TEST(LayerSizes, EveryPlanVerifies) {
  for (const Sharding sharding : {Sharding::kNone, Sharding::kZero3}) {
    Plan p;
    p.batch.seq_len = 128;
    p.parallel.dp = 2;
    p.batch.global_batch = 2;
    p.memory.sharding = sharding;
    if (sharding == Sharding::kNone) {
      p.parallel.tp = 2;
      p.parallel.pp = 2;
    }
    const Status valid = Validate(Searched(), p);
    ASSERT_TRUE(valid.ok()) << valid.message();
    const graph::Graph g = Make(Searched(), p);
    const Status status = graph::Verify(g, graph::VerifyLevel::kFull);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  Plan p;
  p.parallel.tp = 4;
  EXPECT_NE(Validate(Searched(), p).message().find("key and value heads of some layers"),
            std::string::npos);
}

// Layers that differ alone in size have no call together.
TEST(LayerSizes, EachSizeHasItsOwnCalls) {
  Plan p;
  p.batch.seq_len = 128;
  EXPECT_EQ(Passes(Make(Searched(), p), Make(Searched(), p).programs[0]),
            "F0/0 F0/0 F0/0 B0/0 B0/0 B0/0");
}

}  // namespace
}  // namespace orrery::workload
