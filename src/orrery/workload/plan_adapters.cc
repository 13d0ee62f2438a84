#include "orrery/workload/plan_adapters.h"

#include <vector>

#include "orrery/workload/stage_layers.h"

namespace orrery::workload {
namespace {

Status CheckShardedLora(const Plan& plan) {
  if (!plan.gathers_units()) return {};
  if (plan.framework.flat_parameters && !plan.framework.contiguous_gradients &&
      plan.framework.gather_limit == GatherLimit::kOrder) {
    return InvalidInput(
        "training.lora_rank: adapters under ZeRO-2 and -3 are built for FSDP1, FSDP2 and "
        "DeepSpeed, not for Megatron-FSDP; use framework: fsdp2, or sharding: zero1");
  }
  if (plan.parallel.pp > 1) {
    return InvalidInput(
        "parallel.pp: {} under training.lora_rank and this sharding: units that stay gathered over "
        "stages are built without adapters; use pp: 1 or sharding: zero1",
        plan.parallel.pp);
  }
  if (plan.precision.low != LowPrecision::kNone) {
    return InvalidInput(
        "training.precision: frozen shards are gathered in 16 bits; 8 and 4 bits are not built "
        "with adapters and this sharding: use bf16, or sharding: zero1");
  }
  return {};
}

// Frozen weights in 4 and 8 bits.
Status CheckQuantized(const Model& model, const Plan& plan) {
  const BaseWeights base = plan.lora.base;
  if (plan.framework.nf4_tensor && base != BaseWeights::kNf4 && plan.lora.rank > 0) {
    return InvalidInput(
        "framework_options.nf4_tensor: torchao's tensor is of nf4; set training.base_quantization: "
        "nf4 or leave it out");
  }
  if (plan.lora.double_quantization && base != BaseWeights::kNf4 && base != BaseWeights::kFp4) {
    return InvalidInput(
        "training.double_quantization: is of the scales of 4-bit weights; set "
        "training.base_quantization: nf4 or fp4, or leave it out");
  }
  if (base == BaseWeights::kModelType) return {};
  const auto refuse = [](std::string_view why, std::string_view remedy) {
    return InvalidInput("training.base_quantization: {}; {}", why, remedy);
  };
  if (plan.lora.rank == 0) {
    return refuse("weights that are trained are not quantised, frozen ones are",
                  "set training.lora_rank or leave it out");
  }
  if (plan.precision.low != LowPrecision::kNone) {
    return refuse("weights are multiplied in the parameters' type", "use training.precision: bf16");
  }
  if (plan.parallel.tp > 1) {
    return refuse(fmt::format("blocks of scales are not split over tp {}", plan.parallel.tp),
                  "use tp 1");
  }
  if (model.mtp_layers > 0) {
    return refuse("modules that predict further tokens stay as they are",
                  "use model.mtp_layers: 0");
  }
  if (base == BaseWeights::kInt8 && plan.gathers_units()) {
    return refuse("int8 weights and their scales are not sharded by any framework",
                  "use nf4 or fp4, or sharding: none or zero1");
  }
  return {};
}

bool HasAdapters(const Model& model, const Plan& plan, Kind kind) {
  const bool mixes = (kind & kNoMixer) == 0, routes = (kind & kExpertLayer) != 0;
  const bool feeds = (kind & kNoFeedForward) == 0;
  const bool experts = model.experts.count > 0 && plan.lora.experts != ExpertAdapterKind::kNone;
  // PEFT gives the names of experts' modules to the experts alone.
  const bool others = !experts || plan.lora.experts != ExpertAdapterKind::kModules;
  const bool dense = others && (!routes || model.experts.shared_ffn_hidden > 0);
  const bool named = (plan.lora.targets & (kLoraFc1 | kLoraFc2)) != 0;
  return (mixes && (plan.lora.targets & (kLoraQkv | kLoraProjection)) != 0) ||
         (feeds && dense && named) ||
         (routes && experts && (named || plan.lora.experts == ExpertAdapterKind::kParameters));
}

// Adapters of routed experts.
Status CheckExpertAdapters(const Model& model, const Plan& plan) {
  if (model.experts.count == 0) return {};
  if (plan.lora.experts == ExpertAdapterKind::kNone) {
    if ((plan.lora.targets & (kLoraFc1 | kLoraFc2)) == 0) return {};
    return InvalidInput(
        "training.lora_targets: fc1 and fc2 of {} are mostly experts'; say which adapters they "
        "have (training.lora_experts: parameters, modules, grouped or shared), or use attention",
        model.name);
  }
  const auto refuse = [](std::string_view why, std::string_view remedy) {
    return InvalidInput("training.lora_experts: {}; {}", why, remedy);
  };
  if (plan.parallel.etp > 1) {
    return refuse(fmt::format("adapters are not split over etp {}", plan.parallel.etp),
                  "use parallel.etp: 1");
  }
  if (plan.experts.moe_comm_overlap) {
    return refuse("exchanges beside another micro-batch are built without adapters of experts",
                  "use training.moe_comm_overlap: false");
  }
  if (MergesAdapters(plan.lora.experts) && plan.framework.reducer == Reducer::kBuffer &&
      !SplitsUnits(plan)) {
    return refuse("PEFT's adapters of experts run in PyTorch's own frameworks",
                  "use grouped or shared, or framework: fsdp2 or ddp");
  }
  if (SplitsUnits(plan) && plan.parallel.ep > 1) {
    return refuse("shards of experts over ranks of their own are built without adapters",
                  "use parallel.ep: 1 or sharding: zero1");
  }
  if (plan.lora.base != BaseWeights::kModelType) {
    return refuse("adapters beside experts in 4 or 8 bits are not built",
                  "use training.base_quantization: none, or none here");
  }
  return {};
}

}  // namespace

bool SplitsUnits(const Plan& plan) { return plan.memory.sharding >= Sharding::kZero2; }

bool MergesAdapters(ExpertAdapterKind kind) {
  return kind == ExpertAdapterKind::kParameters || kind == ExpertAdapterKind::kModules;
}

Status CheckLora(const Model& model, const Plan& plan) {
  ORRERY_RETURN_IF_ERROR(CheckQuantized(model, plan));
  if (plan.lora.rank == 0) return {};
  if (plan.lora.rank < 0 || plan.lora.rank > 65536) {
    return InvalidInput("training.lora_rank: {} is outside 1 … 65536", plan.lora.rank);
  }
  if (plan.lora.rank % plan.parallel.tp != 0) {
    return InvalidInput(
        "training.lora_rank: {} is not a multiple of tp ({}), over which adapters are split; use a "
        "multiple",
        plan.lora.rank, plan.parallel.tp);
  }
  if (model.hidden % plan.parallel.tp != 0) {
    return InvalidInput("parallel.tp: {} does not divide the hidden size of {} ({})",
                        plan.parallel.tp, model.name, model.hidden);
  }
  const bool alone = plan.lora.experts == ExpertAdapterKind::kParameters;
  if ((plan.lora.targets == 0 && !alone) || plan.lora.targets > kLoraAll) {
    return InvalidInput("training.lora_targets: no layer is named; use all");
  }
  ORRERY_RETURN_IF_ERROR(CheckExpertAdapters(model, plan));
  ORRERY_RETURN_IF_ERROR(CheckShardedLora(plan));
  ORRERY_ASSIGN_OR_RETURN(const std::vector<int> layers, LayersPerChunk(model, plan));
  std::int64_t layer = 0;
  for (const int n : layers) {
    bool trains = false;
    for (const std::int64_t end = layer + n; layer < end; ++layer) {
      trains = trains || HasAdapters(model, plan, model.layer_kind(layer));
    }
    if (trains) continue;
    return InvalidInput(
        "parallel.layers_per_stage: a chunk without layers of training.lora_targets has nothing to "
        "train; give every chunk one, or name more targets");
  }
  return {};
}

}  // namespace orrery::workload
