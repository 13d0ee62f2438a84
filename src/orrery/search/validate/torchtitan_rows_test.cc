// Rows of torchtitan: what is compiled, how a replica's batch and the layers are cut.

#include <gmock/gmock.h>

#include "orrery/search/validate/test_support.h"

namespace orrery::search {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::StartsWith;
using workload::TorchLayers;

const Cells kLlama405 = {{"framework_family", "fsdp2"},
                         {"framework", "torchtitan"},
                         {"measured_date", "2024-12"},
                         {"arch", "dense"},
                         {"model", "Llama3.1-405B"},
                         {"layers", "126"},
                         {"hidden", "16384"},
                         {"heads", "128"},
                         {"kv_heads", "8"},
                         {"ffn_hidden", "53248"},
                         {"vocab", "128256"},
                         {"seq_len", "8192"},
                         {"gpu", "H100-SXM5"},
                         {"gpu_mem_gb", "80"},
                         {"gpus", "512"},
                         {"gpus_per_node", "8"},
                         {"fabric", "ib"},
                         {"tp", "8"},
                         {"pp", "8"},
                         {"dp", "8"},
                         {"sharding", "zero3"},
                         {"seq_parallel", "1"},
                         {"recompute", "full"},
                         {"micro_batch", "32"},
                         {"global_batch", "256"},
                         {"compute_dtype", "bf16"}};

TEST(TorchNative, CompiledWhereTheRowSaysSo) {
  const auto layers = [](const Cells& changes) {
    return PlanOf(kLlama405, changes).framework.torch_layers;
  };
  EXPECT_EQ(layers({}), TorchLayers::kEager);
  EXPECT_EQ(layers({{"config_extra", "compile+float8"}}), TorchLayers::kCompiled);
  EXPECT_EQ(layers({{"framework", "torchtitan FSDP2 + compile"}}), TorchLayers::kCompiled);
  EXPECT_EQ(layers({{"framework", "NeMo Automodel"}}), TorchLayers::kFused);
  EXPECT_EQ(layers({{"config_extra", "liger"}}), TorchLayers::kFused);
  EXPECT_EQ(PlanOf(kGpt175, {}).framework.torch_layers, TorchLayers::kFused);
}

// Hugging Face's layers under DeepSpeed; flash-attn's kernel takes shared keys and values.
TEST(TorchNative, DeepSpeedBringsNoLayers) {
  const Cells deepspeed = {{"framework_family", "deepspeed"},
                           {"framework", "DeepSpeed ZeRO-3"},
                           {"tp", "1"},
                           {"pp", "1"},
                           {"dp", "512"},
                           {"seq_parallel", "0"},
                           {"micro_batch", "1"},
                           {"global_batch", "512"}};
  EXPECT_EQ(PlanOf(kLlama405, deepspeed).framework.torch_layers, TorchLayers::kEager);
  EXPECT_FALSE(PlanOf(kLlama405, deepspeed).framework.repeats_kv);
  EXPECT_EQ(PlanOf(With(kLlama405, deepspeed), {{"config_extra", "liger"}}).framework.torch_layers,
            TorchLayers::kFused);
}

TEST(TorchNative, RepeatsKeysUntilTorchtitanStopped) {
  EXPECT_TRUE(PlanOf(kLlama405, {}).framework.repeats_kv);
  EXPECT_FALSE(PlanOf(kLlama405, {{"measured_date", "2026-02"}}).framework.repeats_kv);
}

TEST(TorchNative, AsyncTensorParallelismNeedsTheCompiler) {
  EXPECT_FALSE(PlanOf(kLlama405, {{"tp_comm_overlap", "1"}}).framework.tp_comm_overlap);
  EXPECT_TRUE(PlanOf(kLlama405, {{"config_extra", "compile+asyncTP"}}).framework.tp_comm_overlap);
}

// One pass of 32 sequences over eight stages would leave them idle most of the time.
TEST(TorchNative, AReplicasBatchIsCut) {
  EXPECT_EQ(PlanOf(kLlama405, {}).batch.micro_batch, 4);  // as many as stages
  EXPECT_EQ(PlanOf(kLlama405, {{"measured_date", "2025-06"}}).batch.micro_batch, 1);  // samples
  EXPECT_EQ(PlanOf(kLlama405, {{"grad_accum", "16"}}).batch.micro_batch, 2);          // as stated
  const workload::Plan passes = PlanOf(kLlama405, {{"micro_batch", "4"}, {"grad_accum", "8"}});
  EXPECT_EQ(passes.batch.micro_batch, 4);
  EXPECT_EQ(passes.microbatches(), 8);
  // Two local batches of 16 on eight stages: samples.
  EXPECT_EQ(PlanOf(kLlama405, {{"micro_batch", "16"}, {"grad_accum", "2"}}).batch.micro_batch, 1);
}

TEST(TorchNative, StagesAsTorchtitanCutsThem) {
  EXPECT_THAT(PlanOf(kLlama405, {}).parallel.layers_per_stage,
              ElementsAre(15, 16, 16, 16, 16, 16, 16, 15));
  const Cells small = {{"layers", "30"}, {"pp", "4"}, {"dp", "16"}, {"micro_batch", "16"}};
  const auto stages = [&](std::string date) {
    return PlanOf(With(kLlama405, small), {{"measured_date", std::move(date)}})
        .parallel.layers_per_stage;
  };
  EXPECT_THAT(stages("2024-12"), ElementsAre(7, 8, 8, 7));
  EXPECT_TRUE(PlanOf(kLlama405, {{"layers", "128"}}).parallel.layers_per_stage.empty());
  EXPECT_THAT(
      PlanOf(kLlama405, {{"layers", "32"}, {"measured_date", "2025-06"}}).parallel.layers_per_stage,
      ElementsAre(4, 5, 4, 4, 4, 4, 4, 3));
  const Mapped m = Map(kLlama405, {{"vpp", ""}, {"config_extra", "Interleaved1F1B"}});
  EXPECT_EQ(m.run.plan.parallel.vpp, 2);
  EXPECT_EQ(m.run.plan.parallel.layers_per_stage.size(), 16U);
}

const Cells kQwen30 = {{"framework_family", "fsdp2"},
                       {"framework", "NeMo Automodel"},
                       {"arch", "moe"},
                       {"model", "Qwen3-30B-A3B"},
                       {"layers", "48"},
                       {"hidden", "2048"},
                       {"heads", "32"},
                       {"kv_heads", "4"},
                       {"experts", "128"},
                       {"topk", "8"},
                       {"seq_len", "4096"},
                       {"gpu", "H100-SXM5"},
                       {"gpu_mem_gb", "80"},
                       {"gpus", "8"},
                       {"gpus_per_node", "8"},
                       {"tp", "1"},
                       {"pp", "1"},
                       {"ep", "8"},
                       {"dp", "8"},
                       {"sharding", "zero3"},
                       {"micro_batch", "4"},
                       {"global_batch", "512"},
                       {"compute_dtype", "bf16"}};

// Its benchmark recipes: units held for the step, Transformer Engine's attention, DeepEP and a gate
// that deals experts out in turn, whole blocks checkpointed but for some models.
TEST(TorchNative, AutomodelsModelsWithExperts) {
  const workload::Plan plan = PlanOf(kQwen30, {});
  EXPECT_TRUE(plan.framework.hold_units);
  EXPECT_TRUE(plan.framework.model_type_states);
  EXPECT_EQ(plan.framework.torch_layers, TorchLayers::kFused);
  EXPECT_EQ(plan.framework.attention, workload::AttentionBackend::kCudnn);
  EXPECT_EQ(plan.experts.dispatcher, workload::Dispatcher::kDeepEp);
  EXPECT_EQ(plan.experts.routing, workload::Routing::kRoundRobin);
  EXPECT_EQ(plan.memory.recompute, workload::Recompute::kFull);
  EXPECT_EQ(PlanOf(kQwen30, {{"gpu", "GB200"}, {"gpus_per_node", "4"}}).experts.dispatcher,
            workload::Dispatcher::kHybridEp);
  EXPECT_EQ(PlanOf(kQwen30, {{"moe_routing", "learned"}}).experts.routing,
            workload::Routing::kBalanced);
  // Left to itself, as in torchtitan's runs from scratch, unless tokens are dropped.
  const Cells natural = {{"moe_routing", "natural"}};
  EXPECT_EQ(PlanOf(kQwen30, natural).experts.routing, workload::Routing::kNatural);
  EXPECT_EQ(PlanOf(With(kQwen30, natural), {{"config_extra", "tokendrop"}}).experts.routing,
            workload::Routing::kBalanced);
  const Cells titan = {{"framework", "torchtitan"}, {"framework_version", "torch 2.8"}};
  EXPECT_EQ(PlanOf(kQwen30, titan).experts.routing, workload::Routing::kNatural);
  // 48 layers in chunks of two over four stages: six a stage.
  const Mapped stages = Map(kQwen30, {{"pp", "4"}, {"gpus", "32"}, {"micro_batch", "1"}});
  EXPECT_EQ(stages.error, "");
  EXPECT_EQ(stages.run.plan.parallel.vpp, 6);
}

TEST(TorchNative, HybridShardingIsZero3InGroups) {
  const workload::Plan plan =
      PlanOf(kLlama405, {{"sharding", "hsdp"}, {"pp", "1"}, {"dp", "64"}, {"micro_batch", "1"}});
  EXPECT_EQ(plan.memory.sharding, workload::Sharding::kZero3);
  EXPECT_EQ(plan.memory.shard_group, 8);
}

TEST(TorchNative, AutomodelsDenseModelsAreHuggingFaces) {
  const workload::Plan plan = PlanOf(kLlama405, {{"framework", "NeMo Automodel"},
                                                 {"task", "lora"},
                                                 {"pp", "1"},
                                                 {"dp", "64"},
                                                 {"micro_batch", "1"}});
  EXPECT_FALSE(plan.framework.hold_units);
  EXPECT_EQ(plan.framework.attention, workload::AttentionBackend::kFlash2);
  EXPECT_EQ(plan.lora.rank, 16);
  EXPECT_EQ(plan.lora.targets, workload::kLoraAll);
}

TEST(TorchNative, ContextParallelRanksGatherKeys) {
  EXPECT_EQ(
      PlanOf(kLlama405, {{"cp", "8"}, {"dp", "1"}, {"global_batch", "32"}}).parallel.cp_exchange,
      workload::CpExchange::kAllGather);
}

// Printed degrees that do not multiply: what the GPUs leave holds.
TEST(TorchNative, DataParallelRanksFollowTheGpus) {
  const Mapped m = Map(kGpt175, {{"dp", "96"}});
  EXPECT_EQ(m.error, "");
  EXPECT_EQ(m.run.plan.parallel.dp, 48);
  EXPECT_THAT(m.assumed, Contains(StartsWith("dp=48 (96 contradicts gpus")));
}

}  // namespace
}  // namespace orrery::search
