// Blocks of keys: parameters, kernels and pairs by hand.
#include "orrery/workload/generators/layers/block_index.h"

#include <gtest/gtest.h>

#include "orrery/graph/verify/verify.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

// Two layers of 256; the second has experts and an indexer of 2 heads of 32, which keeps 2 blocks
// of 16 keys.
Model WithBlocks() {
  Model m = SmallGpt(2);
  m.norm = Norm::kRmsNorm;
  m.activation = Activation::kSwiglu;
  m.position = Position::kRotary;
  m.attention_bias = m.mlp_bias = false;
  m.experts = {.count = 4, .top_k = 2, .ffn_hidden = 128, .first_dense = 1};
  m.block_index = {.heads = 2, .dim = 32, .size = 16, .topk = 2};
  return m;
}

TEST(BlockIndex, Parameters) {
  const Model with = WithBlocks();
  Model without = with;
  without.block_index = {};
  EXPECT_EQ(with.parameters() - without.parameters(), 256 * 3 * 32 + 2 * 32);
  Plan plan{.batch = {.global_batch = 1, .seq_len = 128}};
  const Shape s = MakeShape(with, plan);
  const auto sum = [&](std::int64_t layer) {
    std::int64_t n = 0;
    for (const std::int64_t t : BlockIndexParameters(OfKind(s, with.layer_kind(layer)))) n += t;
    return n;
  };
  EXPECT_EQ(sum(0), 0);
  EXPECT_EQ(sum(1), 256 * 3 * 32 + 2 * 32);
}

// Of 128 keys a query sees 32 at most; the layer without experts sees all.
TEST(BlockIndex, AttentionSeesTheBlocks) {
  const Plan plan{.batch = {.global_batch = 1, .seq_len = 128}};
  const graph::Graph g = Make(WithBlocks(), plan);
  EXPECT_TRUE(graph::Verify(g, graph::VerifyLevel::kFull).ok());
  int windows = 0, all = 0;
  for (const graph::Block& block : g.blocks) {
    if (!g.name(block.name).starts_with("layer.forward")) continue;
    for (const graph::Kernel& k : block.kernels) {
      const auto* attention = std::get_if<graph::Attention>(&k);
      if (attention == nullptr) continue;
      windows += attention->window == 32 ? 1 : 0;
      all += attention->window == 0 ? 1 : 0;
    }
    const std::string operations = Operations(g, block);
    if (operations.find("index_q") == std::string::npos) continue;
    EXPECT_NE(operations.find("index_q index_norm index_rotary index_k index_norm index_rotary "
                              "index_scores block_maximum topk flash_attention"),
              std::string::npos)
        << operations;
  }
  EXPECT_EQ(windows, 1);
  EXPECT_EQ(all, 1);
}

}  // namespace
}  // namespace orrery::workload
