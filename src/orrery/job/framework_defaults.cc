// A row's defaults put into a plan: what holds under its precision, sharding, model and GPU.
#include "orrery/job/frameworks.h"

namespace orrery::job {

using workload::FrameworkBehaviour;
using workload::LowPrecision;
using workload::Plan;
using workload::Recompute;
using workload::RecomputeKeeps;
using workload::Sharding;

namespace {

// DeepSpeed's reduce_bucket_size, elements.
constexpr std::int64_t kDeepSpeedBucket = 500'000'000;

// Whether gradients of parameters of this type are kept and reduced in fp32.
bool ReducesInFp32(const FrameworkDefaults& d, workload::Precision precision) {
  return precision == workload::Precision::kFp32 ||
         (precision == workload::Precision::kBf16 && d.options.grad_reduce_fp32);
}

void ApplyLoss(LossDefault loss, Plan* plan) {
  plan->framework.fused_cross_entropy = loss == LossDefault::kFused;
  plan->framework.online_cross_entropy = loss == LossDefault::kOnline;
  plan->framework.torch_loss = loss == LossDefault::kTorch;
}

// Whether FSDP2's units stay for the step without stages, once sharding and adapters are known.
bool HoldsUnits(const FrameworkDefaults& d, const workload::Model& model, const Plan& plan) {
  return d.options.hold_units && model.experts.count > 0 && plan.gathers_units() &&
         plan.lora.rank == 0;
}

// What gradients are reduced from, and in which type where DistributedDataParallel decides it.
// REQUIRES: sharding is known, and grad_reduce_fp32 is set and may be set again.
void ApplyReducer(const FrameworkDefaults& d, Plan* plan) {
  FrameworkBehaviour& f = plan->framework;
  f.bucket_elements = d.options.bucket_elements;
  const bool zero2 = plan->memory.sharding == Sharding::kZero2;
  if (d.tensor_buckets && (zero2 || plan->memory.sharding == Sharding::kZero1)) {
    if (zero2) f.reducer = workload::Reducer::kDeepSpeed;
    f.overlap_param_gather = false;
    f.bucket_elements = kDeepSpeedBucket;
  }
  f.contiguous_gradients = d.tensor_buckets && plan->memory.sharding == Sharding::kZero3;
  if (f.contiguous_gradients) f.bucket_elements = kDeepSpeedBucket;
  f.align_grad_reduce = f.align_param_gather = d.align_stages;
  if (!d.ddp) return;
  f.reducer = workload::Reducer::kDdp;
  f.grad_reduce_fp32 = true;
}

}  // namespace

workload::AttentionBackend AttentionOn(cluster::Arch arch, AttentionDefault attention) {
  using workload::AttentionBackend;
  switch (attention) {
    case AttentionDefault::kUnfused:
      return AttentionBackend::kUnfused;
    case AttentionDefault::kFlash1:
      return AttentionBackend::kFlash1;
    case AttentionDefault::kFlash2:
      return AttentionBackend::kFlash2;
    case AttentionDefault::kTorch:
      return arch == cluster::Arch::kBlackwell ? AttentionBackend::kCudnn
                                               : AttentionBackend::kFlash2;
    case AttentionDefault::kLibrary:
      break;
  }
  return arch >= cluster::Arch::kHopper ? AttentionBackend::kCudnn : AttentionBackend::kFlash2;
}

workload::AttentionBackend AttentionFor(const FrameworkDefaults& d, cluster::Arch arch,
                                        const workload::Model& model) {
  using workload::AttentionBackend;
  const bool dense = model.experts.count == 0;
  const AttentionBackend kernel =
      AttentionOn(arch, dense ? d.dense_attention.value_or(d.attention) : d.attention);
  if (model.sinks && (d.options.torch_layers != workload::TorchLayers::kFused || d.flex_sinks)) {
    return AttentionBackend::kFlash2;
  }
  if (model.sinks && kernel != AttentionBackend::kCudnn) return AttentionBackend::kUnfused;
  const bool limited = d.libraries.transformer_engine && arch == cluster::Arch::kBlackwell;
  if (kernel != AttentionBackend::kCudnn || !limited) return kernel;
  constexpr std::int64_t kWidest = 128;
  const workload::Latent& l = model.latent;
  if (l.kv_rank == 0) {
    return model.head_dim > kWidest ? AttentionBackend::kFlash2 : AttentionBackend::kCudnn;
  }
  const bool narrow = l.nope_dim + l.rope_dim <= kWidest && l.v_dim <= kWidest;
  return narrow || d.fused_latent_blackwell ? AttentionBackend::kCudnn : AttentionBackend::kUnfused;
}

void ApplyRecompute(const FrameworkDefaults& d, Plan* plan) {
  plan->framework.recompute_flash = d.options.recompute_flash;
  plan->framework.recompute_keeps = plan->memory.recompute == Recompute::kFull ? d.full_keeps
                                    : plan->memory.recompute == Recompute::kSelective
                                        ? d.selective_keeps
                                        : RecomputeKeeps::kNothing;
}

void ApplyGradientSums(const FrameworkDefaults& d, Plan* plan) {
  FrameworkBehaviour& f = plan->framework;
  f.fused_weight_gradient =
      d.fused_weight_gradient == WeightGradientFusion::kAny ||
      (d.fused_weight_gradient == WeightGradientFusion::kFp32 && f.grad_reduce_fp32);
  f.converted_gradients = d.options.converted_gradients && f.grad_reduce_fp32 &&
                          plan->precision.type == workload::Precision::kBf16;
}

// DeepSpeed's ZeRO-1 wraps any optimizer, Megatron's distributed one knows Adam's state alone.
Status CheckSharded(std::string_view framework, const FrameworkDefaults& d, const Plan& plan) {
  if (plan.optimizer != workload::Optimizer::kAdafactor ||
      plan.memory.sharding != Sharding::kZero1 || d.tensor_buckets) {
    return {};
  }
  return InvalidInput(
      "training.optimizer: {}'s zero1 takes no adafactor; use sharding: none, optimizer: adam, or "
      "framework: deepspeed",
      framework);
}

void ApplyZero1(const FrameworkDefaults& d, Plan* plan) {
  const bool zero1 = plan->memory.sharding == Sharding::kZero1;
  FrameworkBehaviour& f = plan->framework;
  f.broadcast_parameters = zero1 && d.options.broadcast_parameters;
  f.reduce_whole = zero1 && d.options.reduce_whole &&
                   (f.broadcast_parameters || d.tensor_buckets ||
                    plan->precision.type == workload::Precision::kBf16);
}

void ClearExpertSwitches(const workload::Model& model, Plan* plan) {
  if (model.experts.count > 0) return;
  FrameworkBehaviour& f = plan->framework;
  f.moe_fused_router = f.moe_fused_permute = f.moe_separate_padding = false;
}

void ApplyDefaults(const FrameworkDefaults& d, cluster::Arch arch, const workload::Model& model,
                   Plan* plan) {
  const bool low = plan->precision.low != LowPrecision::kNone;
  const bool fp4 = plan->precision.low == LowPrecision::kNvfp4;
  const bool zero3 = plan->memory.sharding == Sharding::kZero3;
  FrameworkBehaviour& f = plan->framework;
  f = d.options;
  f.attention = AttentionFor(d, arch, model);
  f.fused_bias_activation &=
      !d.squared_relu_operators || model.activation != workload::Activation::kSquaredRelu;
  f.overlap_grad_reduce &= d.dp_overlap;
  f.overlap_param_gather &= d.dp_overlap;
  f.prefetch &= d.dp_overlap;
  f.tp_comm_overlap &= !fp4;
  f.grad_reduce_fp32 = ReducesInFp32(d, plan->precision.type);
  f.low_precision_gather &= low && !fp4;
  f.packed_context &= low && model.net == nullptr;
  f.fp8_activation_input &= low && model.activation == workload::Activation::kSwiglu;
  f.gather_limit = d.gather_limit;
  ApplyReducer(d, plan);
  f.list_gathers &= zero3;
  f.model_type_states &= plan->gathers_units();
  f.hold_units = HoldsUnits(d, model, *plan);
  ApplyGradientSums(d, plan);
  ApplyRecompute(d, plan);
  ApplyZero1(d, plan);
  ApplyLoss(d.loss, plan);
}

}  // namespace orrery::job
