// What host memory may hold.
#include "orrery/workload/plan_features.h"

namespace orrery::workload {
namespace {

// Which activations go to host memory.
Status CheckOffloadedParts(const Model& model, const Plan& plan) {
  if (plan.memory.offload_layers > 0) {
    if (plan.memory.offload_layers >= model.layers) {
      return InvalidInput(
          "training.offload_layers: {} of {} layers; name fewer than all, or leave it out for all",
          plan.memory.offload_layers, model.layers);
    }
    if (plan.parallel.pp > 1 || plan.gathers_units() || model.net != nullptr) {
      return InvalidInput(
          "training.offload_layers: some layers in host memory are built for one stage "
          "(parallel.pp: 1, as Transformer Engine's) and sharding none or zero1; change these, "
          "leave it out, or name training.offload_modules");
    }
  }
  constexpr std::uint8_t kOfExperts = kOffloadExpertFc1 | kOffloadMoeAct | kOffloadGroupMlp;
  if ((plan.memory.offload_modules & kOfExperts) != 0 && model.experts.count == 0) {
    return InvalidInput("training.offload_modules: {} has no experts; name modules that it has",
                        model.name);
  }
  if ((plan.memory.offload_modules & kOffloadGroupMlp) != 0 &&
      (plan.memory.offload_modules & (kOffloadExpertFc1 | kOffloadMoeAct)) != 0) {
    return InvalidInput(
        "training.offload_modules: fused_group_mlp is the experts whole; leave expert_fc1 and "
        "moe_act out");
  }
  return {};
}

}  // namespace

Status CheckOffload(const Model& model, const Plan& plan) {
  ORRERY_RETURN_IF_ERROR(CheckOffloadedParts(model, plan));
  if (plan.memory.offload_activations && plan.framework.reducer == Reducer::kDeepSpeed) {
    return InvalidInput(
        "training.offload: DeepSpeed keeps activations in host memory only where they are "
        "recomputed from (cpu_checkpointing), which is not built; use optimizer, or zero3");
  }
  if (plan.memory.offload_parameters &&
      (plan.memory.sharding != Sharding::kZero3 || !plan.memory.offload_optimizer)) {
    return InvalidInput(
        "training.offload: parameters are copied from host memory where they are gathered layer by "
        "layer, by FSDP's CPUOffload and DeepSpeed's offload_param; whole weights no framework "
        "keeps there any more (Transformer Engine's offload_weights is deprecated and without "
        "effect): set training.sharding: zero3, or use optimizer");
  }
  if (plan.memory.offload_optimizer && plan.optimizer != Optimizer::kAdam) {
    return InvalidInput("training.offload: the CPU runs Adam only; set training.optimizer: adam");
  }
  if (plan.parallel.ranks_per_host < 1) {
    return InvalidInput("ranks_per_host: {}; a host has a GPU", plan.parallel.ranks_per_host);
  }
  return {};
}

}  // namespace orrery::workload
