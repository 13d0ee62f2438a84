// Experts one after the other, and whole on every rank of DistributedDataParallel.
#include <gmock/gmock.h>

#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

using graph::OpKind;
using testing::HasSubstr;

// h 256, 8 experts of width 512, two a token.
Model Routed(int layers) {
  Model m = SmallGpt(layers);
  m.norm = Norm::kRmsNorm;
  m.activation = Activation::kSwiglu;
  m.attention_bias = m.mlp_bias = false;
  m.experts = {.count = 8, .top_k = 2, .ffn_hidden = 512};
  return m;
}

Plan Looped(int dp, bool loop) {
  Plan p = Ddp(dp);
  p.framework.torch_layers = TorchLayers::kEager;
  p.framework.expert_loop = loop;
  return p;
}

std::size_t Count(const std::string& text, const std::string& word) {
  std::size_t n = 0;
  for (std::size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += word.size()) ++n;
  return n;
}

std::size_t Syncs(const graph::Block& block) {
  return static_cast<std::size_t>(
      std::count_if(block.ops.begin(), block.ops.end(),
                    [](const graph::Op& op) { return op.kind == OpKind::kHostSync; }));
}

TEST(ExpertLoop, AWholeMlpAnExpertAndTheHostReadsItsTokens) {
  const graph::Graph g = Make(Routed(1), Looped(1, true));
  const graph::Block& forward = FindBlock(g, "layer.forward");
  const std::string ops = Operations(g, forward);
  EXPECT_EQ(Count(ops, "where"), 8u);
  EXPECT_EQ(Count(ops, " fc1"), 8u * 2);  // gate and up
  EXPECT_EQ(Count(ops, " fc2"), 8u);
  EXPECT_EQ(Count(ops, "index_add"), 8u);
  EXPECT_EQ(Syncs(forward), 9u);  // which experts, then each one's tokens
  // The same products as grouped ones: 2 · 3 · 256 · 512 a row, 128 · 2 rows.
  const graph::Graph grouped = Make(Routed(1), Looped(1, false));
  EXPECT_DOUBLE_EQ(GemmFlops(forward), GemmFlops(FindBlock(grouped, "layer.forward")));
  EXPECT_DOUBLE_EQ(GemmFlops(FindBlock(g, "layer.backward")),
                   GemmFlops(FindBlock(grouped, "layer.backward")));
}

// Replicated like any other parameter: all gradients are reduced over all ranks.
TEST(ExpertLoop, DdpReducesExpertsWithTheRest) {
  for (const bool loop : {false, true}) {
    const Model m = Routed(2);
    const graph::Graph g = Make(m, Looped(4, loop));
    std::int64_t reduced = 0, kept = 0;
    for (const graph::Call& call : g.programs.front().calls) {
      const graph::Block& block = g.blocks[call.block.index()];
      for (const graph::Comm& comm : block.comms) {
        if (comm.collective != graph::Collective::kAllReduce || comm.bytes.value < 1024) continue;
        EXPECT_EQ(comm.group, graph::GroupSlot::kDp);
        reduced += comm.bytes.value;
      }
    }
    const std::int64_t n = m.parameters() + 24 * 256;  // the vocabulary is padded to 1,024
    EXPECT_EQ(reduced, n * 4);
    for (const graph::Buffer& b : FindBlock(g, "static").buffers) kept += b.bytes;
    EXPECT_EQ(kept, n * (4 + 4 + 8));  // parameters, buckets, moments
  }
}

// DeepSpeed's ZeRO-2 holds every expert, too: a rank updates 1/n of all parameters.
TEST(ExpertLoop, DeepSpeedZero2GathersExpertsWithTheRest) {
  Plan p = Looped(4, false);
  p.precision.type = Precision::kBf16;
  p.memory.sharding = Sharding::kZero2;
  p.framework.reducer = Reducer::kDeepSpeed;
  p.framework.grad_reduce_fp32 = false;
  p.framework.overlap_param_gather = false;
  p.framework.bucket_elements = 500'000;
  const Model m = Routed(2);
  const graph::Graph g = Make(m, p);
  std::int64_t gathered = 0;
  for (const graph::Call& call : g.programs.front().calls) {
    for (const graph::Comm& comm : g.blocks[call.block.index()].comms) {
      if (comm.collective != graph::Collective::kAllGather) continue;
      EXPECT_EQ(comm.group, graph::GroupSlot::kDp);
      gathered += comm.bytes.value;
    }
  }
  EXPECT_GE(gathered, m.parameters() * 2);
  EXPECT_LT(gathered, (m.parameters() + 24 * 256 + 80 * 128) * 2);  // vocabulary and padding
  p.parallel.ep = 4;
  EXPECT_THAT(Validate(m, p).message(), HasSubstr("every one with all experts"));
}

TEST(ExpertLoop, RefusesWhatNoLoopDoes) {
  const auto error = [](const Model& m, const Plan& p) { return Validate(m, p).message(); };
  Plan p = Looped(4, true);
  EXPECT_THAT(error(SmallGpt(1), p), HasSubstr("has no experts"));
  p.framework.torch_layers = TorchLayers::kFused;
  EXPECT_THAT(error(Routed(1), p), HasSubstr("is of eager layers"));
  p = Looped(4, true);
  p.framework.reducer = Reducer::kBuffer;
  p.parallel.ep = 4;
  EXPECT_THAT(error(Routed(1), p), HasSubstr("every rank holds all experts whole"));
}

}  // namespace
}  // namespace orrery::workload
