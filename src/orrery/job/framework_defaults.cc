// A row's defaults put into a plan: what holds under its precision, sharding, model and GPU.
#include "orrery/job/frameworks.h"

namespace orrery::job {

using workload::LowPrecision;
using workload::Plan;
using workload::Recompute;
using workload::RecomputeKeeps;
using workload::Sharding;

namespace {

// DeepSpeed's reduce_bucket_size, elements.
constexpr std::int64_t kDeepSpeedBucket = 500'000'000;

// How gradients are gathered for their reduction.
void ApplyBuckets(const FrameworkDefaults& d, Plan* plan) {
  plan->framework.bucket_elements = d.bucket_elements;
  if (d.tensor_buckets && plan->memory.sharding == Sharding::kZero2) {
    plan->framework.reducer = workload::Reducer::kDeepSpeed;
    plan->framework.overlap_param_gather = false;
    plan->framework.bucket_elements = kDeepSpeedBucket;
  }
  plan->framework.contiguous_gradients =
      d.tensor_buckets && plan->memory.sharding == Sharding::kZero3;
  if (plan->framework.contiguous_gradients) plan->framework.bucket_elements = kDeepSpeedBucket;
}

// The optimizer's kernels and what a training loop computes and reads beside them.
void ApplyStep(const FrameworkDefaults& d, Plan* plan) {
  plan->framework.flat_step = d.flat_step;
  plan->framework.adam_loop = d.adam_loop;
  if (d.adam_loop) plan->framework.fused_adam = false;
  plan->framework.loss_metrics = d.loss_metrics;
  plan->framework.unpads_attention = d.unpads_attention;
  plan->framework.embedding_product = d.embedding_product;
  plan->framework.stacked_layers = d.stacked_layers;
  plan->framework.log_every_step = d.log_every_step;
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
  const AttentionBackend kernel = AttentionOn(arch, d.attention);
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

void ApplyLoss(LossDefault loss, Plan* plan) {
  plan->framework.fused_cross_entropy = loss == LossDefault::kFused;
  plan->framework.online_cross_entropy = loss == LossDefault::kOnline;
  plan->framework.torch_loss = loss == LossDefault::kTorch;
}

void ApplyRecompute(const FrameworkDefaults& d, Plan* plan) {
  plan->framework.recompute_flash = d.recompute_flash;
  plan->framework.recompute_keeps = plan->memory.recompute == Recompute::kFull ? d.full_keeps
                                    : plan->memory.recompute == Recompute::kSelective
                                        ? d.selective_keeps
                                        : RecomputeKeeps::kNothing;
}

void ApplyGradientSums(const FrameworkDefaults& d, Plan* plan) {
  plan->framework.fused_weight_gradient =
      d.fused_weight_gradient == WeightGradientFusion::kAny ||
      (d.fused_weight_gradient == WeightGradientFusion::kFp32 && plan->framework.grad_reduce_fp32);
  plan->framework.converted_gradients = d.converted_gradients && plan->framework.grad_reduce_fp32 &&
                                        plan->precision.type == workload::Precision::kBf16;
}

bool HoldsUnits(const FrameworkDefaults& d, const workload::Model& model, const Plan& plan) {
  return d.hold_units && model.experts.count > 0 && plan.gathers_units() && plan.lora.rank == 0;
}

// DeepSpeed's ZeRO-1 wraps any optimizer, Megatron's distributed one knows Adam's state alone.
Status CheckSharded(const Framework& framework, const Plan& plan) {
  if (plan.optimizer != workload::Optimizer::kAdafactor ||
      plan.memory.sharding != Sharding::kZero1 || framework.defaults.tensor_buckets) {
    return {};
  }
  return InvalidInput(
      "training.optimizer: {}'s zero1 takes no adafactor; use sharding: none, optimizer: adam, or "
      "framework: deepspeed",
      framework.name);
}

void ApplyZero1(const FrameworkDefaults& d, Plan* plan) {
  const bool zero1 = plan->memory.sharding == Sharding::kZero1;
  plan->framework.broadcast_parameters = zero1 && d.owns_tensors;
  plan->framework.reduce_whole =
      zero1 &&
      (d.owns_tensors || (d.reduce_whole && plan->precision.type == workload::Precision::kBf16));
}

void ApplySwitches(const FrameworkDefaults& d, Plan* plan) {
  plan->framework.overlap_tp_all_reduce = d.overlap_tp_all_reduce;
  plan->framework.scatter_gather_p2p = d.scatter_gather_p2p;
  plan->framework.batch_p2p_sync = d.batch_p2p_sync;
  plan->framework.batch_sync = d.batch_sync;
  plan->framework.align_grad_reduce = plan->framework.align_param_gather = d.align_stages;
  ApplyBuckets(d, plan);
  ApplyStep(d, plan);
  if (!d.ddp) return;
  plan->framework.reducer = workload::Reducer::kDdp;
  plan->framework.fused_softmax = plan->framework.fused_adam = plan->framework.clip_gradients =
      false;
  plan->framework.grad_reduce_fp32 = true;
}

void ApplyDefaults(const FrameworkDefaults& d, cluster::Arch arch, const workload::Model& model,
                   Plan* plan) {
  const bool low = plan->precision.low != LowPrecision::kNone;
  const bool fp4 = plan->precision.low == LowPrecision::kNvfp4;
  plan->framework.attention = AttentionFor(d, arch, model);
  plan->framework.fused_bias_activation =
      !d.squared_relu_operators || model.activation != workload::Activation::kSquaredRelu;
  plan->framework.overlap_grad_reduce = plan->framework.overlap_param_gather =
      plan->framework.prefetch = d.dp_overlap;
  plan->framework.overlap_p2p = d.overlap_p2p;
  plan->framework.tp_comm_overlap = d.tp_comm_overlap && !fp4;
  plan->framework.grad_reduce_fp32 = plan->precision.type == workload::Precision::kFp32 ? true
                                     : plan->precision.type == workload::Precision::kFp16
                                         ? d.fp16_grad_reduce_fp32
                                         : d.grad_reduce_fp32;
  ApplyGradientSums(d, plan);
  ApplyRecompute(d, plan);
  ApplyZero1(d, plan);
  plan->framework.low_precision_gather = d.low_precision_gather && low && !fp4;
  plan->framework.flat_parameters = d.flat_parameters;
  plan->framework.copies_units = d.copies_units;
  plan->framework.unit_buffers = d.unit_buffers;
  plan->framework.hold_units = HoldsUnits(d, model, *plan);
  plan->framework.model_type_states = d.model_type_states && plan->gathers_units();
  plan->framework.list_gathers = d.list_gathers && plan->memory.sharding == Sharding::kZero3;
  plan->framework.gather_limit = d.gather_limit;
  plan->framework.moe_fused_permute = d.moe_fused_permute;
  plan->framework.moe_fused_router = d.moe_fused_router;
  plan->framework.moe_separate_padding = d.moe_separate_padding;
  plan->framework.torch_layers = d.torch_layers;
  plan->framework.repeats_kv = d.repeats_kv;
  ApplyLoss(d.loss, plan);
  ApplySwitches(d, plan);
}

}  // namespace orrery::job
