// PEFT's prepare_model_for_kbit_training: bytes by hand.
#include "orrery/workload/generators/layers/prepared_base.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "orrery/graph/verify/verify.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

using testing::HasSubstr;

Model TwoLayers() {
  Model m = SmallGpt(2);
  m.norm = Norm::kRmsNorm;
  m.activation = Activation::kSwiglu;
  m.position = Position::kRotary;
  m.tied_embeddings = m.attention_bias = m.mlp_bias = false;
  return m;
}

Plan OnFourBits(bool prepared) {
  Plan p = Ddp(1);
  p.precision.type = Precision::kBf16;
  p.framework.attention = AttentionBackend::kFlash2;
  p.framework.torch_layers = TorchLayers::kEager;
  p.framework.torch_loss = p.framework.drops_logits = true;
  p.framework.prepared_base = prepared;
  p.memory.recompute = Recompute::kFull;
  p.lora = {.rank = 8, .base = BaseWeights::kNf4};
  return p;
}

std::int64_t BytesOf(const graph::Graph& g, std::string_view block, std::string_view buffer) {
  for (const graph::Buffer& b : FindBlock(g, block).buffers) {
    if (g.name(b.name) == buffer) return b.bytes;
  }
  return 0;
}

// 128 tokens of 256 values, tables and output layer of 1,024 words. What is frozen and not
// quantised takes 4 bytes in place of 2, a layer's output too; logits stay; the output layer's
// weight is there in 2 bytes besides from the head's forward pass to its backward one.
TEST(PreparedBase, ActivationsAndWhatIsNotQuantised) {
  const graph::Graph bf16 = Make(TwoLayers(), OnFourBits(false));
  const graph::Graph fp32 = Make(TwoLayers(), OnFourBits(true));
  EXPECT_TRUE(graph::Verify(fp32, graph::VerifyLevel::kFull).ok());
  EXPECT_EQ(BytesOf(fp32, "frozen", "frozen_parameters"),
            2 * BytesOf(bf16, "frozen", "frozen_parameters"));
  EXPECT_EQ(BytesOf(fp32, "frozen", "quantized_weights"),
            BytesOf(bf16, "frozen", "quantized_weights"));
  EXPECT_EQ(BytesOf(bf16, "layer.forward", "output"), 128 * 256 * 2);
  EXPECT_EQ(BytesOf(fp32, "layer.forward", "output"), 128 * 256 * 4);
  EXPECT_EQ(BytesOf(fp32, "head.forward", "logits"), BytesOf(bf16, "head.forward", "logits"));
  EXPECT_EQ(BytesOf(bf16, "head.forward", "output_layer.weight"), 0);
  EXPECT_EQ(BytesOf(fp32, "head.forward", "output_layer.weight"), 1024 * 256 * 2);
  EXPECT_EQ(SavedBytes(FindBlock(fp32, "head.backward")),
            -SavedBytes(FindBlock(fp32, "head.forward")));
  // One weight at a time is dequantised to what products read.
  EXPECT_EQ(BytesOf(fp32, "layer.forward", "weight.dequantized"),
            BytesOf(bf16, "layer.forward", "weight.dequantized"));
}

// Products run in 16 bits, with casts of input and output around each; LLM.int8's backward in fp32.
TEST(PreparedBase, TypesOfProducts) {
  const auto wide = [](const graph::Graph& g, std::string_view block) {
    int n = 0;
    for (const graph::Kernel& kernel : FindBlock(g, block).kernels) {
      const auto* gemm = std::get_if<graph::Gemm>(&kernel);
      n += gemm != nullptr && gemm->dtype == graph::DType::kFp32 ? 1 : 0;
    }
    return n;
  };
  const auto casts = [](const graph::Graph& g) {
    int n = 0;
    for (const graph::Op& op : FindBlock(g, "layer.forward").ops) {
      const std::string& name = g.name(op.name);
      n += name == "input.cast" || name == "output.cast" || name == "attention.cast" ? 1 : 0;
    }
    return n;
  };
  Plan p = OnFourBits(true);
  const graph::Graph four = Make(TwoLayers(), p);
  EXPECT_EQ(wide(four, "layer.backward"), 0);
  EXPECT_EQ(casts(four), 2 * 4 + 1);
  EXPECT_EQ(casts(Make(TwoLayers(), OnFourBits(false))), 0);
  p.lora.base = BaseWeights::kInt8;
  const graph::Graph eight = Make(TwoLayers(), p);
  EXPECT_EQ(wide(eight, "layer.forward"), 0);
  EXPECT_EQ(wide(eight, "layer.backward"), 4);
}

TEST(PreparedBase, WhoHasIt) {
  Plan p = OnFourBits(true);
  p.lora.base = BaseWeights::kModelType;
  EXPECT_THAT(Validate(TwoLayers(), p).message(), HasSubstr("of a quantised model"));
  p = OnFourBits(true);
  p.framework.reducer = Reducer::kBuffer;
  EXPECT_THAT(Validate(TwoLayers(), p).message(), HasSubstr("under autocast"));
  p = OnFourBits(true);
  p.precision.type = Precision::kFp32;
  p.framework.attention = AttentionBackend::kUnfused;
  EXPECT_THAT(Validate(TwoLayers(), p).message(), HasSubstr("prepared_base"));
}

}  // namespace
}  // namespace orrery::workload
