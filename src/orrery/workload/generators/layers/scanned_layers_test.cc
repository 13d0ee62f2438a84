// What XLA makes of a model whose layers are one scanned loop: stacks, products in place of
// look-ups, biases that are no epilogues.
#include <gtest/gtest.h>

#include "orrery/graph/verify/verify.h"
#include "orrery/workload/generators/shape.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

// 512 tokens of 256 values in 2 bytes.
Plan Recomputed(RecomputeKeeps keeps) {
  Plan plan{.batch = {.seq_len = 512}};
  plan.memory.recompute = Recompute::kFull;
  plan.framework.recompute_keeps = keeps;
  return plan;
}

// What a copy reads and writes; 0: there is none.
std::int64_t Copied(const graph::Graph& g, std::string_view block) {
  std::int64_t bytes = 0;
  for (const graph::Kernel& kernel : FindBlock(g, block).kernels) {
    const auto* copy = std::get_if<graph::MemoryBound>(&kernel);
    if (copy == nullptr || copy->op != graph::MemoryOp::kCopy || copy->rows != 1) continue;
    EXPECT_EQ(copy->bytes_read, copy->bytes_written);
    bytes += copy->bytes_read;
  }
  return bytes;
}

// A layer's input, its queries, keys and values, what follows its projection and its fc1 go into
// stacks; all but fc1, which an activation function reads, come out of them.
TEST(ScannedLayers, KeptTensorsAreCopied) {
  const Model m = SmallGpt(1);
  const std::int64_t state = 512 * m.hidden * 2;
  Plan plan = Recomputed(RecomputeKeeps::kProducts);
  EXPECT_EQ(Copied(Make(m, plan), "layer.forward"), 0);
  plan.framework.stacked_layers = true;
  const graph::Graph g = Make(m, plan);
  EXPECT_TRUE(graph::Verify(g, graph::VerifyLevel::kFull).ok());
  EXPECT_EQ(Copied(g, "layer.forward"), 5 * state + 512 * m.ffn_hidden * 2);
  EXPECT_EQ(Copied(g, "layer.backward"), 5 * state);
  plan.framework.recompute_keeps = RecomputeKeeps::kLast;
  EXPECT_EQ(Copied(Make(m, plan), "layer.forward"), state);
  EXPECT_EQ(Copied(Make(m, plan), "layer.backward"), state);
}

// The kernel that adds the bias reads the stack.
TEST(ScannedLayers, BiasOfQueriesKeysAndValues) {
  const Model m = SmallGpt(1);
  Plan plan = Recomputed(RecomputeKeeps::kProducts);
  plan.framework.qkv_bias_kernel = true;
  const graph::Graph g = Make(m, plan);
  EXPECT_NE(Operations(g, FindBlock(g, "layer.forward")).find("qkv bias flash_attention"),
            std::string::npos);
  EXPECT_NE(Operations(g, FindBlock(g, "layer.backward")).find("layer_norm bias flash_attention"),
            std::string::npos);
  plan.framework.stacked_layers = true;
  EXPECT_EQ(Copied(Make(m, plan), "layer.backward"), 2 * 512 * m.hidden * 2);
  Model without = m;
  without.attention_bias = false;
  const graph::Graph none = Make(without, plan);
  EXPECT_EQ(Operations(none, FindBlock(none, "layer.forward")).find("bias flash_attention"),
            std::string::npos);
}

// One-hot rows are written once and stay for the table's gradient.
TEST(ScannedLayers, EmbeddingsAreProducts) {
  const Model m = SmallGpt(1);
  Plan plan{.batch = {.seq_len = 512}};
  const std::int64_t vocab = PaddedVocab(m.vocab, 1);
  const auto saved = [](const graph::Graph& g) {
    return SavedBytes(FindBlock(g, "embedding.forward"));
  };
  const std::int64_t looked_up = saved(Make(m, plan));
  plan.framework.embedding_product = true;
  const graph::Graph g = Make(m, plan);
  EXPECT_TRUE(graph::Verify(g, graph::VerifyLevel::kFull).ok());
  EXPECT_EQ(saved(g) - looked_up, 512 * vocab * 2);
  EXPECT_EQ(SavedBytes(FindBlock(g, "embedding.backward")), -saved(g));
  for (const char* block : {"embedding.forward", "embedding.backward"}) {
    EXPECT_EQ(BlockFlops(FindBlock(g, block)), 2.0 * 512 * m.hidden * vocab) << block;
  }
}

}  // namespace
}  // namespace orrery::workload
