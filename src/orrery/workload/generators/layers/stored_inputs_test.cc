#include "orrery/workload/generators/layers/stored_inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "orrery/graph/verify/verify.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

using testing::HasSubstr;

Model LlamaLayer() {
  Model m = SmallGpt(1);
  m.norm = Norm::kRmsNorm;
  m.activation = Activation::kSwiglu;
  m.position = Position::kRotary;
  m.tied_embeddings = m.attention_bias = m.mlp_bias = false;
  return m;
}

Model DeepSeekV3(bool experts) {
  Model m = LlamaLayer();
  m.hidden = 7168;
  m.heads = m.kv_heads = 128;
  m.head_dim = 192;
  m.ffn_hidden = 18432;
  m.latent = {.q_rank = 1536, .kv_rank = 512, .nope_dim = 128, .rope_dim = 64, .v_dim = 128};
  if (experts) {
    m.experts = {.count = 256, .top_k = 8, .ffn_hidden = 2048, .shared_ffn_hidden = 2048};
  }
  return m;
}

Plan PlanOf(std::int64_t tokens) {
  Plan p;
  p.batch.seq_len = tokens;
  p.framework.attention = AttentionBackend::kFlash2;
  return p;
}

std::int64_t Saved(const Model& m, const Plan& p) {
  const graph::Graph g = Make(m, p);
  EXPECT_TRUE(graph::Verify(g, graph::VerifyLevel::kFull).ok());
  const std::int64_t saved = SavedBytes(FindBlock(g, "layer.forward"));
  EXPECT_EQ(SavedBytes(FindBlock(g, "layer.backward")), -saved);
  return saved;
}

// 512 tokens with two halves of 1,024: a byte in place of two, for a cast of 2 + 1 bytes each way.
TEST(StoredInputs, SwigluInFp8) {
  const Model m = LlamaLayer();
  Plan p = PlanOf(512);
  const std::int64_t wide = Saved(m, p);
  const graph::Graph before = Make(m, p);
  p.framework.fp8_activation_input = true;
  EXPECT_EQ(wide - Saved(m, p), 512 * 2 * 1024);
  const graph::Graph after = Make(m, p);
  for (const char* block : {"layer.forward", "layer.backward"}) {
    EXPECT_EQ(Traffic(after, block) - Traffic(before, block), 512 * 2 * 1024 * 3) << block;
  }
  p.memory.recompute = Recompute::kSelective;
  p.memory.recompute_modules = kRecomputeMlp;
  const std::int64_t again = Saved(m, p);
  p.framework.fp8_activation_input = false;
  EXPECT_EQ(Saved(m, p), again);  // kept from nowhere to anywhere
}

// 512 tokens of 8 heads of 32 values in 12 of 16 bits.
TEST(StoredInputs, ContextInTwelveBits) {
  Plan p = PlanOf(512);
  const std::int64_t wide = Saved(LlamaLayer(), p);
  p.framework.packed_context = true;
  EXPECT_EQ(wide - Saved(LlamaLayer(), p), 512 * 256 / 2);
}

// A layer of DeepSeek-V3 with 256 experts as its report keeps it (section 3.3.3), bytes a token; a
// value in fp8 with its scale is 33 bits of 32. Norms, up-projections and SwiGLUs of routed experts
// run again.
TEST(StoredInputs, LayersOfDeepSeekV3) {
  Plan p = PlanOf(1024);
  p.precision.low = LowPrecision::kBlockwise;
  p.memory.recompute = Recompute::kSelective;
  p.memory.recompute_modules = *ParseRecomputeModules("layernorm+latent_norm+mla_up_proj+moe_act");
  p.framework.fp8_activation_input = p.framework.packed_context = true;
  const std::int64_t residuals = 2 * 7168 * 2;                  // its input, and between its parts
  const std::int64_t compressed = (1536 + 512 + 64) * 2;        // before their norms
  const std::int64_t context = 128 * 128 * 3 / 2 + 128 * 4;     // and the statistics of its rows
  const std::int64_t router = 256 * 5;                          // scores and choices
  const std::int64_t routed = 8 * (7168 * 33 / 32 + 2 * 2048);  // inputs of both products
  const std::int64_t shared = 2 * 2048 + 2048 * 33 / 32;
  EXPECT_EQ(Saved(DeepSeekV3(true), p),
            1024 * (residuals + compressed + context + router + routed + shared));
  EXPECT_EQ(residuals + compressed + context + router + routed + shared, 157'376);
  const std::int64_t dense = 2 * 18432 + 18432 * 33 / 32;
  EXPECT_EQ(Saved(DeepSeekV3(false), p), 1024 * (residuals + compressed + context + dense));
  // In bf16 without recompute, as Megatron does: norms' outputs and statistics, queries, keys and
  // the up-projection, whole rows beside the others.
  const std::int64_t norms = 2 * (7168 * 2 + 4), up = 128 * (2 * 192 + 128 + 128) * 2;
  EXPECT_EQ(Saved(DeepSeekV3(true), PlanOf(1024)),
            1024 * (residuals + norms + 2 * compressed + up + 128 * (128 * 2 + 4) + router +
                    8 * (7168 + 3 * 2048) * 2 + 3 * 2048 * 2));
}

TEST(StoredInputs, WhoHasThem) {
  Plan p = PlanOf(512);
  p.framework.fp8_activation_input = true;
  EXPECT_THAT(Validate(SmallGpt(1), p).message(), HasSubstr("only the fused SwiGLU"));
  p.framework.recompute_keeps = RecomputeKeeps::kLast;
  EXPECT_THAT(Validate(LlamaLayer(), p).message(), HasSubstr("keep tensors as they were made"));
  p.framework = {};
  p.framework.torch_layers = TorchLayers::kEager;
  p.framework.packed_context = true;
  EXPECT_THAT(Validate(LlamaLayer(), p).message(), HasSubstr("fused kernels"));
}

// What a put-off weight gradient waits with is as its product reads it: 33 bits of 64 in fp8.
TEST(SplitBackward, OperandsInTheTypeOfTheirProduct) {
  Model m = LlamaLayer();
  m.layers = 2;
  Plan p = PlanOf(512);
  p.parallel.pp = 2;
  p.parallel.schedule = Schedule::kZbH1;
  p.batch.global_batch = 4;
  const auto operands = [&] {
    const graph::Graph g = Make(m, p);
    std::int64_t bytes = 0;
    for (const graph::Buffer& b : FindBlock(g, "layer.backward").buffers) {
      if (b.name.valid() && g.name(b.name) == "weight_gradient.operands") bytes = b.bytes;
    }
    return bytes;
  };
  // Inputs and outputs of qkv, projection, fc1 and fc2.
  const std::int64_t values = 512 * ((256 + 768) + (256 + 256) + (256 + 2048) + (1024 + 256));
  EXPECT_EQ(operands(), 2 * values);
  p.precision.low = LowPrecision::kBlockwise;
  EXPECT_EQ(operands(), values * 33 / 32);
}

}  // namespace
}  // namespace orrery::workload
