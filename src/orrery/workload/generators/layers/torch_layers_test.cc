// Layers in plain PyTorch, eager and compiled, against fused kernels.
#include "orrery/workload/generators/layers/torch_layers.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "orrery/graph/verify/verify.h"
#include "orrery/workload/plan_features.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

constexpr std::int64_t kLayerTokens = 512;

// Llama-style: 4 query heads share 2 of keys and values.
Model SmallLlama() {
  Model m = SmallGpt(1);
  m.norm = Norm::kRmsNorm;
  m.position = Position::kRotary;
  m.activation = Activation::kSwiglu;
  m.attention_bias = m.mlp_bias = false;
  m.kv_heads = m.heads / 2;
  return m;
}
Plan With(TorchLayers layers) {
  Plan plan{.batch = {.seq_len = kLayerTokens}};
  plan.framework.torch_layers = layers;
  plan.framework.repeats_kv = true;
  return plan;
}

bool Blocks(const graph::Block& block, graph::Collective kind) {
  return std::any_of(block.comms.begin(), block.comms.end(),
                     [&](const graph::Comm& c) { return c.collective == kind && c.blocking; });
}
bool Has(const graph::Block& block, graph::Collective kind) {
  return std::any_of(block.comms.begin(), block.comms.end(),
                     [&](const graph::Comm& c) { return c.collective == kind; });
}

// Per element in bytes, two in the model's type: rotation 20 in place of 4 each way; keys and
// values are written for every query head and their gradients read back.
TEST(TorchLayers, CompiledLeavesRotationAndRepetition) {
  const Model m = SmallLlama();
  const graph::Graph fused = Make(m, With(TorchLayers::kFused));
  const graph::Graph compiled = Make(m, With(TorchLayers::kCompiled));
  EXPECT_TRUE(graph::Verify(compiled, graph::VerifyLevel::kFull).ok());
  const std::int64_t query = kLayerTokens * m.heads * m.head_dim;
  const std::int64_t more = 16 * (query + query / 2) + 2 * 2 * (query + query / 2);
  for (const std::string_view block : {"layer.forward", "layer.backward"}) {
    EXPECT_EQ(Traffic(compiled, block) - Traffic(fused, block), more) << block;
  }
  EXPECT_EQ(SavedBytes(FindBlock(compiled, "layer.forward")) -
                SavedBytes(FindBlock(fused, "layer.forward")),
            2 * 2 * query);
  Plan shared = With(TorchLayers::kCompiled);
  shared.framework.repeats_kv = false;
  EXPECT_EQ(SavedBytes(FindBlock(Make(m, shared), "layer.forward")),
            SavedBytes(FindBlock(fused, "layer.forward")));
}

// Beside the above: two norms of 36 and 92 bytes in place of 4 and 6, a gate of 10 and 18 in place
// of 6 and 10. Kept: 6 bytes an element in place of 4 a row, and silu's output.
TEST(TorchLayers, EagerRunsOperatorByOperator) {
  const Model m = SmallLlama();
  const graph::Graph compiled = Make(m, With(TorchLayers::kCompiled));
  const graph::Graph eager = Make(m, With(TorchLayers::kEager));
  EXPECT_TRUE(graph::Verify(eager, graph::VerifyLevel::kFull).ok());
  const auto more = [&](std::string_view block) {
    return Traffic(eager, block) - Traffic(compiled, block);
  };
  const std::int64_t state = kLayerTokens * m.hidden, gate = kLayerTokens * m.ffn_hidden;
  EXPECT_EQ(more("layer.forward"), 2 * (36 - 4) * state + (10 - 6) * gate);
  EXPECT_EQ(more("layer.backward"), 2 * (92 - 6) * state + (18 - 10) * gate);
  EXPECT_EQ(SavedBytes(FindBlock(eager, "layer.forward")) -
                SavedBytes(FindBlock(compiled, "layer.forward")),
            2 * (6 * state - 4 * kLayerTokens) + 2 * gate);
}

// LayerNorm and GeLU are single kernels of PyTorch's own.
TEST(TorchLayers, OtherNormsAndGatesStay) {
  EXPECT_EQ(Traffic(Make(SmallGpt(1), With(TorchLayers::kEager)), "layer.forward"),
            Traffic(Make(SmallGpt(1), With(TorchLayers::kFused)), "layer.forward"));
}

// Under sequence parallelism what was gathered is kept, and the input's gradient is reduced once
// the weight's is there.
TEST(TorchLayers, TensorParallelism) {
  Plan plan = With(TorchLayers::kFused);
  plan.parallel.tp = 2;
  plan.parallel.sequence_parallel = true;
  const graph::Graph fused = Make(SmallLlama(), plan);
  plan.framework.torch_layers = TorchLayers::kCompiled;
  const graph::Graph torch = Make(SmallLlama(), plan);
  const graph::Block& before = FindBlock(fused, "layer.backward");
  const graph::Block& after = FindBlock(torch, "layer.backward");
  EXPECT_FALSE(Blocks(before, graph::Collective::kReduceScatter));
  EXPECT_TRUE(Blocks(after, graph::Collective::kReduceScatter));
  EXPECT_EQ(std::count_if(
                after.comms.begin(), after.comms.end(),
                [](const graph::Comm& c) { return c.collective == graph::Collective::kAllGather; }),
            2);  // of the projection's and fc2's gradients
  Plan whole = plan;
  whole.parallel.sequence_parallel = false;
  EXPECT_TRUE(Blocks(FindBlock(Make(SmallLlama(), whole), "layer.backward"),
                     graph::Collective::kAllReduce));
  plan.framework.tp_comm_overlap = true;
  const graph::Graph async = Make(SmallLlama(), plan);
  EXPECT_FALSE(Has(FindBlock(async, "layer.forward"), graph::Collective::kReduceScatter));
  EXPECT_TRUE(Has(FindBlock(async, "layer.forward"), graph::Collective::kSend));
}

TEST(TorchLayers, AsyncTensorParallelismNeedsTheCompiler) {
  Plan plan = With(TorchLayers::kEager);
  plan.parallel.tp = 2;
  plan.parallel.sequence_parallel = plan.framework.tp_comm_overlap = true;
  EXPECT_EQ(CheckTpOverlap(SmallLlama(), plan).message(),
            "framework_options.tp_comm_overlap: async tensor parallelism is a pass of "
            "torch.compile; set framework_options.torch_layers: compiled or turn it off");
}

}  // namespace
}  // namespace orrery::workload
