// Does a row become the run that it describes, and is what lies outside refused by name?
#include "orrery/search/validate/training.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "orrery/search/validate/names.h"
#include "orrery/search/validate/test_support.h"

namespace orrery::search {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;
TEST(Training, MegatronCoreRow) {
  const Mapped m = Map(kGpt175);
  ASSERT_EQ(m.error, "");
  EXPECT_EQ(m.run.model.layers, 96);
  EXPECT_EQ(m.run.model.kv_heads, 96);  // blank: no grouped attention
  EXPECT_TRUE(m.run.model.tied_embeddings);
  EXPECT_EQ(m.run.plan.parallel.tp, 8);
  EXPECT_EQ(m.run.plan.parallel.vpp, 16);  // a chunk a layer: 96 layers on 6 stages
  EXPECT_TRUE(m.run.plan.parallel.sequence_parallel);
  EXPECT_TRUE(m.run.plan.framework.overlap_grad_reduce);
  EXPECT_EQ(m.run.plan.framework.attention, workload::AttentionBackend::kFlash2);
  EXPECT_EQ(m.run.plan.memory.recompute, workload::Recompute::kNone);
  EXPECT_EQ(m.run.cluster.nodes, 288);  // 2304 / 8
  EXPECT_EQ(m.run.cluster.nics_per_node, 8);
  EXPECT_EQ(m.run.cluster.nic_Bps, 50'000'000'000);  // 400 Gb/s
  EXPECT_EQ(m.stratum, "dense Hopper+");
  EXPECT_THAT(m.assumed, Contains(StartsWith("recompute=none (blank: Megatron Core 0.8")));
  EXPECT_THAT(m.assumed, Contains(StartsWith("vpp=16 (blank")));
  EXPECT_THAT(m.assumed, Contains(HasSubstr("whose defaults are: ")));
}

// What a user would write, and nothing that `job` fills in.
TEST(Training, ARowIsAJobOfFewKeys) {
  EXPECT_EQ(Map(kGpt175).document, R"(model:
  name: GPT-177B
  layers: 96
  hidden: 12288
  heads: 96
  kv_heads: 96
  head_dim: 128
  ffn_hidden: 49152
  vocab: 131072
  max_position: 4096
  norm: layernorm
  activation: gelu
  position: learned
  tied_embeddings: true
  attention_bias: true
  mlp_bias: true
  dropout: 0.1
cluster: h100-ib-400g
framework: megatron@2024.07
parallel:
  tp: 8
  pp: 6
  dp: 48
  vpp: 16
  sequence_parallel: true
training:
  seq_len: 4096
  micro_batch: 1
  global_batch: 1152
  precision: bf16
  sharding: zero1
  recompute: none
framework_options:
  overlap_grad_reduce: true
  overlap_param_gather: true
)");
}

TEST(Training, EveryRefusalNamesColumnAndValue) {
  const std::vector<std::tuple<std::string, std::string, std::string>> cases = {
      {"arch", "hybrid", "arch=hybrid: "},
      {"layer_kind", "mamba2-hybrid", "layer_kind=mamba2-hybrid: "},
      {"compute_dtype", "int8", "compute_dtype=int8: "},
      {"sharding", "zero3", "training.sharding: zero3"},
      {"sharding", "zero4", "sharding=zero4: "},
      {"cp", "5", "gpus=2304: not a multiple of tp·pp·cp = 8·6·5"},
      {"task", "rl", "task=rl: "},
      {"offload", "parameters", "offload=parameters: "},
      {"framework_family", "ddp", "replicates the model whole"},
      {"framework_family", "megatorn", "did you mean 'megatron'"},
      {"gpu", "K80", "gpu=K80: "},
      {"gpus", "2305", "gpus=2305: not a multiple"},
      {"tp", "", "tp is blank"},
      {"layers", "", "layers is blank"},
      {"tp", "eight", "tp=eight: not a whole number"},
      {"seq_parallel", "yes", "seq_parallel=yes: must be 0, 1 or blank"},
      {"params_b", "20", "params_b=20: layers, hidden and vocab give"},
      {"recompute", "some", "recompute=some: "},
  };
  for (const auto& [column, value, expected] : cases) {
    EXPECT_THAT(Map(kGpt175, {{column, value}}).error, HasSubstr(expected)) << column;
  }
}

TEST(Training, FlashAttentionByVersion) {
  const Mapped m = Map(kGpt175, {{"attention_kernel", "flash4"}});
  EXPECT_EQ(m.error, "");
  EXPECT_EQ(m.run.plan.framework.attention, workload::AttentionBackend::kFlash4);
}

// 24 layers on 4 stages, uneven: one fewer at the ends leaves 14 for two.
TEST(Training, UnevenStagesSpareTheEnds) {
  const Mapped m = Map(kGpt175, {{"layers", "24"},
                                 {"params_b", ""},
                                 {"pp", "4"},
                                 {"vpp", "1"},
                                 {"dp", ""},
                                 {"config_extra", "case=uneven_pipeline"}});
  EXPECT_EQ(m.error, "");
  EXPECT_THAT(m.run.plan.parallel.layers_per_stage, testing::ElementsAre(5, 7, 7, 5));
}

TEST(Training, ShardGroupsAndRankOrder) {
  const Mapped grouped = Map(kGpt175, {{"sharding", "zero1"}, {"zero_group", "8"}});
  EXPECT_EQ(grouped.error, "");
  EXPECT_EQ(grouped.run.plan.memory.shard_group, 8);
  EXPECT_FALSE(grouped.run.plan.framework.reduce_whole);
  EXPECT_TRUE(grouped.run.plan.hybrid());
  EXPECT_THAT(Map(kGpt175, {{"sharding", "zero1"}, {"zero_group", "7"}}).error,
              HasSubstr("parallel.shard_group: 7 is not a divisor"));
  EXPECT_EQ(Map(kGpt175, {{"config_extra", "dp_last"}}).run.plan.parallel.rank_order,
            workload::RankOrder::kPpDp);
}

// What NVIDIA's DGX Cloud scripts of a release set fills blanks, no more.
TEST(Training, BlanksOfTheReleasesScripts) {
  const Cells gpt = {{"framework", "NeMo (Megatron-Core)"},
                     {"framework_family", "nemo"},
                     {"framework_version", "v24.11.1"},
                     {"model", "GPT3-175B"}};
  const auto attention = [&](const Cells& changes) {
    return Map(With(kGpt175, gpt), changes).run.plan.framework.attention;
  };
  EXPECT_EQ(attention({}), workload::AttentionBackend::kFlash2);
  EXPECT_EQ(attention({{"framework_version", "v25.02.02"}}), workload::AttentionBackend::kCudnn);
  EXPECT_EQ(attention({{"attention_kernel", "cudnn"}}), workload::AttentionBackend::kCudnn);
  EXPECT_EQ(attention({{"model", "Llama3-70B"}}), workload::AttentionBackend::kCudnn);
  const auto dropout = [&](std::string_view version) {
    return Map(With(kGpt175, gpt), {{"framework_version", std::string(version)}}).run.model.dropout;
  };
  EXPECT_EQ(dropout("v25.02.02"), 0.1);  // gpt3_175b_hydra.yaml
  EXPECT_EQ(dropout("v25.04.02"), 0);

  const Cells maxtext = {{"framework", "MaxText (JAX)"},
                         {"framework_family", "jax-fsdp"},
                         {"framework_version", "v24.11.1"},
                         {"tp", "1"},
                         {"pp", "1"},
                         {"dp", "512"},
                         {"gpus", "512"},
                         {"sharding", "zero3"},
                         {"global_batch", "512"},
                         {"seq_parallel", ""}};
  const Mapped many = Map(kGpt175, maxtext);
  EXPECT_EQ(many.error, "");
  EXPECT_EQ(many.run.plan.memory.shard_group, 128);  // 16 hosts from 64 on
  EXPECT_EQ(many.run.plan.framework.recompute_keeps, workload::RecomputeKeeps::kQkvOut);
  EXPECT_FALSE(many.run.plan.framework.copies_units);
  Cells few = maxtext;
  few["gpus"] = few["dp"] = few["global_batch"] = "256";
  EXPECT_EQ(Map(kGpt175, few).run.plan.memory.shard_group, 0);
  few["framework_version"] = "v25.02.02";
  EXPECT_EQ(Map(kGpt175, few).run.plan.framework.recompute_keeps, workload::RecomputeKeeps::kQkv);
  EXPECT_TRUE(many.run.plan.framework.embedding_product && many.run.plan.framework.stacked_layers);
  Cells paxml = maxtext;
  paxml["framework"] = "Paxml (JAX)";
  paxml["compute_dtype"] = "fp8";
  paxml["model"] = "GPT3-175B";
  paxml["gpu"] = "H100-SXM5";
  EXPECT_TRUE(Map(kGpt175, paxml).run.plan.framework.copies_units);
  EXPECT_FALSE(Map(kGpt175, paxml).run.plan.framework.low_precision_gather);
  paxml["model"] = "GPT-126M";
  paxml["framework_version"] = "JAX-Toolbox @x";
  const workload::Plan small = Map(kGpt175, paxml).run.plan;
  EXPECT_EQ(small.memory.recompute, workload::Recompute::kNone);
  EXPECT_TRUE(small.framework.qkv_bias_kernel && !small.framework.stacked_layers &&
              !small.framework.fused_bias_activation);
}

// What Transformer Engine has no fused kernel for on Blackwell; Nemotron in NeMo 2, whose squared
// ReLU is not compiled and whose stages leave the head's weight gradients to the end.
TEST(Training, NemotronInNemo2) {
  const Cells nemotron = {{"framework", "NeMo (Megatron-Core)"},
                          {"framework_family", "nemo"},
                          {"framework_version", "v25.05.05"},
                          {"model", "Nemotron4-340B"},
                          {"layers", "96"},
                          {"hidden", "18432"},
                          {"heads", "96"},
                          {"kv_heads", "8"},
                          {"ffn_hidden", "73728"},
                          {"vocab", "256000"},
                          {"gpu", "GB200"},
                          {"gpus_per_node", "4"}};
  Cells cells = With(kGpt175, nemotron);
  const Mapped wide = Map(cells, {});
  EXPECT_EQ(wide.error, "");
  EXPECT_EQ(wide.run.plan.framework.attention, workload::AttentionBackend::kFlash2);  // 192 a head
  EXPECT_FALSE(wide.run.plan.framework.fused_bias_activation);
  EXPECT_EQ(wide.run.plan.framework.deferred_head, 22);
  EXPECT_EQ(Map(cells, {{"heads", "144"}, {"kv_heads", "8"}}).run.plan.framework.attention,
            workload::AttentionBackend::kCudnn);  // 128
  const Cells hopper = {{"gpu", "H100-SXM5"}, {"gpus_per_node", "8"}};
  EXPECT_EQ(Map(cells, hopper).run.plan.framework.attention, workload::AttentionBackend::kCudnn);
  Cells first = hopper;
  first["framework_version"] = "v25.02.02";  // NeMo 1 compiles it
  EXPECT_TRUE(Map(cells, first).run.plan.framework.fused_bias_activation);

  const auto latent = [](std::string_view framework) {
    return job::AttentionFor((*job::FrameworkTable::BuiltIn().Find(framework))->defaults,
                             cluster::Arch::kBlackwell, *workload::FindModel("deepseek-v3"));
  };
  EXPECT_EQ(latent("nemo@2025.04"), workload::AttentionBackend::kUnfused);
  EXPECT_EQ(latent("megatron-bridge"), workload::AttentionBackend::kCudnn);
}

// A round of MLPerf is known by its date; its 8B configurations graph the whole iteration, its 405B
// lays out replicas one after the other and scales by the current maximum.
TEST(Training, BlanksOfMlperfsRound) {
  Cells large = kGpt175;
  for (const auto& [column, value] : Cells{{"framework", "NeMo/Megatron-Core (ngc25.09_nemo)"},
                                           {"framework_family", "nemo"},
                                           {"framework_version", "ngc25.09"},
                                           {"measured_date", "2025-11"},
                                           {"model", "Llama3.1-405B"},
                                           {"compute_dtype", "fp8"},
                                           {"gpu", "B200"}}) {
    large[column] = value;
  }
  const workload::Plan now = PlanOf(large, {});
  EXPECT_EQ(now.parallel.rank_order, workload::RankOrder::kPpDp);
  EXPECT_EQ(now.framework.deferred_head, 0);  // config_common_cg.sh
  EXPECT_EQ(PlanOf(large, {{"gpu", "H100-SXM5"}}).framework.deferred_head, 50);
  EXPECT_EQ(now.precision.low, workload::LowPrecision::kCurrent);
  const workload::Plan before = PlanOf(large, {{"measured_date", "2025-06"}});
  EXPECT_NE(before.parallel.rank_order, workload::RankOrder::kPpDp);
  EXPECT_EQ(before.precision.low, workload::LowPrecision::kDelayed);
  EXPECT_EQ(before.framework.deferred_head, 50);
  Cells cells = {{"framework", "NeMo/Megatron-Core (ngc25.09_nemo)"},
                 {"framework_family", "nemo"},
                 {"framework_version", "ngc25.09"},
                 {"measured_date", "2025-11"},
                 {"model", "Llama3-8B"},
                 {"gpu", "B200"},
                 {"gpu_mem_gb", "180"}};
  const auto graphs = [&](std::string column, std::string value) {
    cells[column] = std::move(value);
    return Map(kGpt175, cells).run.plan.framework.cuda_graphs;
  };
  EXPECT_EQ(graphs("gpu", "B200"), workload::CudaGraphs::kIteration);
  cells["compute_dtype"] = "fp8";
  EXPECT_EQ(PlanOf(kGpt175, cells).precision.low, workload::LowPrecision::kCurrent);
  // What it leaves alone has the parameters' type.
  EXPECT_EQ(PlanOf(kGpt175, cells).precision.type, workload::Precision::kBf16);
  const workload::Plan kept =
      PlanOf(kGpt175, With(cells, {{"param_dtype", "fp32"}, {"attention_kernel", "unfused"}}));
  EXPECT_EQ(kept.precision.type, workload::Precision::kFp32);
  EXPECT_EQ(graphs("cuda_graphs", "0"), workload::CudaGraphs::kNone);
  EXPECT_EQ(graphs("cuda_graphs", "1"), workload::CudaGraphs::kLayers);
  cells["cuda_graphs"] = "";
  EXPECT_EQ(graphs("measured_date", "2024-11"), workload::CudaGraphs::kNone);
}

TEST(Training, LibrariesOnTheDevice) {
  EXPECT_TRUE(Map(kGpt175).run.libraries.cublas_in_torch);
  EXPECT_FALSE(Map(kGpt175, {{"framework_version", "PTD-P"}}).run.libraries.cublas_in_torch);
  const auto libraries = [](const std::string& extra, const std::string& overlap) {
    return Map(kGpt175, {{"config_extra", extra}, {"tp_comm_overlap", overlap}}).run;
  };
  EXPECT_TRUE(libraries("case=gpt3_mcore_te_tp1_pp1", "0").libraries.transformer_engine);
  EXPECT_TRUE(libraries("case=gpt3_mcore_te_tp1", "1").plan.framework.tp_comm_overlap);
  EXPECT_FALSE(libraries("case=x_nondeterministic", "0").libraries.deterministic);
  const auto own = libraries("case=gpt3_mcore_tp1_pp2+deterministic", "0");
  EXPECT_FALSE(own.libraries.transformer_engine);
  EXPECT_TRUE(own.libraries.deterministic);
  EXPECT_TRUE(own.plan.framework.keeps_scores);
  EXPECT_TRUE(
      libraries("case=gpt3_te_cross_entropy_loss_fusion", "").plan.framework.fused_cross_entropy);
  EXPECT_TRUE(own.plan.framework.batch_p2p_sync);
  EXPECT_TRUE(own.plan.framework.deterministic && !own.plan.framework.fused_weight_gradient);
  const workload::Plan free = libraries("case=gpt3_mcore_te_cp2_nondeterministic", "0").plan;
  EXPECT_TRUE(!free.framework.deterministic && !free.framework.fused_weight_gradient);
  EXPECT_TRUE(libraries("", "0").plan.framework.fused_weight_gradient);
}

// On one host of GB200 Megatron's CI runs by GitHub's runners, which mount the data.
TEST(Training, InputOfTheContinuousIntegration) {
  const auto stored = [](const std::string& gpus, const std::string& extra) {
    return PlanOf(kGpt175, {{"gpu", "GB200"},
                            {"gpus", gpus},
                            {"gpus_per_node", "4"},
                            {"tp", "1"},
                            {"pp", "4"},
                            {"dp", gpus == "4" ? "1" : "2"},
                            {"micro_batch", "4"},
                            {"global_batch", "32"},
                            {"config_extra", extra}})
        .batch.object_store;
  };
  EXPECT_TRUE(stored("4", "case=gpt3_1node+deterministic"));
  EXPECT_FALSE(stored("8", "case=gpt3+deterministic"));
  EXPECT_FALSE(stored("4", ""));
}

TEST(Training, LowPrecisionContextAndSharding) {
  const Mapped fp8 = Map(kGpt175, {{"compute_dtype", "fp8"}});
  EXPECT_EQ(fp8.run.plan.precision.low, workload::LowPrecision::kDelayed);
  EXPECT_THAT(fp8.assumed, Contains(HasSubstr("fp8_recipe delayed")));
  const Mapped current = Map(kGpt175, {{"compute_dtype", "fp8"}, {"config_extra", "prec=fp8-cs"}});
  EXPECT_EQ(current.run.plan.precision.low, workload::LowPrecision::kCurrent);
  EXPECT_EQ(PlanOf(kGpt175, {{"compute_dtype", "nvfp4"}, {"gpu", "B200"}}).precision.low,
            workload::LowPrecision::kNvfp4);
  const auto stated = [](const char* extra) {
    return Map(kGpt175, {{"compute_dtype", "fp8"}, {"config_extra", extra}});
  };
  const Mapped blocks = stated("prec=blockwise+recompute=moe_act");
  EXPECT_EQ(blocks.run.plan.precision.low, workload::LowPrecision::kBlockwise);
  EXPECT_THAT(blocks.assumed, Not(Contains(HasSubstr("not understood"))));
  EXPECT_THAT(stated("prec=hybrid").assumed, Contains("prec=hybrid not understood"));
  const Mapped cp = Map(kGpt175, {{"cp", "2"}, {"dp", "24"}});
  EXPECT_EQ(cp.error, "");
  EXPECT_EQ(cp.run.plan.parallel.cp, 2);
  EXPECT_EQ(cp.run.plan.ranks(), 2304);
  const Mapped fsdp = Map(kGpt175, {{"framework_family", "fsdp1"},
                                    {"sharding", ""},
                                    {"tp", "1"},
                                    {"pp", "1"},
                                    {"dp", "2304"},
                                    {"global_batch", "4608"}});
  EXPECT_EQ(fsdp.error, "");
  EXPECT_EQ(fsdp.run.plan.memory.sharding, workload::Sharding::kZero3);
  EXPECT_TRUE(fsdp.run.plan.framework.flat_parameters);
  EXPECT_EQ(fsdp.run.host, workload::HostEra::kFsdp);
  const workload::Plan graphs = Map(kGpt175, {{"cuda_graphs", "1"}}).run.plan;
  EXPECT_EQ(graphs.framework.cuda_graphs, workload::CudaGraphs::kLayers);
  EXPECT_EQ(graphs.framework.graph_scope, workload::kGraphAll);
  const workload::Plan parts =
      Map(kGpt175,
          {{"cuda_graphs", "1"},
           {"config_extra", "cuda_graph=transformer_engine:mlp+moe_router+recompute=none"}})
          .run.plan;
  EXPECT_EQ(parts.framework.graph_scope, workload::kGraphMlp | workload::kGraphRouter);
  const workload::Plan whole =
      Map(kGpt175, {{"cuda_graphs", "1"}, {"config_extra", "full_cuda_graph"}}).run.plan;
  EXPECT_EQ(whole.framework.cuda_graphs, workload::CudaGraphs::kIteration);
  EXPECT_EQ(Map(kGpt175, {{"task", "lora"}}).run.plan.lora.rank, 32);
  EXPECT_TRUE(Map(kGpt175, {{"offload", "optimizer-cpu"}}).run.plan.memory.offload_optimizer);
  EXPECT_TRUE(Map(kGpt175, {{"offload", "activation"}}).run.plan.memory.offload_activations);
  const Mapped some = Map(kGpt175, {{"offload", "10 layers"}, {"pp", "1"}, {"vpp", ""}});
  EXPECT_EQ(some.run.plan.memory.offload_layers, 10);
}

// NeMo's recipes pack samples, Megatron's own runs say nothing of it; MLPerf's have other adapters,
// whole sequences and all-to-alls.
TEST(Training, FineTuningRunsAsItsRecipes) {
  const auto plan = [](const Cells& changes) { return PlanOf(kGpt175, changes); };
  const Cells nemo = {{"task", "sft"},
                      {"framework_family", "nemo"},
                      {"framework_version", "v25.02.02"},
                      {"vpp", "1"}};
  EXPECT_EQ(plan(nemo).batch.packed_len, 256);
  EXPECT_EQ(plan({{"task", "sft"}}).batch.packed_len, 0);
  Cells lora = nemo;
  lora["task"] = "lora";
  EXPECT_EQ(plan(lora).batch.packed_len, 256);
  EXPECT_EQ(plan(lora).lora.targets, workload::kLoraQkv);
  EXPECT_TRUE(plan(lora).framework.fused_cross_entropy);
  lora["model"] = "Llama3-70B";
  EXPECT_EQ(plan(lora).lora.rank, 16);
  lora["model"] = "Llama3-8B";
  EXPECT_EQ(plan(lora).lora.rank, 8);
  lora.erase("model");
  lora["framework_version"] = "ngc25.09";
  lora["cp"] = "2";
  lora["dp"] = "24";
  const workload::Plan submitted = plan(lora);
  EXPECT_EQ(submitted.batch.packed_len, 0);
  EXPECT_EQ(submitted.lora.rank, 16);
  EXPECT_EQ(submitted.lora.targets, workload::kLoraQkv | workload::kLoraProjection);
  EXPECT_EQ(submitted.parallel.cp_exchange, workload::CpExchange::kAllToAll);
  EXPECT_FALSE(submitted.framework.fused_cross_entropy);
  // Its graphs reach over the iteration from v5.1 on.
  for (const auto& [column, value] : Cells{{"framework", "NeMo/Megatron-Core (ngc25.09_nemo)"},
                                           {"measured_date", "2025-11"},
                                           {"model", "Llama2-70B"},
                                           {"gpu", "B200"},
                                           {"cuda_graphs", "1"}}) {
    lora[column] = value;
  }
  EXPECT_EQ(plan(lora).framework.cuda_graphs, workload::CudaGraphs::kIteration);
  EXPECT_TRUE(plan(lora).framework.quiet_loop && !submitted.framework.quiet_loop);
  lora["measured_date"] = "2025-06";
  EXPECT_EQ(plan(lora).framework.cuda_graphs, workload::CudaGraphs::kLayers);
  EXPECT_TRUE(plan(lora).framework.quiet_loop);
}

// LLM Foundry's first sweep and later ones: the name of the precision tells them apart.
TEST(Training, FoundryRowsRunAsTheirSweep) {
  const Cells foundry = {{"framework", "Composer/FSDP1 (llm-foundry)"},
                         {"framework_family", "fsdp1"},
                         {"framework_version", "torch 1.13/2.x"},
                         {"model", "MPT-177B"},
                         {"sharding", "zero3"},
                         {"recompute", "full"},
                         {"attention_kernel", "flash"},
                         {"precision", "bf16"},
                         {"tp", "1"},
                         {"pp", "1"},
                         {"gpus", "64"},
                         {"dp", "64"},
                         {"global_batch", "64"}};
  const auto plan = [&](const Cells& changes) { return PlanOf(kGpt175, With(foundry, changes)); };
  using workload::AttentionBackend;
  using workload::RecomputeKeeps;
  const workload::Plan first = plan({});
  EXPECT_EQ(first.framework.recompute_keeps, RecomputeKeeps::kNothing);
  EXPECT_EQ(first.framework.attention, AttentionBackend::kFlash1);
  EXPECT_TRUE(first.framework.loss_metrics && first.framework.online_cross_entropy &&
              first.framework.log_every_step);
  EXPECT_TRUE(first.framework.adam_loop && !first.framework.fused_adam);
  const workload::Plan second = plan({{"precision", "amp_bf16"}});
  EXPECT_EQ(second.framework.recompute_keeps, RecomputeKeeps::kLast);
  EXPECT_EQ(second.framework.attention, AttentionBackend::kFlash1);
  const workload::Plan other = plan({{"framework", "PyTorch"}});
  EXPECT_FALSE(other.framework.loss_metrics || other.framework.log_every_step ||
               other.framework.adam_loop);
}

TEST(Training, BatchSizesFollowFromEachOther) {
  const Mapped micro = Map(kGpt175, {{"micro_batch", ""}, {"grad_accum", "12"}});
  EXPECT_EQ(micro.run.plan.batch.micro_batch, 2);  // 1152 / (48 · 12)
  const Mapped global = Map(kGpt175, {{"global_batch", ""}, {"grad_accum", "24"}});
  EXPECT_EQ(global.run.plan.batch.global_batch, 1152);  // 1 · 48 · 24
  EXPECT_THAT(Map(kGpt175, {{"micro_batch", ""}}).assumed,
              Contains(testing::AllOf(StartsWith("micro_batch="), HasSubstr("(blank: "))));
  // Steps of different batches are not to be compared.
  const Mapped steps =
      Map(kGpt175, {{"micro_batch", ""}, {"global_batch", ""}, {"grad_accum", "24"}});
  EXPECT_THAT(steps.assumed, Contains(StartsWith("micro_batch=1 (blank)")));
}

TEST(Training, VersionsDiffer) {
  const Mapped old = Map(kGpt175, {{"framework_version", "PTD-P 2021"},
                                   {"compute_dtype", "fp16"},
                                   {"sharding", "none"},
                                   {"dp_overlap", ""},
                                   {"config_extra", "interleaved_if_possible"}});
  ASSERT_EQ(old.error, "");
  EXPECT_FALSE(old.run.plan.framework.overlap_grad_reduce);
  EXPECT_FALSE(old.run.plan.framework.grad_reduce_fp32);
  EXPECT_TRUE(old.run.plan.framework.scatter_gather_p2p);
  EXPECT_EQ(old.run.plan.framework.attention, workload::AttentionBackend::kUnfused);
  EXPECT_EQ(old.run.plan.parallel.vpp, 2);  // 96 layers, 6 stages, 24 micro-batches allow it
  const Mapped odd = Map(kGpt175, {{"framework_version", "PTD-P 2021"},
                                   {"layers", "90"},
                                   {"config_extra", "interleaved_if_possible"}});
  EXPECT_EQ(odd.run.plan.parallel.vpp, 3);  // 15 layers a stage
  const Mapped head = Map(kGpt175, {{"framework_version", "Megatron-LM HEAD"}});
  EXPECT_EQ(head.run.plan.framework.attention, workload::AttentionBackend::kCudnn);
  EXPECT_EQ(head.run.plan.parallel.vpp, 1);  // its flag is off unless given
}

TEST(Training, ReleasesLeftFromOlderSubmissionsSayNothing) {
  const Cells nemo = {{"framework_family", "nemo"}, {"framework_version", "ngc23.09"}};
  const auto attention = [&](const char* date) {
    Cells cells = nemo;
    cells["measured_date"] = date;
    return Map(kGpt175, cells).run.plan.framework.attention;
  };
  EXPECT_EQ(attention("2023-11"), workload::AttentionBackend::kUnfused);
  EXPECT_EQ(attention("2024-06"), workload::AttentionBackend::kUnfused);
  EXPECT_EQ(attention("2025-11"), workload::AttentionBackend::kCudnn);
}

// partition_balanced([1] * 78, 12) of DeepSpeed 0.6 gives [0, 7, 14, ... 77, 78], and pull request
// 4312's example [1] * 5 over 4 is 2, 2, 1, 0. 82 layers are 84 with embedding and loss.
TEST(Training, DeepSpeedFillsStagesFromTheFirst) {
  const auto stages = [](const char* layers, const char* params) {
    const Mapped m = Map(kGpt175, {{"framework_family", "megatron-deepspeed"},
                                   {"layers", layers},
                                   {"params_b", params},
                                   {"pp", "12"},
                                   {"gpus", "4608"}});
    EXPECT_EQ(m.error, "");
    return *workload::LayersPerChunk(m.run.model, m.run.plan);
  };
  EXPECT_THAT(stages("78", "142"), testing::ElementsAre(7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 1));
  EXPECT_THAT(stages("82", "150"), testing::ElementsAre(6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 6));
}

// 200 billion parameters of 14400 are 79 layers beside 250,112 tokens' embedding; ten stages make
// it 80, 199.1 billion and 202.7 with it. 194 are 78 on six stages, 194.1 without it. 190 lies
// between 72 (182.8 with it) and 78: 75.
TEST(Training, BlankLayersAreEvenOverStages) {
  const auto layers = [](const char* params, const char* pp, const char* gpus) {
    const Mapped m = Map(kGpt175, {{"framework_family", "megatron-deepspeed"},
                                   {"params_b", params},
                                   {"layers", ""},
                                   {"hidden", "14400"},
                                   {"heads", "96"},
                                   {"kv_heads", ""},
                                   {"ffn_hidden", ""},
                                   {"vocab", "250112"},
                                   {"pp", pp},
                                   {"dp", "4"},
                                   {"gpus", gpus}});
    EXPECT_EQ(m.error, "");
    return m.run.model.layers;
  };
  EXPECT_EQ(layers("200", "10", "320"), 80);
  EXPECT_EQ(layers("200", "1", "32"), 79);
  EXPECT_EQ(layers("194", "6", "192"), 78);
  EXPECT_EQ(layers("190", "6", "192"), 75);
}

// 96 layers of 12288 are 174 billion parameters; a fifth off is another model.
TEST(Training, SizesThatColumnsDoNotGiveAreRefused) {
  EXPECT_EQ(Map(kGpt175, {{"params_b", "150"}}).error, "");
  EXPECT_THAT(Map(kGpt175, {{"params_b", "140"}}).error, HasSubstr("params_b=140"));
}

// Four heads times sequences a rank, or Megatron-DeepSpeed's run would have ended: 96 heads of 128
// over tp 8 do, 112 of 128 with one sequence do not.
TEST(Training, BlankHeadsAreSuchAsTheFusedSoftmaxTakes) {
  const auto heads = [](const char* family, const char* micro_batch) {
    const Mapped m = Map(kGpt175, {{"framework_family", family},
                                   {"framework_version", ""},
                                   {"hidden", "14336"},
                                   {"heads", ""},
                                   {"kv_heads", ""},
                                   {"ffn_hidden", ""},
                                   {"params_b", ""},
                                   {"micro_batch", micro_batch}});
    EXPECT_EQ(m.error, "");
    return m.run.model.heads;
  };
  EXPECT_EQ(heads("megatron-deepspeed", "1"), 128);
  EXPECT_EQ(heads("megatron-deepspeed", "2"), 112);
  EXPECT_EQ(heads("megatron", "1"), 112);
}

TEST(Training, Strata) {
  EXPECT_EQ(Map(kGpt175, {{"arch", "moe"}, {"gpus", "8"}}).stratum, "moe");
  EXPECT_EQ(Map(kGpt175, {{"sharding", "zero3"}, {"gpus", "8"}}).stratum, "fsdp/zero3");
  EXPECT_EQ(Map(kGpt175, {{"gpus", "8"}}).stratum, "one node, small");
  EXPECT_EQ(Map(kGpt175, {{"gpus", "16"}}).stratum, "dense Hopper+");
  EXPECT_EQ(Map(kGpt175, {{"gpu", "A100-SXM4"}}).stratum, "dense A100");
  EXPECT_EQ(Map(kGpt175, {{"gpu", "K80"}}).stratum, "dense, other GPUs");
}

TEST(Frameworks, RulesAreReachable) {
  for (const std::string& name : FrameworkNames::BuiltIn().Rows()) {
    EXPECT_TRUE(job::FrameworkTable::BuiltIn().Find(name).ok()) << name;
  }
}

}  // namespace
}  // namespace orrery::search
