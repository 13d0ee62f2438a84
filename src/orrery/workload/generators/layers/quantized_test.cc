// Frozen weights in 4 and 8 bits: bytes and kernels by hand.
#include "orrery/workload/generators/layers/quantized.h"

#include <gtest/gtest.h>

#include <functional>

#include "orrery/graph/verify/verify.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

// A layer of SmallGpt: 786,432 weights of linear layers (qkv 196,608, projection 65,536, fc1 and
// fc2 262,144), 3,328 others; the root: tables of 1,024 words and 512 positions, final norm.
constexpr std::int64_t kPackedWeights = 786'432, kUnpackedElements = 3'328,
                       kRootElements = 256 * (1024 + 512) + 512;
// Adapters of rank 8 (lora_test.cc).
constexpr std::int64_t kRankEight = 8'192 + 4'096 + 10'240 + 10'240;

Plan WithBase(BaseWeights base, bool twice = false) {
  return {.parallel = {.dp = 2},
          .batch = {.global_batch = 2, .seq_len = 128},
          .lora = {.rank = 8, .base = base, .double_quantization = twice}};
}

std::int64_t ForeverBytes(const graph::Graph& g, std::string_view block, std::string_view name) {
  std::int64_t sum = 0;
  for (const graph::Buffer& b : FindBlock(g, block).buffers) {
    if (b.lifetime == graph::Lifetime::kForever && g.name(b.name) == name) sum += b.bytes;
  }
  return sum;
}

// A memory-bound kernel of the layer's forward pass, the n-th of its name.
graph::MemoryBound StreamedKernel(const graph::Graph& g, std::string_view name, int n = 0) {
  const graph::Block& block = FindBlock(g, "layer.forward");
  for (const graph::Op& op : block.ops) {
    if (op.kind != graph::OpKind::kKernel || g.name(op.name) != name || n-- > 0) continue;
    return std::get<graph::MemoryBound>(block.kernels[op.index]);
  }
  ADD_FAILURE() << "no kernel " << name;
  return {};
}

