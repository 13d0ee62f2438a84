// Prediction of further tokens: parameters, FLOPs and calls by hand.
#include "orrery/workload/generators/layers/mtp.h"

#include <gtest/gtest.h>

#include "orrery/graph/verify/verify.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

Model Predicting(std::int64_t depths, bool repeats) {
  Model m = SmallGpt(4);
  m.norm = Norm::kRmsNorm;
  m.tied_embeddings = m.attention_bias = m.mlp_bias = false;
  m.mtp_layers = depths;
  m.mtp_repeats = repeats;
  return m;
}

Plan Staged() {
  Plan p;
  p.parallel.pp = 2;
  p.parallel.dp = 1;
  p.batch.global_batch = 2;
  p.batch.seq_len = 512;
  return p;
}

// A module: a layer of 4·256² + 2·256·1024 + 2·256, the projection of 2·256², three norms of 256.
TEST(Mtp, Parameters) {
  const std::int64_t without = Predicting(0, false).parameters();
  const std::int64_t module = 4 * 256 * 256 + 2 * 256 * 1024 + 2 * 256 + 2 * 256 * 256 + 3 * 256;
  EXPECT_EQ(Predicting(1, false).parameters(), without + module);
  EXPECT_EQ(Predicting(2, false).parameters(), without + 2 * module);
  EXPECT_EQ(Predicting(2, true).parameters(), without + module);
  // DeepSeek-V3's module: 11.5 billion of its own beside the shared 671 (report, section 4.2).
  Model v3 = *FindModel("deepseek-v3");
  const auto main = static_cast<double>(v3.parameters());
  v3.mtp_layers = 1;
  EXPECT_NEAR((static_cast<double>(v3.parameters()) - main) / 1e9, 11.6, 0.2);
}

// Each depth adds, forward, a projection (2·512·256·512), a layer and the output layer.
TEST(Mtp, FlopsOfAStage) {
  const auto flops = [](std::int64_t depths, bool repeats) {
    const graph::Graph g = Make(Predicting(depths, repeats), Staged());
    EXPECT_TRUE(graph::Verify(g).ok());
    double sum = 0;
    for (const graph::Call& call : g.programs[1].calls) {
      const graph::Block& block = g.blocks[call.block.index()];
      if (block.pass == graph::Pass::kForward && call.microbatch == 0) {
        sum += call.repeat * BlockFlops(block);
      }
    }
    return sum;
  };
  const graph::Graph g = Make(Predicting(0, false), Staged());
  const double layer = BlockFlops(FindBlock(g, "layer.forward"));
  const double head = BlockFlops(FindBlock(g, "head.forward"));
  const double join = 2.0 * 512 * 256 * 512;
  EXPECT_DOUBLE_EQ(flops(1, false) - flops(0, false), layer + head + join);
  EXPECT_DOUBLE_EQ(flops(2, false) - flops(0, false), 2 * (layer + head + join));
  EXPECT_DOUBLE_EQ(flops(2, true), flops(2, false));
}

// The first stage does not know of it.
TEST(Mtp, OnlyTheLastStage) {
  const graph::Graph with = Make(Predicting(1, false), Staged());
  const graph::Graph without = Make(Predicting(0, false), Staged());
  EXPECT_EQ(with.programs[0].calls.size(), without.programs[0].calls.size());
  EXPECT_GT(with.programs[1].calls.size(), without.programs[1].calls.size());
}

TEST(Mtp, RefusedWhereNotBuilt) {
  Plan p = Staged();
  p.parallel.pp = 1;
  p.parallel.dp = 2;
  p.memory.sharding = Sharding::kZero3;
  EXPECT_FALSE(Validate(Predicting(1, false), p).ok());
}

}  // namespace
}  // namespace orrery::workload
