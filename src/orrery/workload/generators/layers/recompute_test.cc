#include <gtest/gtest.h>

#include "orrery/graph/verify/verify.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

Model Latents() {
  Model m = SmallGpt(2);
  m.norm = Norm::kRmsNorm;
  m.activation = Activation::kSwiglu;
  m.position = Position::kRotary;
  m.tied_embeddings = m.attention_bias = m.mlp_bias = false;
  m.latent = {.q_rank = 64, .kv_rank = 32, .nope_dim = 32, .rope_dim = 16, .v_dim = 32};
  m.head_dim = 48;
  m.experts = {.count = 8, .top_k = 2, .ffn_hidden = 128, .first_dense = 1};
  return m;
}

Plan Selective(std::string_view modules) {
  Plan p;
  p.batch.global_batch = 1;
  p.batch.seq_len = 512;
  p.memory.recompute = Recompute::kSelective;
  p.memory.recompute_modules = *ParseRecomputeModules(modules);
  return p;
}

struct Cost {
  double flops = 0;          // of backward
  std::int64_t kernels = 0;  // of backward
  std::int64_t saved = 0;    // by forward
};
// Of the layer with experts, or the dense one.
Cost CostOf(std::string_view modules, bool experts) {
  Model m = Latents();
  m.layers = 1;
  m.experts.first_dense = experts ? 0 : 1;
  const graph::Graph g = Make(m, Selective(modules));
  const graph::Block& backward = FindBlock(g, "layer.backward");
  return {BlockFlops(backward), static_cast<std::int64_t>(backward.kernels.size()),
          SavedBytes(FindBlock(g, "layer.forward"))};
}

// 512 tokens, hidden 256, top 2 of 8 experts of width 128, two bytes an element.
TEST(RecomputeModules, WhatRunsAgainAndWhatIsNotKept) {
  const Cost none = CostOf("", true), dense = CostOf("", false);
  // Experts: 3 products of 1,024 rows × 256 × 128, the router's 512 × 8 × 256.
  const Cost moe = CostOf("moe", true);
  EXPECT_EQ(moe.flops - none.flops, 2.0 * 1024 * 256 * 128 * 3 + 2.0 * 512 * 8 * 256);
  // Scores of 5 bytes, inputs, both halves of fc1 and the activation.
  EXPECT_EQ(none.saved - moe.saved, 512 * 8 * 5 + 2 * 1024 * (256 + 2 * 128 + 128));
  const Cost act = CostOf("moe_act", true);
  EXPECT_EQ(act.flops, none.flops);
  EXPECT_EQ(act.kernels - none.kernels, 1);
  EXPECT_EQ(none.saved - act.saved, 2 * 1024 * 128);
  const Cost norms = CostOf("layernorm", true);
  EXPECT_EQ(norms.kernels - none.kernels, 2);
  EXPECT_EQ(none.saved - norms.saved, 2 * (2 * 512 * 256 + 4 * 512));
  // Up-projections: 512 · (64 · 8·48 + 32 · 8·(32 + 32)).
  const Cost up = CostOf("mla_up_proj", true);
  EXPECT_EQ(up.flops - none.flops, 2.0 * 512 * (64 * 8 * 48 + 32 * 8 * 64));
  EXPECT_EQ(none.saved - up.saved, 2 * 512 * 8 * (2 * 48 + 64));
  // Norms of 64 and 32 compressed values; beside them the rotary 16 are kept twice, too.
  const Cost latents = CostOf("latent_norm", true);
  EXPECT_EQ(latents.flops, none.flops);
  EXPECT_EQ(latents.kernels - none.kernels, 2);
  EXPECT_EQ(none.saved - latents.saved, 2 * 512 * (64 + 32 + 16));
  // The dense layer's feed-forward: 3 products of 512 × 256 × 1,024.
  const Cost mlp = CostOf("mlp", false);
  EXPECT_EQ(mlp.flops - dense.flops, 2.0 * 512 * 256 * 1024 * 3);
  EXPECT_EQ(dense.saved - mlp.saved, 2 * 512 * 3 * 1024);
  EXPECT_EQ(CostOf("mlp", true).flops, none.flops);
}

TEST(RecomputeModules, EverySetVerifies) {
  for (std::uint8_t modules = 0; modules < 128; ++modules) {
    for (const Dispatcher dispatcher : {Dispatcher::kAllToAll, Dispatcher::kAllGather}) {
      Plan p = Selective(RecomputeModulesText(modules));
      ASSERT_EQ(p.memory.recompute_modules, modules);
      p.parallel.tp = 2;
      p.parallel.sequence_parallel = true;
      p.framework.recompute_flash = true;
      p.experts.dispatcher = dispatcher;
      p.framework.fp8_activation_input = p.framework.packed_context = modules % 2 == 0;
      const Status status = graph::Verify(Make(Latents(), p), graph::VerifyLevel::kFull);
      EXPECT_TRUE(status.ok()) << RecomputeModulesText(modules) << ": " << status.message();
    }
  }
}

TEST(RecomputeModules, UnknownNamesListTheValid) {
  EXPECT_EQ(ParseRecomputeModules("core_attn+mo").status().message(),
            "unknown module to recompute 'mo'; did you mean 'moe' or 'moe_act'? valid: "
            "core_attn, layernorm, moe_act, moe, mlp, mla_up_proj, latent_norm");
}

}  // namespace
}  // namespace orrery::workload
