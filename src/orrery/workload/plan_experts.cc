#include "orrery/workload/plan_experts.h"

#include <fmt/format.h>

#include <algorithm>

#include "orrery/workload/routing.h"

namespace orrery::workload {
namespace {

Status CheckDegrees(const Model& model, const Plan& plan) {
  const Experts& e = model.experts;
  if (plan.parallel.ep < 1 || plan.parallel.ep > 4096) {
    return InvalidInput("parallel.ep: {} is outside 1 … 4096", plan.parallel.ep);
  }
  if (plan.parallel.etp < 0 || plan.parallel.etp > 4096) {
    return InvalidInput("parallel.etp: {} is outside 1 … 4096", plan.parallel.etp);
  }
  if (e.count % plan.parallel.ep != 0) {
    return InvalidInput(
        "parallel.ep: {} does not divide the {} experts of {}; every rank keeps the same number of "
        "experts: use a divisor of {}",
        plan.parallel.ep, e.count, model.name, e.count);
  }
  const int ranks = plan.stage_ranks();
  if (ranks % (plan.expert_tp() * plan.parallel.ep) != 0) {
    return InvalidInput(
        "parallel.ep: a stage's {} ranks are no multiple of etp {} · ep {} = {}; change ep, etp or "
        "dp",
        ranks, plan.expert_tp(), plan.parallel.ep, plan.expert_tp() * plan.parallel.ep);
  }
  if (e.ffn_hidden % plan.expert_tp() != 0) {
    return InvalidInput("parallel.etp: {} does not divide the width of an expert of {} ({})",
                        plan.expert_tp(), model.name, e.ffn_hidden);
  }
  if (e.shared_ffn_hidden % plan.parallel.tp != 0) {
    return InvalidInput(
        "parallel.tp: {} does not divide the width of the shared experts of {} ({})",
        plan.parallel.tp, model.name, e.shared_ffn_hidden);
  }
  return {};
}

Status CheckMamba(const Model& model, const Plan& plan) {
  const Mamba& m = model.mamba;
  if (m.heads == 0) return {};
  if (m.groups % plan.parallel.tp != 0 || m.heads % plan.parallel.tp != 0) {
    return InvalidInput(
        "parallel.tp: {} does not divide the {} heads and {} groups of {}'s Mamba layers; use a "
        "divisor of both",
        plan.parallel.tp, m.heads, m.groups, model.name);
  }
  const std::int64_t heads = m.heads / plan.parallel.tp, groups = m.groups / plan.parallel.tp;
  if (heads % plan.parallel.cp != 0 ||
      (groups % plan.parallel.cp != 0 && plan.parallel.cp % groups != 0)) {
    return InvalidInput(
        "parallel.cp: {} for the {} heads and {} groups of a rank's Mamba layers in {}; "
        "context-parallel ranks take equal shares of the heads, and of the groups or of their "
        "copies: use a divisor of both",
        plan.parallel.cp, heads, groups, model.name);
  }
  return {};
}

// The fused kernels are of mxfp8 and of gated activations.
Status CheckFusedMlp(const Model& model, const Plan& plan) {
  if (!plan.framework.moe_fused_mlp) return {};
  const auto refuse = [](std::string_view why) {
    return InvalidInput("framework_options.moe_fused_mlp: {}; leave it out", why);
  };
  if (model.experts.count == 0) return refuse("the model has no experts");
  if (plan.precision.low != LowPrecision::kMxfp8) return refuse("only for precision mxfp8");
  if (model.activation != Activation::kSwiglu) return refuse("only for a gated activation");
  return {};
}

// What transformers' loop over experts runs in.
Status CheckExpertLoop(const Model& model, const Plan& plan) {
  if (!plan.framework.expert_loop) return {};
  const auto refuse = [](std::string_view why, std::string_view remedy) {
    return InvalidInput("framework_options.expert_loop: {}; {}", why, remedy);
  };
  if (model.experts.count == 0) {
    return refuse(fmt::format("{} has no experts", model.name), "leave it out");
  }
  if (model.experts.latent > 0) {
    return refuse("is built for experts of the model's width", "leave it out");
  }
  if (plan.framework.torch_layers != TorchLayers::kEager) {
    return refuse("is of eager layers",
                  "set framework_options.torch_layers: eager or leave it out");
  }
  if (plan.parallel.ep * plan.expert_tp() > 1) {
    return refuse("every rank holds all experts whole", "use ep 1 and etp 1, or leave it out");
  }
  if (plan.precision.low != LowPrecision::kNone) {
    return refuse("its products are of 16 or 32 bits", "use training.precision: bf16");
  }
  if (plan.lora.experts == ExpertAdapterKind::kParameters ||
      plan.lora.experts == ExpertAdapterKind::kModules) {
    return refuse("adapters that are merged into experts' tensors are of transformers 5",
                  "use training.lora_experts: grouped, an adapter beside each expert's layers");
  }
  return {};
}

// Megatron's rule.
Status CheckDelayedWeights(const Plan& plan) {
  if (!plan.experts.moe_delayed_weights || plan.experts.moe_comm_overlap) return {};
  return InvalidInput(
      "training.moe_delayed_weights: only with moe_comm_overlap, as in Megatron; set it or leave "
      "this out");
}

}  // namespace

Status CheckTokenOverlap(const Plan& plan) {
  if (plan.parallel.ep == 1) {
    return InvalidInput(
        "training.moe_comm_overlap: with ep 1 no tokens are exchanged; leave it out");
  }
  const bool schedule = plan.parallel.schedule == Schedule::k1f1bInterleaved ||
                        plan.pairs_passes() ||
                        (plan.parallel.schedule == Schedule::k1f1b && plan.parallel.pp == 1);
  if (!schedule || plan.memory.sharding >= Sharding::kZero2) {
    return InvalidInput(
        "training.moe_comm_overlap: forward and backward passes run in step with one stage (pp 1) "
        "or with the schedules 1f1b-interleaved, dualpipe and dualpipe-v, and sharding none or "
        "zero1; change these or leave it out");
  }
  if (plan.experts.shared_expert_overlap) {
    return InvalidInput(
        "training.moe_comm_overlap: not together with moe_shared_overlap, as in Megatron; choose "
        "one");
  }
  if (plan.memory.recompute == Recompute::kFull || plan.memory.offload_activations) {
    return InvalidInput(
        "training.moe_comm_overlap: not built with full recomputation or activations in host "
        "memory; use recompute: selective, or leave it out");
  }
  return {};
}

Status CheckExperts(const Model& model, const Plan& plan) {
  ORRERY_RETURN_IF_ERROR(CheckFusedMlp(model, plan));
  ORRERY_RETURN_IF_ERROR(CheckExpertLoop(model, plan));
  ORRERY_RETURN_IF_ERROR(CheckMamba(model, plan));
  if (model.experts.count == 0) {
    if (plan.parallel.ep == 1 && plan.parallel.etp <= 1) return {};
    return InvalidInput("parallel.{}: {} for {}, which has no experts; use 1",
                        plan.parallel.ep > 1 ? "ep" : "etp",
                        plan.parallel.ep > 1 ? plan.parallel.ep : plan.parallel.etp, model.name);
  }
  if (plan.parallel.tp > 1 && !plan.parallel.sequence_parallel) {
    return InvalidInput(
        "parallel.sequence_parallel: experts under tensor parallelism (tp {}) need it, as in "
        "Megatron; set sequence_parallel: true or tp: 1",
        plan.parallel.tp);
  }
  if (!(plan.experts.moe_imbalance >= 1 && plan.experts.moe_imbalance <= 1000)) {
    return InvalidInput("training.moe_imbalance: {} is outside 1 … 1000; 1 is an even load",
                        plan.experts.moe_imbalance);
  }
  ORRERY_RETURN_IF_ERROR(CheckRouting(model, plan));
  ORRERY_RETURN_IF_ERROR(CheckDelayedWeights(plan));
  if (plan.experts.moe_comm_overlap) ORRERY_RETURN_IF_ERROR(CheckTokenOverlap(plan));
  return CheckDegrees(model, plan);
}

double BusiestLoad(const Model& model, const Plan& plan) {
  const bool zipf = plan.experts.routing == Routing::kZipf;
  if ((!zipf && plan.experts.routing != Routing::kNatural) || plan.parallel.ep == 1)
    return plan.experts.moe_imbalance;
  const std::int64_t each = model.experts.count / plan.parallel.ep;
  // A token meets an expert once at most.
  const double most = static_cast<double>(plan.parallel.ep) *
                      static_cast<double>(std::min(each, model.experts.top_k)) /
                      static_cast<double>(model.experts.top_k);
  if (!zipf)
    return std::min(BusiestOfAnyDivision(each, plan.parallel.ep), most) *
           plan.experts.moe_imbalance;
  double sum = 0, busiest = 0, rank = 0;
  for (std::int64_t i = 0; i < model.experts.count; ++i) {
    const double load = 1.0 / static_cast<double>(i + 1);
    sum += load;
    rank = i % each == 0 ? load : rank + load;
    busiest = std::max(busiest, rank);
  }
  return std::min(busiest / sum * plan.parallel.ep, most) * plan.experts.moe_imbalance;
}

}  // namespace orrery::workload
