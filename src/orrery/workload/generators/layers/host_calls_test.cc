// Calls of transformers' modules: sums as PyTorch's dispatcher counts them, times by hand.
#include "orrery/workload/generators/layers/host_calls.h"

#include <gtest/gtest.h>

#include "orrery/constants/constants.h"
#include "orrery/workload/host_work.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

using graph::Pass;

Shape CountedLlama() {
  Shape s;
  s.norm = Norm::kRmsNorm;
  s.activation = Activation::kSwiglu;
  s.qkv_bias = s.projection_bias = s.mlp_bias = false;
  s.hidden = 256, s.heads = 8, s.kv_heads = 2, s.head_dim = 32, s.ffn = 512;
  s.framework.separate_adapters = true;
  return s;
}

void ExpectCalls(const HostCalls& c, double operators, double views, double modules,
                 double functions) {
  EXPECT_NEAR(c.operators, operators, 0.1);
  EXPECT_NEAR(c.views, views, 0.1);
  EXPECT_NEAR(c.modules, modules, 0.1);
  EXPECT_NEAR(c.functions, functions, 0.1);
}

// Rows `llama h1024 l8` and `l16` of data/measured/h200/host_steps.csv: (641 - 337) / 8 operators
// forward. Backward a GPU has one more, (1159 - 591) / 8, than the CPU that counted parts.
TEST(HostCalls, OfALayerOfLlama) {
  const Shape full = CountedLlama();
  ExpectCalls(LayerCalls(full, Pass::kForward), 38, 38, 13, 0);
  ExpectCalls(LayerCalls(full, Pass::kBackward), 70, 70, 0, 0);
}

// Rows with LoRA: (1089 - 561) / 8 forward, (1625 - 809) / 8 backward.
TEST(HostCalls, OfAdapters) {
  Shape lora = CountedLlama();
  lora.lora_rank = 16;
  lora.lora_targets = kLoraAll;
  ExpectCalls(LayerCalls(lora, Pass::kForward), 66, 80, 41, 0);
  ExpectCalls(LayerCalls(lora, Pass::kBackward), 101, 136, 0, 0);
}

// Seven products: an operator more and a view less each, a function each pass; two small operators
// of double quantisation backward.
TEST(HostCalls, OfQuantisedProducts) {
  Shape s = CountedLlama();
  s.lora_rank = 16;
  s.lora_targets = kLoraAll;
  s.base_weights = BaseWeights::kNf4;
  s.double_quantization = true;
  ExpectCalls(LayerCalls(s, Pass::kForward), 66 + 7, 80 - 7 * 1.05, 41, 7);
  ExpectCalls(LayerCalls(s, Pass::kBackward), 101 + 7 + 14, 136 - 7, 0, 7);
}

// Recomputed, the forward pass stands in the backward one, and checkpoints detach what they keep.
TEST(HostCalls, OfARecomputedLayer) {
  Shape s = CountedLlama();
  s.recompute = Recompute::kFull;
  ExpectCalls(LayerCalls(s, Pass::kForward), 38, 38, 13, 0);
  ExpectCalls(LayerCalls(s, Pass::kBackward), 70 + 38 - 2, 70 + 38 + 59, 13, 0);
}

// What a layer's kernels take is left out: 38 operators less the kernels, 38 views, 13 modules.
TEST(HostCalls, TakeTimeBesideTheKernels) {
  Model model = SmallGpt(2);
  model.norm = Norm::kRmsNorm;
  model.activation = Activation::kSwiglu;
  model.position = Position::kRotary;
  model.attention_bias = model.mlp_bias = false;
  Plan plan = Ddp(1);
  plan.precision.type = Precision::kBf16;
  plan.framework.model_type_states = true;  // no casts of weights
  plan.framework.attention = AttentionBackend::kFlash2;
  plan.framework.torch_layers = TorchLayers::kEager;
  const auto calls = [&](bool counted) {
    plan.framework.transformers_modules = counted;
    plan.framework.host = HostOf(HostEra::kFsdp, plan, constants::Set());
    const graph::Graph g = Make(model, plan);
    const graph::Block& block = FindBlock(g, "layer.forward");
    const double python = constants::Set()[constants::kHostPython];
    std::int64_t ps = 0;
    for (const graph::Op& op : block.ops) {
      if (op.kind == graph::OpKind::kHost && g.name(op.name) == "calls")
        ps += block.host_ps[op.index];
    }
    const double kernels = static_cast<double>(block.kernels.size());
    const double expected = (38 - kernels) * 8 * python + 38 * 1.0 + 13 * 2.7 * python;
    EXPECT_NEAR(static_cast<double>(ps) / 1e6, counted ? expected : 0, 0.1);
    return ps;
  };
  EXPECT_GT(calls(true), 0);
  EXPECT_EQ(calls(false), 0);
}

}  // namespace
}  // namespace orrery::workload
