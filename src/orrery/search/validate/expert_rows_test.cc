// Rows of models with experts: what their blanks mean, by framework, release, GPU and type.
#include "orrery/search/validate/training.h"

#include <gtest/gtest.h>

#include "orrery/search/validate/test_support.h"

namespace orrery::search {
namespace {

const Cells kQwen3 = {{"framework_family", "nemo"},
                      {"framework", "Megatron-Bridge"},
                      {"framework_version", "NeMo container 26.08"},
                      {"arch", "moe"},
                      {"model", "Qwen3-30B-A3B"},
                      {"compute_dtype", "mxfp8"},
                      {"layers", "48"},
                      {"hidden", "2048"},
                      {"heads", "32"},
                      {"seq_len", "4096"},
                      {"gpu", "GB300"},
                      {"gpus", "8"},
                      {"gpus_per_node", "4"},
                      {"tp", "1"},
                      {"pp", "1"},
                      {"cp", "1"},
                      {"ep", "8"},
                      {"dp", "8"},
                      {"micro_batch", "8"},
                      {"global_batch", "512"},
                      {"gpu_mem_gb", "279"},
                      {"nic_gbps_per_gpu", "800"},
                      {"fabric", "ib"}};

// Who has said nothing gathers tokens (Megatron's command line), exchanges them (NeMo, torchtitan);
// the model zoo splits no expert over tp.
TEST(Training, BlanksOfExperts) {
  const auto plan = [](const Cells& changes) { return PlanOf(kQwen3, changes); };
  const Cells core = {{"framework_family", "megatron"},
                      {"framework", "Megatron-LM"},
                      {"framework_version", "HEAD"}};
  EXPECT_EQ(plan(core).experts.dispatcher, workload::Dispatcher::kAllGather);
  const Cells titan = {{"framework", "torchtitan"},
                       {"framework_family", "fsdp2"},
                       {"framework_version", "torch 2.8"},
                       {"sharding", "zero3"},
                       {"compute_dtype", "bf16"}};
  EXPECT_EQ(plan(titan).experts.dispatcher, workload::Dispatcher::kAllToAll);
  Cells split = {{"framework_family", "megatron"},
                 {"framework", "Megatron-LM"},
                 {"framework_version", "HEAD"},
                 {"tp", "2"},
                 {"dp", "4"},
                 {"ep", "4"}};
  EXPECT_EQ(plan(split).parallel.etp, 2);
  split["framework"] = "Megatron-Core (dev)";
  EXPECT_EQ(plan(split).parallel.etp, 1);
  EXPECT_TRUE(plan(split).framework.online_cross_entropy);
}

// What a release's recipes set where the row is blank: by release, GPU and type, also on few GPUs.
TEST(Training, BlanksOfMegatronBridgeFollowItsRecipes) {
  using workload::CudaGraphs;
  using workload::Dispatcher;
  const auto plan = [](const Cells& changes) { return PlanOf(kQwen3, changes); };
  const workload::Plan graph = plan({});
  EXPECT_EQ(graph.experts.dispatcher, Dispatcher::kHybridEp);
  EXPECT_EQ(graph.framework.cuda_graphs, CudaGraphs::kIteration);
  EXPECT_TRUE(graph.experts.moe_comm_overlap && graph.experts.moe_delayed_weights);
  EXPECT_TRUE(graph.framework.moe_fused_mlp);
  EXPECT_TRUE(graph.framework.online_cross_entropy);
  const workload::Plan before = plan({{"framework_version", "NeMo container 26.04"}});
  EXPECT_EQ(before.experts.dispatcher, Dispatcher::kHybridEp);
  EXPECT_EQ(before.framework.cuda_graphs, CudaGraphs::kNone);
  EXPECT_FALSE(before.experts.moe_comm_overlap || before.experts.moe_delayed_weights);
  EXPECT_FALSE(before.framework.moe_fused_mlp);
  EXPECT_EQ(plan({{"framework_version", "NeMo container 25.09"}}).experts.dispatcher,
            Dispatcher::kAllToAll);
  const auto on = [&](std::string_view release, std::string_view gpu) {
    return plan({{"framework_version", "NeMo container " + std::string(release)},
                 {"gpu", std::string(gpu)},
                 {"gpus_per_node", "8"},
                 {"compute_dtype", "bf16"}})
        .experts.dispatcher;
  };
  EXPECT_EQ(on("25.11", "B200"), Dispatcher::kAllToAll);
  EXPECT_EQ(on("26.02", "H100-SXM5"), Dispatcher::kDeepEp);
  EXPECT_EQ(on("26.08", "B200"), Dispatcher::kHybridEp);
  EXPECT_FALSE(plan({{"ep_overlap", "1"}, {"offload", "activation"}}).experts.moe_comm_overlap);
  const workload::Plan first = plan(
      {{"framework_version", "NeMo container 25.09"}, {"gpu", "B200"}, {"gpus_per_node", "8"}});
  EXPECT_EQ(first.framework.cuda_graphs, CudaGraphs::kLayers);
  EXPECT_FALSE(first.framework.grad_reduce_fp32);
  EXPECT_TRUE(plan({{"reduce_dtype", "fp32"}}).framework.grad_reduce_fp32);
}

// Attention in 8 bits: by a release's recipes, or where the row says so and its kernel has it. What
// torchtitan converts: linear layers or grouped products.
TEST(Training, PartsInEightBitsAndInBf16) {
  const auto plan = [](const Cells& changes) { return PlanOf(kQwen3, changes); };
  EXPECT_TRUE(plan({}).framework.fp8_attention);
  EXPECT_FALSE(plan({}).framework.fp8_output_layer);
  const Cells before = {{"framework_version", "NeMo container 26.04"}};
  EXPECT_FALSE(plan(before).framework.fp8_attention);
  Cells said = before;
  said["config_extra"] = "fp8_attention";
  EXPECT_TRUE(plan(said).framework.fp8_attention);
  said["attention_kernel"] = "flash2";
  EXPECT_FALSE(plan(said).framework.fp8_attention);
  const auto kept = [&](std::string_view extra) {
    Cells cells = before;
    cells["config_extra"] = std::string(extra);
    return plan(cells).precision.bf16_modules;
  };
  EXPECT_EQ(kept(""), 0);
  EXPECT_EQ(kept("prec=linears"), workload::kBf16Experts);
  EXPECT_EQ(kept("prec=grouped_GEMM"), workload::kBf16Attention | workload::kBf16Mlp);
}

// What YAML files of Megatron's test cases say beside the columns. Nemotron 3: a module behind the
// last layer run twice, on GPT-2's vocabulary.
TEST(Training, ModelsOfTestCases) {
  const Mapped mapped = Map(kQwen3, {{"model", "CI nemotron3_5_lightning_nightly_tp1"},
                                     {"config_extra", "case=nemotron3_5_lightning_nightly+mtp"},
                                     {"framework_family", "megatron"},
                                     {"framework", "Megatron-LM CI (HEAD Aug-2026)"},
                                     {"framework_version", "HEAD"},
                                     {"compute_dtype", "bf16"},
                                     {"layers", "52"},
                                     {"hidden", "2688"},
                                     {"heads", "32"},
                                     {"topk", "6"}});
  ASSERT_EQ(mapped.error, "");
  EXPECT_EQ(mapped.run.model.mtp_layers, 2);
  EXPECT_EQ(mapped.run.model.mtp_modules(), 1);
  EXPECT_EQ(mapped.run.model.vocab, 50257);

  const auto model = [](std::string_view name, const Cells& changes = {}) {
    Cells cells = {{"model", "CI " + std::string(name)},
                   {"framework_family", "megatron"},
                   {"framework", "Megatron-LM CI (HEAD Aug-2026)"},
                   {"framework_version", "HEAD"},
                   {"compute_dtype", "bf16"},
                   {"arch", "dense"},
                   {"ep", "1"},
                   {"config_extra", "case=" + std::string(name) + "+deterministic"}};
    const Mapped of_case = Map(With(kQwen3, cells), changes);
    EXPECT_EQ(of_case.error, "");
    return of_case.run.model;
  };
  EXPECT_EQ(model("gpt3_7b_tp4_pp1_memory_speed").vocab, 131073);
  EXPECT_FALSE(model("gpt3_7b_tp4_pp1_memory_speed").tied_embeddings);
  EXPECT_EQ(model("gpt3_7b_tp4_pp1_memory_speed", {{"vocab", "4096"}}).vocab, 4096);
  EXPECT_TRUE(model("gpt3_mcore_te_tp1_pp4").tied_embeddings);
  EXPECT_EQ(model("gpt3_mcore_te_tp1_pp4_swiglu").ffn_hidden, 5440);
  EXPECT_EQ(model("gpt3_mcore_te_tp2_pp2_cp2").dropout, 0);
  EXPECT_EQ(model("gpt3_mcore_te_tp2_pp2_mla", {{"layer_kind", "mla"}}).latent.v_dim, 16);
  const Cells experts = {{"layer_kind", "mla"}, {"arch", "moe"}, {"experts", "8"}, {"topk", "4"}};
  EXPECT_EQ(model("deepseek_proxy_fsdp_ep2_fsdp2", experts).experts.ffn_hidden, 1024);
}

}  // namespace
}  // namespace orrery::search
