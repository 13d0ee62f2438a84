#include "orrery/workload/switches.h"

namespace orrery::workload {
namespace {

// When a switch changes anything: what `assumed` and the configuration leave out otherwise.
bool Always(const Plan&) { return true; }
bool WhenUnitsAreTensors(const Plan& plan) {
  return plan.gathers_units() && !plan.framework.flat_parameters;
}
bool WhenSharded(const Plan& plan) { return plan.gathers_units(); }
bool WhenLowPrecision(const Plan& plan) { return plan.precision.low != LowPrecision::kNone; }
bool WhenZero1(const Plan& plan) { return plan.memory.sharding == Sharding::kZero1; }
bool WhenBroadcasting(const Plan& plan) { return plan.framework.broadcast_parameters; }
bool WhenDdp(const Plan& plan) { return plan.framework.reducer == Reducer::kDdp; }
bool WhenNotClipping(const Plan& plan) { return !plan.framework.clip_gradients; }
bool WhenAdamIsNotFused(const Plan& plan) {
  return plan.optimizer == Optimizer::kAdam && !plan.framework.fused_adam;
}
bool WhenUnfused(const Plan& plan) {
  return plan.framework.attention == AttentionBackend::kUnfused && plan.framework.keeps_scores;
}
bool WhenChunked(const Plan& plan) { return plan.framework.chunked_loss; }
bool WhenConverted(const Plan& plan) { return plan.framework.converted_gradients; }
bool WithTorchLoss(const Plan& plan) { return plan.framework.torch_loss; }
bool WithEmbeddingProduct(const Plan& plan) { return plan.framework.embedding_product; }
bool WithStackedLayers(const Plan& plan) { return plan.framework.stacked_layers; }
bool WithQkvBiasKernel(const Plan& plan) { return plan.framework.qkv_bias_kernel; }
bool WhenQuiet(const Plan& plan) { return plan.framework.quiet_loop; }
bool WhenDeterministic(const Plan& plan) { return plan.framework.deterministic; }
bool WithUnpadding(const Plan& plan) { return plan.framework.unpads_attention; }
bool WithPlainLayers(const Plan& plan) {
  return plan.framework.torch_layers != TorchLayers::kFused;
}
bool WithEagerLayers(const Plan& plan) {
  return plan.framework.torch_layers == TorchLayers::kEager;
}
bool WithExpertLoop(const Plan& plan) { return plan.framework.expert_loop; }
bool WithLossMetrics(const Plan& plan) { return plan.framework.loss_metrics; }
bool WithInPlaceKernels(const Plan& plan) { return plan.framework.in_place_kernels; }
bool WithFlatStep(const Plan& plan) { return plan.framework.flat_step; }
bool WithContiguousGradients(const Plan& plan) {
  return plan.gathers_units() && plan.framework.contiguous_gradients;
}
bool WithFusedLoss(const Plan& plan) { return plan.framework.fused_cross_entropy; }
bool WithOnlineLoss(const Plan& plan) { return plan.framework.online_cross_entropy; }
bool WithFusedExperts(const Plan& plan) {
  return plan.framework.moe_fused_router || plan.framework.moe_fused_permute;
}
bool WithWarmupFlush(const Plan& plan) { return plan.framework.overlap_p2p_warmup_flush; }
bool WithPieces(const Plan& plan) {
  return plan.parallel.tp > 1 && plan.parallel.sequence_parallel;
}
bool WithPadding(const Plan& plan) { return plan.pads_experts(); }
bool WithFp8Attention(const Plan& plan) { return plan.framework.fp8_attention; }
bool WithFp8OutputLayer(const Plan& plan) { return plan.framework.fp8_output_layer; }
bool WithFp8ActivationInput(const Plan& plan) { return plan.framework.fp8_activation_input; }
bool WithShortMainGradients(const Plan& plan) { return plan.framework.bf16_main_gradients; }
bool WithPreparedBase(const Plan& plan) { return plan.framework.prepared_base; }
bool WithPackedContext(const Plan& plan) { return plan.framework.packed_context; }
bool WithFusedMlp(const Plan& plan) { return plan.framework.moe_fused_mlp; }
bool WithListGathers(const Plan& plan) {
  return plan.gathers_units() && plan.framework.list_gathers;
}
bool WithHeldUnits(const Plan& plan) { return plan.gathers_units() && plan.framework.hold_units; }
bool WhenAccumulatingUnits(const Plan& plan) {
  return plan.gathers_units() && !plan.keeps_units() && plan.microbatches() > 1;
}
bool WhenAccumulatingGroups(const Plan& plan) {
  return WhenAccumulatingUnits(plan) && plan.hybrid();
}
bool WithModelTypeStates(const Plan& plan) {
  return (plan.gathers_units() || plan.updates_in_place()) && plan.framework.model_type_states;
}
bool WithNf4Tensor(const Plan& plan) { return plan.lora.base == BaseWeights::kNf4; }
bool WithEmbeddingStates(const Plan& plan) {
  return plan.optimizer_states != OptimizerStates::kFull &&
         plan.optimizer_states != OptimizerStates::kBf16 && plan.lora.rank == 0;
}
bool WithOptimizerInBackward(const Plan& plan) { return plan.framework.optimizer_in_backward; }
bool WithAdapters(const Plan& plan) { return plan.lora.rank > 0; }
bool WithUnitBuffers(const Plan& plan) {
  return plan.gathers_units() && plan.framework.unit_buffers;
}

constexpr Switch kSwitches[] = {
#define ORRERY_SWITCH(name, fallback, matters, doc) \
  {#name, &FrameworkBehaviour::name, matters, doc},
#include "orrery/workload/framework_switches.inc"
#undef ORRERY_SWITCH
};

}  // namespace

std::span<const Switch> Switches() { return kSwitches; }

}  // namespace orrery::workload
