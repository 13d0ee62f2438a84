// The plan's enums and switches under the names that job files use, and most of them tables of
// measured runs (search/validate).
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "orrery/base/named.h"
#include "orrery/workload/plan.h"

namespace orrery::job {

using orrery::Choose;
using orrery::Find;
using orrery::NameOf;

inline constexpr std::array<Named<workload::Precision>, 3> kPrecisions = {
    {{"bf16", workload::Precision::kBf16},
     {"fp16", workload::Precision::kFp16},
     {"fp32", workload::Precision::kFp32}}};
// Precisions of linear layers beside bf16; fp8 is split by recipe.
inline constexpr std::array<Named<workload::LowPrecision>, 2> kLowPrecisions = {
    {{"mxfp8", workload::LowPrecision::kMxfp8}, {"nvfp4", workload::LowPrecision::kNvfp4}}};
inline constexpr std::array<Named<workload::LowPrecision>, 3> kFp8Recipes = {
    {{"delayed", workload::LowPrecision::kDelayed},
     {"current", workload::LowPrecision::kCurrent},
     {"blockwise", workload::LowPrecision::kBlockwise}}};
inline constexpr std::array<Named<workload::CpExchange>, 3> kCpExchanges = {
    {{"ring", workload::CpExchange::kRing},
     {"all-gather", workload::CpExchange::kAllGather},
     {"all-to-all", workload::CpExchange::kAllToAll}}};
inline constexpr std::array<Named<workload::RankOrder>, 2> kRankOrders = {
    {{"tp-cp-dp-pp", workload::RankOrder::kDpPp}, {"tp-cp-pp-dp", workload::RankOrder::kPpDp}}};
inline constexpr std::array<Named<workload::Optimizer>, 5> kOptimizers = {
    {{"adam", workload::Optimizer::kAdam},
     {"adamw", workload::Optimizer::kAdam},
     {"adafactor", workload::Optimizer::kAdafactor},
     {"muon", workload::Optimizer::kMuon},
     {"sgd", workload::Optimizer::kSgd}}};
inline constexpr std::array<Named<workload::CudaGraphs>, 3> kCudaGraphs = {
    {{"none", workload::CudaGraphs::kNone},
     {"layers", workload::CudaGraphs::kLayers},
     {"iteration", workload::CudaGraphs::kIteration}}};
inline constexpr std::array<Named<std::uint8_t>, 4> kLoraTargets = {
    {{"all", workload::kLoraAll},
     {"attention", workload::kLoraQkv | workload::kLoraProjection},
     {"qkv", workload::kLoraQkv},
     {"mlp", workload::kLoraFc1 | workload::kLoraFc2}}};
inline constexpr std::array<Named<workload::Recompute>, 3> kRecomputes = {
    {{"none", workload::Recompute::kNone},
     {"selective", workload::Recompute::kSelective},
     {"full", workload::Recompute::kFull}}};
inline constexpr std::array<Named<workload::RecomputeMethod>, 3> kRecomputeMethods = {
    {{"uniform", workload::RecomputeMethod::kUniform},
     {"block", workload::RecomputeMethod::kBlock},
     {"every", workload::RecomputeMethod::kEvery}}};
inline constexpr std::array<Named<workload::TorchLayers>, 3> kTorchLayers = {
    {{"fused", workload::TorchLayers::kFused},
     {"compiled", workload::TorchLayers::kCompiled},
     {"eager", workload::TorchLayers::kEager}}};
inline constexpr std::array<Named<workload::RecomputeKeeps>, 6> kRecomputeKeeps = {
    {{"nothing", workload::RecomputeKeeps::kNothing},
     {"last", workload::RecomputeKeeps::kLast},
     {"qkv", workload::RecomputeKeeps::kQkv},
     {"qkv_out", workload::RecomputeKeeps::kQkvOut},
     {"products", workload::RecomputeKeeps::kProducts},
     {"every_other", workload::RecomputeKeeps::kEveryOther}}};
inline constexpr std::array<Named<workload::Sharding>, 4> kShardings = {
    {{"none", workload::Sharding::kNone},
     {"zero1", workload::Sharding::kZero1},
     {"zero2", workload::Sharding::kZero2},
     {"zero3", workload::Sharding::kZero3}}};
inline constexpr std::array<Named<workload::AttentionBackend>, 6> kAttentions = {
    {{"unfused", workload::AttentionBackend::kUnfused},
     {"flash1", workload::AttentionBackend::kFlash1},
     {"flash2", workload::AttentionBackend::kFlash2},
     {"flash3", workload::AttentionBackend::kFlash3},
     {"flash4", workload::AttentionBackend::kFlash4},
     {"cudnn", workload::AttentionBackend::kCudnn}}};

// Precision as a job file says it: that of the linear layers.
inline std::string_view PrecisionName(const workload::Plan& plan) {
  if (plan.precision.low == workload::LowPrecision::kNone)
    return NameOf(kPrecisions, plan.precision.type);
  const std::string_view name = NameOf(kLowPrecisions, plan.precision.low);
  return name == "?" ? "fp8" : name;
}

// When a switch changes anything: what `assumed` and the configuration leave out otherwise.
inline bool Always(const workload::Plan&) { return true; }
inline bool WhenUnitsAreTensors(const workload::Plan& plan) {
  return plan.gathers_units() && !plan.framework.flat_parameters;
}
inline bool WhenSharded(const workload::Plan& plan) { return plan.gathers_units(); }
inline bool WhenLowPrecision(const workload::Plan& plan) {
  return plan.precision.low != workload::LowPrecision::kNone;
}

inline bool WhenZero1(const workload::Plan& plan) {
  return plan.memory.sharding == workload::Sharding::kZero1;
}

inline bool WhenBroadcasting(const workload::Plan& plan) {
  return plan.framework.broadcast_parameters;
}
inline bool WhenDdp(const workload::Plan& plan) {
  return plan.framework.reducer == workload::Reducer::kDdp;
}
inline bool WhenNotClipping(const workload::Plan& plan) { return !plan.framework.clip_gradients; }

inline bool WhenAdamIsNotFused(const workload::Plan& plan) {
  return plan.optimizer == workload::Optimizer::kAdam && !plan.framework.fused_adam;
}
inline bool WhenUnfused(const workload::Plan& plan) {
  return plan.framework.attention == workload::AttentionBackend::kUnfused &&
         plan.framework.keeps_scores;
}
inline bool WhenChunked(const workload::Plan& plan) { return plan.framework.chunked_loss; }
inline bool WhenConverted(const workload::Plan& plan) { return plan.framework.converted_gradients; }
inline bool WithTorchLoss(const workload::Plan& plan) { return plan.framework.torch_loss; }
inline bool WithEmbeddingProduct(const workload::Plan& plan) {
  return plan.framework.embedding_product;
}
inline bool WithStackedLayers(const workload::Plan& plan) { return plan.framework.stacked_layers; }
inline bool WithQkvBiasKernel(const workload::Plan& plan) { return plan.framework.qkv_bias_kernel; }
inline bool WhenQuiet(const workload::Plan& plan) { return plan.framework.quiet_loop; }
inline bool WhenDeterministic(const workload::Plan& plan) { return plan.framework.deterministic; }
inline bool WithUnpadding(const workload::Plan& plan) { return plan.framework.unpads_attention; }
inline bool WithPlainLayers(const workload::Plan& plan) {
  return plan.framework.torch_layers != workload::TorchLayers::kFused;
}
inline bool WithLossMetrics(const workload::Plan& plan) { return plan.framework.loss_metrics; }
inline bool WithInPlaceKernels(const workload::Plan& plan) {
  return plan.framework.in_place_kernels;
}
inline bool WithFlatStep(const workload::Plan& plan) { return plan.framework.flat_step; }
inline bool WithContiguousGradients(const workload::Plan& plan) {
  return plan.gathers_units() && plan.framework.contiguous_gradients;
}
inline bool WithFusedLoss(const workload::Plan& plan) { return plan.framework.fused_cross_entropy; }
inline bool WithOnlineLoss(const workload::Plan& plan) {
  return plan.framework.online_cross_entropy;
}
inline bool WithFusedExperts(const workload::Plan& plan) {
  return plan.framework.moe_fused_router || plan.framework.moe_fused_permute;
}

inline bool WithPieces(const workload::Plan& plan) {
  return plan.parallel.tp > 1 && plan.parallel.sequence_parallel;
}

inline bool WithPadding(const workload::Plan& plan) { return plan.pads_experts(); }

inline bool WithFp8Attention(const workload::Plan& plan) { return plan.framework.fp8_attention; }
inline bool WithFp8OutputLayer(const workload::Plan& plan) {
  return plan.framework.fp8_output_layer;
}
inline bool WithFusedMlp(const workload::Plan& plan) { return plan.framework.moe_fused_mlp; }

inline bool WithListGathers(const workload::Plan& plan) {
  return plan.gathers_units() && plan.framework.list_gathers;
}

inline bool WithHeldUnits(const workload::Plan& plan) {
  return plan.gathers_units() && plan.framework.hold_units;
}

inline bool WithModelTypeStates(const workload::Plan& plan) {
  return plan.gathers_units() && plan.framework.model_type_states;
}

inline bool WithUnitBuffers(const workload::Plan& plan) {
  return plan.gathers_units() && plan.framework.unit_buffers;
}

inline bool WithWarmupFlush(const workload::Plan& plan) {
  return plan.framework.overlap_p2p_warmup_flush;
}

struct PlanFlag {
  std::string_view key;
  bool workload::FrameworkBehaviour::*member;
  bool (*matters)(const workload::Plan&) = Always;
};
inline constexpr PlanFlag kPlanFlags[] = {
    {"overlap_grad_reduce", &workload::FrameworkBehaviour::overlap_grad_reduce},
    {"overlap_param_gather", &workload::FrameworkBehaviour::overlap_param_gather},
    {"overlap_p2p", &workload::FrameworkBehaviour::overlap_p2p},
    {"overlap_p2p_warmup_flush", &workload::FrameworkBehaviour::overlap_p2p_warmup_flush,
     WithWarmupFlush},
    {"tp_comm_overlap", &workload::FrameworkBehaviour::tp_comm_overlap, WithPieces},
    {"grad_reduce_fp32", &workload::FrameworkBehaviour::grad_reduce_fp32},
    {"fused_bias_activation", &workload::FrameworkBehaviour::fused_bias_activation},
    {"fused_softmax", &workload::FrameworkBehaviour::fused_softmax},
    {"fused_weight_gradient", &workload::FrameworkBehaviour::fused_weight_gradient},
    {"converted_gradients", &workload::FrameworkBehaviour::converted_gradients, WhenConverted},
    {"fused_adam", &workload::FrameworkBehaviour::fused_adam},
    {"fused_cross_entropy", &workload::FrameworkBehaviour::fused_cross_entropy, WithFusedLoss},
    {"online_cross_entropy", &workload::FrameworkBehaviour::online_cross_entropy, WithOnlineLoss},
    {"chunked_loss", &workload::FrameworkBehaviour::chunked_loss, WhenChunked},
    {"torch_loss", &workload::FrameworkBehaviour::torch_loss, WithTorchLoss},
    {"loss_metrics", &workload::FrameworkBehaviour::loss_metrics, WithLossMetrics},
    {"deterministic", &workload::FrameworkBehaviour::deterministic, WhenDeterministic},
    {"quiet_loop", &workload::FrameworkBehaviour::quiet_loop, WhenQuiet},
    {"unpads_attention", &workload::FrameworkBehaviour::unpads_attention, WithUnpadding},
    {"repeats_kv", &workload::FrameworkBehaviour::repeats_kv, WithPlainLayers},
    {"embedding_product", &workload::FrameworkBehaviour::embedding_product, WithEmbeddingProduct},
    {"stacked_layers", &workload::FrameworkBehaviour::stacked_layers, WithStackedLayers},
    {"qkv_bias_kernel", &workload::FrameworkBehaviour::qkv_bias_kernel, WithQkvBiasKernel},
    {"in_place_kernels", &workload::FrameworkBehaviour::in_place_kernels, WithInPlaceKernels},
    {"flat_step", &workload::FrameworkBehaviour::flat_step, WithFlatStep},
    {"contiguous_gradients", &workload::FrameworkBehaviour::contiguous_gradients,
     WithContiguousGradients},
    {"keeps_scores", &workload::FrameworkBehaviour::keeps_scores, WhenUnfused},
    {"moe_fused_router", &workload::FrameworkBehaviour::moe_fused_router, WithFusedExperts},
    {"moe_fused_permute", &workload::FrameworkBehaviour::moe_fused_permute, WithFusedExperts},
    {"moe_separate_padding", &workload::FrameworkBehaviour::moe_separate_padding, WithPadding},
    {"moe_fused_mlp", &workload::FrameworkBehaviour::moe_fused_mlp, WithFusedMlp},
    {"fp8_attention", &workload::FrameworkBehaviour::fp8_attention, WithFp8Attention},
    {"fp8_output_layer", &workload::FrameworkBehaviour::fp8_output_layer, WithFp8OutputLayer},
    {"align_grad_reduce", &workload::FrameworkBehaviour::align_grad_reduce},
    {"align_param_gather", &workload::FrameworkBehaviour::align_param_gather},
    {"recompute_flash", &workload::FrameworkBehaviour::recompute_flash},
    {"overlap_tp_all_reduce", &workload::FrameworkBehaviour::overlap_tp_all_reduce},
    {"scatter_gather_p2p", &workload::FrameworkBehaviour::scatter_gather_p2p},
    {"batch_p2p_sync", &workload::FrameworkBehaviour::batch_p2p_sync},
    {"low_precision_gather", &workload::FrameworkBehaviour::low_precision_gather, WhenLowPrecision},
    {"prefetch", &workload::FrameworkBehaviour::prefetch, WhenSharded},
    {"flat_parameters", &workload::FrameworkBehaviour::flat_parameters, WhenSharded},
    {"copies_units", &workload::FrameworkBehaviour::copies_units, WhenUnitsAreTensors},
    {"unit_buffers", &workload::FrameworkBehaviour::unit_buffers, WithUnitBuffers},
    {"hold_units", &workload::FrameworkBehaviour::hold_units, WithHeldUnits},
    {"model_type_states", &workload::FrameworkBehaviour::model_type_states, WithModelTypeStates},
    {"list_gathers", &workload::FrameworkBehaviour::list_gathers, WithListGathers},
    {"adam_loop", &workload::FrameworkBehaviour::adam_loop, WhenAdamIsNotFused},
    {"reduce_whole", &workload::FrameworkBehaviour::reduce_whole, WhenZero1},
    {"broadcast_parameters", &workload::FrameworkBehaviour::broadcast_parameters, WhenBroadcasting},
    {"bucket_views", &workload::FrameworkBehaviour::bucket_views, WhenDdp},
    {"clip_gradients", &workload::FrameworkBehaviour::clip_gradients, WhenNotClipping},
    {"batch_sync", &workload::FrameworkBehaviour::batch_sync},
    {"log_every_step", &workload::FrameworkBehaviour::log_every_step}};

// Keys at the top of a job file that have a section of their own.
inline std::span<const std::string_view> TopKeys() {
  static constexpr std::array<std::string_view, 17> kKeys = {
      "model",  "cluster", "parallel",   "training",   "framework_options",
      "nccl",   "perturb", "simulation", "memory",     "loggops",
      "packet", "jobs",    "assume",     "collective", "data",
      "cost",   "goodput"};
  return kKeys;
}

}  // namespace orrery::job
