#include "orrery/workload/plan_precision.h"

#include <string_view>

namespace orrery::workload {
namespace {

Status CheckLowPrecision(const Plan& plan) {
  if (plan.precision.low == LowPrecision::kNone) {
    if (!plan.framework.low_precision_gather) return {};
    return InvalidInput(
        "framework_options.low_precision_gather: parameters in {} have no lower precision to be "
        "gathered in; set training.precision: fp8 or turn it off",
        plan.precision.type == Precision::kFp32 ? "fp32" : "16 bits");
  }
  if (plan.precision.type != Precision::kFp16) return {};
  return InvalidInput(
      "training.precision: fp8, mxfp8 and nvfp4 recipes keep bf16 or fp32 beside them, not fp16; "
      "use bf16");
}

Status CheckBf16Parts(const Model& model, const Plan& plan) {
  const std::int64_t layers = plan.precision.bf16_first_layers + plan.precision.bf16_last_layers;
  if (layers == 0 && plan.precision.bf16_modules == 0) return {};
  const std::string_view field = plan.precision.bf16_last_layers > 0    ? "bf16_last_layers"
                                 : plan.precision.bf16_first_layers > 0 ? "bf16_first_layers"
                                                                        : "bf16_modules";
  if (plan.precision.low == LowPrecision::kNone) {
    return InvalidInput(
        "training.{}: without precision fp8, mxfp8 or nvfp4 nothing is in another type; leave it "
        "out",
        field);
  }
  if (model.net != nullptr) {
    return InvalidInput("training.{}: is built for transformers, not for {}; leave it out", field,
                        model.name);
  }
  if (layers > model.layers) {
    return InvalidInput(
        "training.{}: {} layers in bf16 at the start and {} at the end, but {} has {}; use fewer, "
        "or precision: bf16",
        field, plan.precision.bf16_first_layers, plan.precision.bf16_last_layers, model.name,
        model.layers);
  }
  const auto missing = [&](Bf16Module module, bool there, std::string_view what) -> Status {
    if ((plan.precision.bf16_modules & module) == 0 || there) return {};
    return InvalidInput("training.bf16_modules: {} has no {}; leave it out", model.name, what);
  };
  ORRERY_RETURN_IF_ERROR(missing(kBf16ExpertLatent, model.experts.latent > 0,
                                 "projections to its experts' width (expert_latent)"));
  ORRERY_RETURN_IF_ERROR(missing(kBf16Experts, model.experts.count > 0, "experts"));
  if ((plan.precision.bf16_modules & kBf16Experts) != 0 && plan.framework.moe_fused_mlp) {
    return InvalidInput(
        "training.bf16_modules: framework_options.moe_fused_mlp casts inside the products of "
        "experts; turn it off, or leave experts out");
  }
  return missing(kBf16Mtp, model.mtp_layers > 0, "modules that predict further tokens (mtp)");
}

// Attention and the output layer in 8 bits, which recipes leave in bf16 unless told.
Status CheckMore8Bit(const Model& model, const Plan& plan) {
  const std::string_view option =
      plan.framework.fp8_attention ? "fp8_attention" : "fp8_output_layer";
  if (!plan.framework.fp8_attention && !plan.framework.fp8_output_layer) return {};
  const auto refuse = [&](std::string_view what, std::string_view remedy) {
    return InvalidInput("framework_options.{}: {}; {}", option, what, remedy);
  };
  if (plan.precision.low == LowPrecision::kNone) {
    return refuse("without precision fp8, mxfp8 or nvfp4 nothing is cast", "leave it out");
  }
  if (model.net != nullptr) return refuse("is built for transformers", "leave it out");
  if (!plan.framework.fp8_attention) {
    return plan.framework.chunked_loss
               ? refuse("a chunked loss multiplies in 16 bits", "turn one of them off")
               : Status();
  }
  if (plan.precision.low == LowPrecision::kBlockwise) {
    return refuse("Transformer Engine's attention has scales of tensors and mxfp8's, no others",
                  "use fp8_recipe: current or delayed, or precision: mxfp8 or nvfp4");
  }
  if (plan.framework.attention != AttentionBackend::kCudnn &&
      plan.framework.attention != AttentionBackend::kFlash3) {
    return refuse("only cuDNN's kernel and FlashAttention 3 have it", "use attention: cudnn");
  }
  if (plan.parallel.cp == 1 || plan.parallel.cp_exchange != CpExchange::kAllGather) return {};
  return refuse("gathered keys and values stay in 16 bits",
                "use framework_options.cp_exchange: ring or all-to-all");
}

// Tensors that are kept for backward in fewer bits than they are made in (stored_inputs.h).
Status CheckStoredInputs(const Model& model, const Plan& plan) {
  const FrameworkBehaviour& f = plan.framework;
  if (!f.fp8_activation_input && !f.packed_context) return {};
  const auto refuse = [&](std::string_view why, std::string_view remedy) {
    return InvalidInput("framework_options.{}: {}; {}",
                        f.fp8_activation_input ? "fp8_activation_input" : "packed_context", why,
                        remedy);
  };
  if (model.net != nullptr || f.torch_layers != TorchLayers::kFused) {
    return refuse("is built for transformers with fused kernels", "leave it out");
  }
  if (f.recompute_keeps != RecomputeKeeps::kNothing) {
    return refuse("layers that run again keep tensors as they were made",
                  "leave it out, or use recompute_keeps: nothing");
  }
  if (f.packed_context && plan.precision.type == Precision::kFp32) {
    return refuse("12 bits are of 16", "use precision: bf16");
  }
  if (!f.fp8_activation_input) return {};
  if (model.activation != Activation::kSwiglu || !f.fused_bias_activation) {
    return refuse("only the fused SwiGLU keeps its input in fp8", "leave it out");
  }
  if (f.moe_fused_mlp) {
    return refuse("moe_fused_mlp has the activation inside its products", "turn one of them off");
  }
  return {};
}

Status CheckPreparedBase(const Plan& plan) {
  const FrameworkBehaviour& f = plan.framework;
  if (!f.prepared_base) return {};
  const auto refuse = [](std::string_view why, std::string_view remedy) {
    return InvalidInput("framework_options.prepared_base: {}; {}", why, remedy);
  };
  if (plan.lora.base == BaseWeights::kModelType) {
    return refuse("is of a quantised model (training.base_quantization)", "leave it out");
  }
  if (f.reducer != Reducer::kDdp || f.model_type_states) {
    return refuse("is built for framework: ddp under autocast",
                  "leave it or model_type_states out");
  }
  if (plan.precision.type == Precision::kFp32) {
    return refuse("without autocast to 16 bits all is in fp32", "use precision: bf16");
  }
  return {};
}

}  // namespace

Status CheckPrecision(const Model& model, const Plan& plan) {
  ORRERY_RETURN_IF_ERROR(CheckLowPrecision(plan));
  ORRERY_RETURN_IF_ERROR(CheckBf16Parts(model, plan));
  ORRERY_RETURN_IF_ERROR(CheckStoredInputs(model, plan));
  ORRERY_RETURN_IF_ERROR(CheckPreparedBase(plan));
  return CheckMore8Bit(model, plan);
}

}  // namespace orrery::workload