// Half a byte and 4 bytes per 64; with double quantisation a byte per 64 and 4 per 16,384; in int8
// a byte and 4 bytes a row (768 + 256 + 1,024 + 256).
TEST(Quantized, MemoryOfWeightsAndScales) {
  const auto check = [](const Plan& plan, std::int64_t codes, std::int64_t scales) {
    const graph::Graph g = Make(SmallGpt(2), plan);
    EXPECT_TRUE(graph::Verify(g, graph::VerifyLevel::kFull).ok());
    EXPECT_EQ(ForeverBytes(g, "frozen", "frozen_parameters"),
              2 * (2 * kUnpackedElements + kRootElements));
    EXPECT_EQ(ForeverBytes(g, "frozen", "quantized_weights"), 2 * codes);
    EXPECT_EQ(ForeverBytes(g, "frozen", "quantization_scales"), 2 * scales);
  };
  check(WithBase(BaseWeights::kNf4), kPackedWeights / 2, kPackedWeights / 64 * 4);
  check(WithBase(BaseWeights::kFp4, true), kPackedWeights / 2,
        kPackedWeights / 64 + kPackedWeights / 16'384 * 4);
  check(WithBase(BaseWeights::kInt8), kPackedWeights, 4 * (768 + 256 + 1'024 + 256));
}

// Each of four products once forward and once for its input's gradient; adapters' have none.
TEST(Quantized, WeightsAreDequantizedBeforeTheirProducts) {
  graph::Graph g = Make(SmallGpt(2), WithBase(BaseWeights::kNf4));
  const std::string forward = Operations(g, FindBlock(g, "layer.forward"));
  EXPECT_NE(forward.find("dequantize qkv lora_a lora_b lora_scale lora_add flash_attention "
                         "dequantize projection lora_a"),
            std::string::npos)
      << forward;
  const std::string backward = Operations(g, FindBlock(g, "layer.backward"));
  EXPECT_NE(backward.find("dequantize fc1 lora_scale"), std::string::npos) << backward;
  EXPECT_EQ(GemmFlops(FindBlock(g, "layer.forward")), 2.0 * 128 * (kPackedWeights + kRankEight));
  const graph::MemoryBound qkv = StreamedKernel(g, "dequantize");
  EXPECT_EQ(qkv.bytes_read, 196'608 / 2 + 196'608 / 64 * 4);
  EXPECT_EQ(qkv.bytes_written, 196'608 * 2);
  // The output layer and the embedding are as they were.
  EXPECT_EQ(Operations(g, FindBlock(g, "head.forward")).find("dequantize"), std::string::npos);
  g = Make(SmallGpt(2), WithBase(BaseWeights::kNf4, true));
  EXPECT_NE(Operations(g, FindBlock(g, "layer.forward"))
                .find("scales.dequantize scales.offset dequantize qkv"),
            std::string::npos);
  EXPECT_EQ(StreamedKernel(g, "scales.dequantize").bytes_written, 196'608 / 64 * 4);
  // A dequantised weight lives around its product alone: what is kept for backward is the same.
  const auto kept = [](const graph::Graph& graph) {
    std::int64_t sum = 0;
    for (const graph::Buffer& b : FindBlock(graph, "layer.forward").buffers) {
      if (b.lifetime == graph::Lifetime::kMicrobatch) sum += b.bytes;
    }
    return sum;
  };
  EXPECT_EQ(kept(g), kept(Make(SmallGpt(2), WithBase(BaseWeights::kModelType))));
}

// LLM.int8: inputs are searched and quantised, products are in int8; backward weights are scaled.
TEST(Quantized, Int8) {
  const graph::Graph g = Make(SmallGpt(2), WithBase(BaseWeights::kInt8));
  const graph::Block& block = FindBlock(g, "layer.forward");
  EXPECT_NE(Operations(g, block).find(
                "input.cast outliers.absolute outliers.compare outliers.any sync outliers.columns "
                "sync input.quantize qkv output.dequantize output.cast lora_a"),
            std::string::npos)
      << Operations(g, block);
  int products = 0;
  for (const graph::Kernel& k : block.kernels) {
    const auto* gemm = std::get_if<graph::Gemm>(&k);
    products += gemm != nullptr && gemm->dtype == graph::DType::kInt8 ? 1 : 0;
  }
  EXPECT_EQ(products, 4);
  const std::string backward = Operations(g, FindBlock(g, "layer.backward"));
  EXPECT_NE(backward.find("weight.cast weight.scale fc2 "), std::string::npos) << backward;
}

// FSDP over two ranks: codes are gathered (half a byte an element) with what stays in 16 bits;
// bitsandbytes' scales lie whole on every rank, NF4Tensor's are gathered, too.
TEST(Quantized, ShardsArePacked) {
  Plan plan = WithBase(BaseWeights::kNf4, true);
  plan.memory.sharding = Sharding::kZero3;
  plan.framework.flat_parameters = false;
  constexpr std::int64_t kPacked = kPackedWeights / 2 + 2 * kUnpackedElements;
  constexpr std::int64_t kScales = kPackedWeights / 64 + kPackedWeights / 16'384 * 4;
  const auto gathered = [](const graph::Graph& g) {
    return Bytes(FindBlock(g, "layer.forward"), graph::Collective::kAllGather);
  };
  graph::Graph g = Make(SmallGpt(3), plan);
  EXPECT_TRUE(graph::Verify(g, graph::VerifyLevel::kFull).ok());
  EXPECT_EQ(gathered(g), kPacked + 2 * kRankEight);
  EXPECT_EQ(ForeverBytes(g, "frozen", "quantization_scales"), 3 * kScales);
  EXPECT_EQ(ForeverBytes(g, "static", "frozen_shards"), (3 * kPacked + 2 * kRootElements) / 2);
  plan.framework.nf4_tensor = true;
  g = Make(SmallGpt(3), plan);
  // bf16 for the scales' scales.
  EXPECT_EQ(gathered(g), kPacked + kScales - kPackedWeights / 16'384 * 2 + 2 * kRankEight);
  for (const graph::Block& block : g.blocks) EXPECT_NE(g.name(block.name), "frozen");
}

// torchao's tensor is unpacked by operators where nothing is compiled: 33 bytes an element and
// scales.
TEST(Quantized, Nf4TensorByOperators) {
  Plan plan = WithBase(BaseWeights::kNf4);
  plan.framework.nf4_tensor = true;
  plan.framework.torch_layers = TorchLayers::kEager;
  Model model = SmallGpt(2);
  model.norm = Norm::kRmsNorm;
  model.activation = Activation::kSwiglu;
  model.position = Position::kRotary;
  const graph::Graph g = Make(model, plan);
  EXPECT_TRUE(graph::Verify(g, graph::VerifyLevel::kFull).ok());
  std::int64_t bytes = 0;
  const graph::Block& block = FindBlock(g, "layer.forward");
  for (const graph::Op& op : block.ops) {
    if (op.kind != graph::OpKind::kKernel || !g.name(op.name).starts_with("unpack")) continue;
    const auto& k = std::get<graph::MemoryBound>(block.kernels[op.index]);
    bytes += k.bytes_read + k.bytes_written;
  }
  const std::int64_t weights = kPackedWeights + 256 * 1024;  // gate and up
  EXPECT_EQ(bytes, 33 * weights + weights / 64 * 2);
  plan.framework.torch_layers = TorchLayers::kCompiled;
  const graph::Graph compiled = Make(model, plan);
  EXPECT_EQ(Operations(compiled, FindBlock(compiled, "layer.forward")).find("unpack"),
            std::string::npos);
}

TEST(Quantized, Refusals) {
  const auto refusal = [](const std::function<void(Plan*)>& change) {
    Plan plan = WithBase(BaseWeights::kNf4);
    change(&plan);
    return Validate(SmallGpt(2), plan).message();
  };
  EXPECT_EQ(refusal([](Plan*) {}), "");
  EXPECT_TRUE(refusal([](Plan* p) {
                p->lora.rank = 0;
              }).starts_with("training.base_quantization: weights that are trained"));
  EXPECT_TRUE(refusal([](Plan* p) {
                p->lora.base = BaseWeights::kInt8;
                p->memory.sharding = Sharding::kZero3;
                p->framework.flat_parameters = false;
              }).starts_with("training.base_quantization: int8 weights"));
  EXPECT_TRUE(refusal([](Plan* p) {
                p->lora.base = BaseWeights::kInt8;
                p->lora.double_quantization = true;
              }).starts_with("training.double_quantization: is of the scales of 4-bit"));
  EXPECT_TRUE(refusal([](Plan* p) {
                p->lora.base = BaseWeights::kFp4;
                p->framework.nf4_tensor = true;
              }).starts_with("framework_options.nf4_tensor: torchao's"));
  EXPECT_TRUE(refusal([](Plan* p) {
                p->precision.low = LowPrecision::kCurrent;
              }).starts_with("training.base_quantization: weights are multiplied"));
}

}  // namespace
}  // namespace orrery::workload
