#include "orrery/workload/plan.h"

#include <algorithm>
#include <array>
#include <string>

#include "orrery/base/suggest.h"
#include "orrery/workload/plan_experts.h"
#include "orrery/workload/plan_features.h"
#include "orrery/workload/plan_precision.h"
#include "orrery/workload/routing.h"

namespace orrery::workload {

namespace {

// "1536 or 1664": the positive multiples of n around `value`.
std::string NearestMultiples(std::int64_t n, std::int64_t value) {
  const std::int64_t below = value / n * n;
  if (below == 0) return std::to_string(n);
  return fmt::format("{} or {}", below, below + n);
}

struct Bound {
  std::string_view field;
  std::int64_t value, least, most;
};

Status CheckBounds(const Plan& plan) {
  const Bound bounds[] = {
      {"parallel.tp", plan.parallel.tp, 1, 4096},
      {"parallel.pp", plan.parallel.pp, 1, 4096},
      {"parallel.vpp", plan.parallel.vpp, 1, 1024},
      {"parallel.dp", plan.parallel.dp, 1, 1 << 20},
      {"parallel.cp", plan.parallel.cp, 1, 127},  // 2 · cp group calls in a block
      {"parallel.shard_group", plan.memory.shard_group, 0, 1 << 20},
      {"parallel.microbatch_group", plan.parallel.microbatch_group, 0, 1 << 20},
      {"training.global_batch", plan.batch.global_batch, 1, std::int64_t{1} << 31},
      {"training.micro_batch", plan.batch.micro_batch, 1, 1 << 16},
      {"training.seq_len", plan.batch.seq_len, 1, 1 << 26},
      {"framework_options.bucket_elements", plan.framework.bucket_elements, 1,
       std::int64_t{1} << 40},
      {"framework_options.deferred_head", plan.framework.deferred_head, 0, 1 << 20},
  };
  for (const Bound& b : bounds) {
    if (b.value < b.least || b.value > b.most) {
      return InvalidInput("{}: {} is outside {} … {}", b.field, b.value, b.least, b.most);
    }
  }
  constexpr std::int64_t kMostRanks = 1 << 22;
  const double ranks =
      static_cast<double>(std::int64_t{plan.parallel.tp} * plan.parallel.pp * plan.parallel.dp) *
      plan.parallel.cp;
  if (ranks > kMostRanks) {
    return InvalidInput(
        "parallel: tp {} · pp {} · dp {}{} = {} GPUs is beyond {}; make one smaller",
        plan.parallel.tp, plan.parallel.pp, plan.parallel.dp,
        plan.parallel.cp > 1 ? fmt::format(" · cp {}", plan.parallel.cp) : "",
        static_cast<std::int64_t>(ranks), kMostRanks);
  }
  return {};
}

Status CheckTensorParallel(const Model& model, const Plan& plan) {
  const auto divides = [&](std::string_view what, std::int64_t n) -> Status {
    if (n % plan.parallel.tp == 0) return {};
    return InvalidInput(
        "parallel.tp: {} does not divide {} of {} ({}); tensor parallelism gives every rank an "
        "equal share: use tp {}",
        plan.parallel.tp, what, model.name, n, NearestDivisors(n, plan.parallel.tp));
  };
  ORRERY_RETURN_IF_ERROR(divides("the attention heads", model.heads));
  ORRERY_RETURN_IF_ERROR(divides("the key and value heads", model.kv_heads));
  const Model windowed = model.of_kind(kWindowLayer);
  ORRERY_RETURN_IF_ERROR(divides("the attention heads of windowed layers", windowed.heads));
  ORRERY_RETURN_IF_ERROR(divides("the key and value heads of windowed layers", windowed.kv_heads));
  ORRERY_RETURN_IF_ERROR(divides("the feed-forward width", model.ffn_hidden));
  for (std::size_t at = 1; at <= model.sizes.size(); ++at) {
    const Model own = model.of_kind(static_cast<Kind>(at << kSizesShift));
    ORRERY_RETURN_IF_ERROR(divides("the attention heads of some layers", own.heads));
    ORRERY_RETURN_IF_ERROR(divides("the key and value heads of some layers", own.kv_heads));
    ORRERY_RETURN_IF_ERROR(divides("the feed-forward width of some layers", own.ffn_hidden));
  }
  if (plan.parallel.sequence_parallel && plan.parallel.tp > 1 &&
      plan.batch.seq_len % plan.parallel.tp != 0) {
    return InvalidInput(
        "training.seq_len: {} is not a multiple of tp ({}), which sequence parallelism needs; use "
        "{} or turn parallel.sequence_parallel off",
        plan.batch.seq_len, plan.parallel.tp,
        NearestMultiples(plan.parallel.tp, plan.batch.seq_len));
  }
  return {};
}

Status CheckBatch(const Plan& plan) {
  const std::int64_t share = plan.batch.micro_batch * plan.parallel.dp;
  if (plan.batch.global_batch % share != 0) {
    return InvalidInput(
        "training.global_batch: {} is not a multiple of micro_batch · dp = {} · {} = {}; every "
        "replica runs the same number of micro-batches: use {}",
        plan.batch.global_batch, plan.batch.micro_batch, plan.parallel.dp, share,
        NearestMultiples(share, plan.batch.global_batch));
  }
  constexpr std::int64_t kMostPasses = 1'000'000;
  if (plan.microbatches() * plan.parallel.vpp > kMostPasses) {
    return InvalidInput(
        "training.global_batch: {} makes {} micro-batches of {} chunks a stage, more than {} "
        "passes; use a smaller global_batch or a larger micro_batch",
        plan.batch.global_batch, plan.microbatches(), plan.parallel.vpp, kMostPasses);
  }
  // A program a stage, where a routing is drawn a rank over ep; some 100 bytes a pass.
  constexpr std::int64_t kMostPassesOfAll = 20'000'000;
  const std::int64_t programs =
      std::int64_t{plan.parallel.pp} * (DrawsRouting(plan) ? plan.parallel.ep : 1);
  if (plan.microbatches() * plan.parallel.vpp * programs > kMostPassesOfAll) {
    return InvalidInput(
        "training.global_batch: {} makes {} micro-batches of {} chunks in each of {} programs "
        "(stages, times ep where moe_routing is drawn), more than {} passes in all; use a smaller "
        "global_batch or a larger micro_batch",
        plan.batch.global_batch, plan.microbatches(), plan.parallel.vpp, programs,
        kMostPassesOfAll);
  }
  return {};
}

// As Megatron (core/model_parallel_config.py), which has overlap_p2p for interleaved schedules
// only.
Status CheckWarmupFlush(const Plan& plan) {
  if (!plan.framework.overlap_p2p_warmup_flush) return {};
  if (plan.framework.overlap_p2p && plan.parallel.schedule == Schedule::k1f1bInterleaved) return {};
  return InvalidInput(
      "framework_options.overlap_p2p_warmup_flush: needs the schedule 1f1b-interleaved with "
      "overlap_p2p; {}",
      plan.framework.overlap_p2p
          ? "set schedule: 1f1b-interleaved and parallel.vpp, or leave it out"
          : "turn overlap_p2p on or leave it out");
}

Status CheckInterleaving(const Plan& plan) {
  ORRERY_RETURN_IF_ERROR(CheckWarmupFlush(plan));
  if (plan.parallel.schedule >= Schedule::kZbH1) return {};  // CheckFeatures
  if (plan.parallel.schedule != Schedule::k1f1bInterleaved) {
    if (plan.parallel.vpp == 1) return {};
    return InvalidInput(
        "parallel.vpp: {} chunks a stage need the schedule 1f1b-interleaved, not {}; set "
        "schedule: 1f1b-interleaved or vpp: 1",
        plan.parallel.vpp, Schedules()[static_cast<std::size_t>(plan.parallel.schedule)].name);
  }
  if (plan.parallel.vpp < 2) {
    return InvalidInput(
        "parallel.vpp: the schedule 1f1b-interleaved needs at least 2 chunks a stage, not {}; set "
        "vpp: 2 or schedule: 1f1b",
        plan.parallel.vpp);
  }
  if (plan.parallel.pp < 2) {
    return InvalidInput(
        "parallel.pp: the schedule 1f1b-interleaved needs at least 2 stages, not {}; set pp: 2 or "
        "schedule: 1f1b",
        plan.parallel.pp);
  }
  if (plan.parallel.pp == 2 && !plan.framework.overlap_p2p) {
    return InvalidInput(
        "parallel.pp: interleaving over 2 stages without overlapped p2p would put two sends and "
        "receives between the same ranks into one batch, which Megatron refuses; turn overlap_p2p "
        "on or use pp: 3 or more");
  }
  const std::int64_t m = plan.microbatches();
  const std::int64_t group =
      plan.parallel.microbatch_group > 0 ? plan.parallel.microbatch_group : plan.parallel.pp;
  if (m < plan.parallel.pp) {
    return InvalidInput(
        "training.global_batch: {} gives {} micro-batches a replica, and the schedule "
        "1f1b-interleaved needs at least pp = {}; use {} or more",
        plan.batch.global_batch, m, plan.parallel.pp,
        plan.batch.micro_batch * plan.parallel.dp * plan.parallel.pp);
  }
  if (group < plan.parallel.pp || group > m) {
    return InvalidInput(
        "parallel.microbatch_group: {} is outside pp … micro-batches = {} … {}; leave it out to "
        "use pp",
        group, plan.parallel.pp, m);
  }
  const std::int64_t rest = m % group;
  if (rest != 0 && rest < plan.parallel.pp) {
    return InvalidInput(
        "training.global_batch: {} gives {} micro-batches a replica, which leaves {} after groups "
        "of {} (parallel.microbatch_group); the last group must have at least pp = {}: use {}",
        plan.batch.global_batch, m, rest, group, plan.parallel.pp,
        NearestMultiples(plan.batch.micro_batch * plan.parallel.dp * group,
                         plan.batch.global_batch));
  }
  return {};
}

Status CheckKernels(const Model& model, const Plan& plan) {
  if (plan.precision.type == Precision::kFp32 &&
      plan.framework.attention != AttentionBackend::kUnfused) {
    return InvalidInput(
        "training.precision: fp32 has no flash attention kernel; use bf16 or fp16, or attention: "
        "unfused");
  }
  if (model.position == Position::kLearned && plan.batch.seq_len > model.max_position) {
    return InvalidInput(
        "training.seq_len: {} is beyond the {} learned positions of {} (model.max_position); use "
        "at most {} or a model "
        "with more positions",
        plan.batch.seq_len, model.max_position, model.name, model.max_position);
  }
  return {};
}

// What an encoder's ends and its attention without a causal mask are not built for.
Status CheckImages(const Model& model, const Plan& plan) {
  if (!model.bidirectional) return {};
  const bool splits = plan.parallel.sequence_parallel && plan.parallel.tp > 1;
  if (plan.parallel.cp == 1 && (!splits || model.patch_values == 0)) return {};
  return InvalidInput(
      "parallel.{}: not built for encoders of images, whose sequences are short ({}); "
      "leave it out",
      splits ? "sequence_parallel" : "cp", model.name);
}

Status CheckContextParallel(const Model& model, const Plan& plan) {
  if (plan.parallel.cp == 1) return {};
  if (plan.batch.seq_len % (2 * plan.parallel.cp) != 0) {
    return InvalidInput(
        "training.seq_len: {} is not a multiple of 2 · cp = {}; every rank takes one part from "
        "either end so that the causal mask leaves all the same work: use {}",
        plan.batch.seq_len, 2 * plan.parallel.cp,
        NearestMultiples(2 * plan.parallel.cp, plan.batch.seq_len));
  }
  if (plan.parallel.sequence_parallel && plan.parallel.tp > 1 &&
      plan.batch.seq_len / plan.parallel.cp % plan.parallel.tp != 0) {
    return InvalidInput(
        "training.seq_len: {} / cp {} is not a multiple of tp ({}), which sequence parallelism "
        "needs; use {} or turn parallel.sequence_parallel off",
        plan.batch.seq_len, plan.parallel.cp, plan.parallel.tp,
        NearestMultiples(std::int64_t{2} * plan.parallel.cp * plan.parallel.tp,
                         plan.batch.seq_len));
  }
  if (plan.framework.unfuses_some()) {
    return InvalidInput(
        "parallel.cp: {} ranks share a sequence, which unfused attention cannot; set "
        "framework_options.attention: flash2 or cp: 1",
        plan.parallel.cp);
  }
  std::int64_t least = std::min(model.kv_heads, model.of_kind(kWindowLayer).kv_heads);
  for (std::size_t at = 1; at <= model.sizes.size(); ++at) {
    least = std::min(least, model.of_kind(static_cast<Kind>(at << kSizesShift)).kv_heads);
  }
  const std::int64_t heads = least / plan.parallel.tp;
  if (plan.parallel.cp_exchange == CpExchange::kAllToAll && heads % plan.parallel.cp != 0) {
    return InvalidInput(
        "parallel.cp: {} does not divide the {} key and value heads of a rank ({} / tp {}), which "
        "the all-to-all exchange deals out; use cp {} or framework_options.cp_exchange: ring",
        plan.parallel.cp, heads, least, plan.parallel.tp, NearestDivisors(heads, plan.parallel.cp));
  }
  return {};
}

Status CheckShardGroup(const Model& model, const Plan& plan) {
  const int replicas = plan.replicas();
  if (plan.memory.shard_group == 0 || (plan.memory.shard_group == replicas && replicas > 1))
    return {};
  if (plan.memory.sharding == Sharding::kNone) {
    return InvalidInput(
        "parallel.shard_group: {} ranks share nothing under sharding none; set training.sharding: "
        "zero1 or leave it out",
        plan.memory.shard_group);
  }
  if (plan.memory.shard_group < 2 || replicas % plan.memory.shard_group != 0) {
    return InvalidInput(
        "parallel.shard_group: {} is not a divisor above 1 of the {} data-parallel ranks{}; every "
        "group holds all shards once: use {}",
        plan.memory.shard_group, replicas, plan.parallel.cp > 1 ? " (dp · cp)" : "",
        NearestDivisors(replicas, std::max(2, plan.memory.shard_group)));
  }
  if (model.experts.count > 0) {
    return InvalidInput(
        "parallel.shard_group: groups of {} of {} ranks are not built for models with experts, "
        "such as {}; leave it out",
        plan.memory.shard_group, replicas, model.name);
  }
  return {};
}

Status CheckRankOrder(const Model& model, const Plan& plan) {
  if (plan.parallel.rank_order == RankOrder::kDpPp || plan.parallel.pp == 1 ||
      model.experts.count == 0)
    return {};
  if (plan.expert_tp() * plan.parallel.ep == plan.parallel.tp * plan.parallel.cp) return {};
  return InvalidInput(
      "parallel.rank_order: tp-cp-pp-dp puts the stages of dense layers tp {} · cp {} = {} ranks "
      "apart and those of experts etp {} · ep {} = {}; Megatron needs them equal: change ep or use "
      "tp-cp-dp-pp",
      plan.parallel.tp, plan.parallel.cp, plan.parallel.tp * plan.parallel.cp, plan.expert_tp(),
      plan.parallel.ep, plan.expert_tp() * plan.parallel.ep);
}

// ZeRO-2 and -3 over stages are FSDP2's under torch.distributed.pipelining.
Status CheckUnitsOverStages(const Model& model, const Plan& plan, std::string_view name) {
  if (!plan.gathers_units() || plan.framework.contiguous_gradients) {
    return InvalidInput(
        "training.sharding: {} over stages (pp {}): DeepSpeed's PipelineModule takes ZeRO-1 at "
        "most, since a micro-batch's gradients would be reduced while others still add to them; "
        "use zero1, or framework: fsdp2",
        name, plan.parallel.pp);
  }
  if (plan.framework.flat_parameters) {
    return InvalidInput(
        "training.sharding: {} over stages (pp {}): torch.distributed.pipelining holds gathers and "
        "reductions back until the last micro-batch for FSDP2's modules only; use framework: fsdp2 "
        "(framework_options.flat_parameters: false) or zero1",
        name, plan.parallel.pp);
  }
  if (plan.memory.sharding == Sharding::kZero3 && plan.memory.reshard != kKeepGathered) {
    return InvalidInput(
        "framework_options.reshard: {} with stages (pp {}) is not built: every micro-batch would "
        "gather every layer again, and torchtitan keeps them gathered over stages: use false",
        plan.memory.reshard == kReshardAll ? "true" : std::to_string(plan.memory.reshard),
        plan.parallel.pp);
  }
  if (model.tied_embeddings) {
    return InvalidInput(
        "training.sharding: {} over stages (pp {}) with the tied table of {}: modules of two "
        "stages share no parameter in torch.distributed.pipelining; set model.tied_embeddings: "
        "false, or use zero1",
        name, plan.parallel.pp, model.name);
  }
  if (plan.parallel.schedule >= Schedule::kZbH1) {
    return InvalidInput(
        "training.sharding: {} with the schedule {}: split backward passes are built of GEMMs that "
        "add to a buffer of gradients, which FSDP has none of; use 1f1b, 1f1b-interleaved or gpipe",
        name, Schedules()[static_cast<std::size_t>(plan.parallel.schedule)].name);
  }
  if (plan.memory.offload_parameters) {
    return InvalidInput(
        "training.offload: shards in host memory are copied before every gather, and stages gather "
        "once a step; with pp {} use optimizer",
        plan.parallel.pp);
  }
  return {};
}

// Units that are told to stay for the step.
Status CheckHeldUnits(const Plan& plan) {
  if (!plan.framework.hold_units || !plan.gathers_units() || plan.parallel.pp > 1) return {};
  const auto refuse = [](std::string_view why, std::string_view remedy) {
    return InvalidInput("framework_options.hold_units: {}; {}", why, remedy);
  };
  if (plan.framework.flat_parameters || plan.framework.contiguous_gradients) {
    return refuse("only FSDP2's modules are told to stay gathered and to sum gradients unsharded",
                  "use framework: fsdp2 or leave it out");
  }
  if (plan.memory.sharding == Sharding::kZero3 && plan.memory.reshard != kKeepGathered) {
    return refuse("layers stay gathered for the whole step",
                  "leave framework_options.reshard out or set it to false");
  }
  if (plan.lora.rank > 0 || plan.memory.offload_parameters || plan.framework.unit_buffers) {
    return refuse("not built with adapters, shards in host memory or Megatron-FSDP's buffers",
                  "leave it out");
  }
  return {};
}

// Gradients that are summed unsharded over micro-batches.
Status CheckDeferredReduction(const Plan& plan) {
  if (!plan.defers_reductions()) return {};
  if (!plan.framework.contiguous_gradients && !plan.framework.list_gathers &&
      !plan.framework.unit_buffers) {
    return {};
  }
  return InvalidInput(
      "framework_options.defer_grad_reduce: only FSDP1's and FSDP2's modules leave out reductions; "
      "DeepSpeed and Megatron-FSDP reduce every micro-batch: use framework: fsdp1 or fsdp2, or "
      "leave it out");
}

Status CheckOptimizerInBackward(const Plan& plan) {
  if (!plan.framework.optimizer_in_backward) return {};
  if (plan.framework.model_type_states && (plan.gathers_units() || plan.updates_in_place()) &&
      plan.microbatches() == 1 && !plan.framework.clip_gradients) {
    return {};
  }
  return InvalidInput(
      "framework_options.optimizer_in_backward: gradients are given back one by one where they are "
      "neither summed over micro-batches nor clipped nor copied to fp32: set model_type_states: "
      "true, clip_gradients: false and a micro-batch a step ({} here), or leave it out",
      plan.microbatches());
}

Status CheckModelTypeStates(const Plan& plan) {
  if (!plan.framework.model_type_states) return {};
  if (!plan.gathers_units() && !plan.updates_in_place()) return {};
  const bool flat = plan.framework.flat_parameters || plan.framework.unit_buffers;
  if ((plan.gathers_units() && flat) || plan.optimizer == Optimizer::kAdafactor ||
      plan.optimizer == Optimizer::kMuon || plan.memory.offload_optimizer ||
      plan.memory.offload_parameters) {
    return InvalidInput(
        "framework_options.model_type_states: built for FSDP2's shards or none, on the device, and "
        "for adam, lion and sgd; leave it out");
  }
  return {};
}

Status CheckReshard(const Model& model, const Plan& plan) {
  if (plan.memory.reshard == kReshardAll ||
      (plan.memory.reshard == kKeepGathered && plan.gathers_units())) {
    return {};
  }
  const auto refuse = [&](std::string_view why, std::string_view remedy) {
    return InvalidInput(
        "framework_options.reshard: {} {}; {}",
        plan.memory.reshard == kKeepGathered ? "false" : std::to_string(plan.memory.reshard), why,
        remedy);
  };
  if (plan.memory.sharding != Sharding::kZero3) {
    return refuse("says what ZeRO-3 does with a layer after its forward pass",
                  "set training.sharding: zero3 or leave it out");
  }
  const int ranks = plan.shard_ranks();
  if (plan.memory.reshard < 2 || plan.memory.reshard >= ranks || ranks % plan.memory.reshard != 0) {
    return refuse(fmt::format("is no divisor of the {} ranks that share a layer, between 1 and all "
                              "of them",
                              ranks),
                  fmt::format("use true, false or such a divisor: {}",
                              NearestDivisors(ranks, std::max(2, plan.memory.reshard))));
  }
  if (plan.framework.flat_parameters || plan.hybrid() || model.experts.count > 0 ||
      plan.memory.offload_parameters) {
    return refuse(
        "is built for FSDP2's fully_shard over one group, without experts and shards in "
        "host memory",
        "use true or false");
  }
  return {};
}

Status CheckSharding(const Model& model, const Plan& plan) {
  ORRERY_RETURN_IF_ERROR(CheckReshard(model, plan));
  ORRERY_RETURN_IF_ERROR(CheckModelTypeStates(plan));
  ORRERY_RETURN_IF_ERROR(CheckOptimizerInBackward(plan));
  if (plan.memory.sharding < Sharding::kZero2) return {};
  const std::string_view name = plan.memory.sharding == Sharding::kZero2 ? "zero2" : "zero3";
  if (plan.parallel.pp > 1) ORRERY_RETURN_IF_ERROR(CheckUnitsOverStages(model, plan, name));
  ORRERY_RETURN_IF_ERROR(CheckHeldUnits(plan));
  ORRERY_RETURN_IF_ERROR(CheckDeferredReduction(plan));
  if (plan.replicas() == 1) {
    return InvalidInput(
        "training.sharding: {} needs at least 2 data-parallel ranks to shard over, not 1; use none",
        name);
  }
  return {};
}

}  // namespace

namespace {

constexpr std::array<std::string_view, 7> kModuleNames = {
    "core_attn", "layernorm", "moe_act", "moe", "mlp", "mla_up_proj", "latent_norm"};
constexpr std::array<std::string_view, 8> kOffloadNames = {
    "attn_norm", "qkv_linear", "core_attn", "attn_proj",
    "mlp_norm",  "expert_fc1", "moe_act",   "fused_group_mlp"};
constexpr std::array<std::string_view, 5> kBf16Names = {"attention", "expert_latent", "mtp",
                                                        "experts", "mlp"};
constexpr std::array<std::string_view, 4> kLoraNames = {"qkv", "projection", "fc1", "fc2"};
constexpr std::array<std::string_view, 5> kScopeNames = {"attn", "mlp", "moe_router",
                                                         "moe_preprocess", "mamba"};

// Names with '+' between, each a bit in their order.
Result<std::uint8_t> ParseBits(std::string_view text, std::string_view what,
                               std::span<const std::string_view> names) {
  std::uint8_t bits = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('+'), text.size());
    const std::string_view name = text.substr(0, end);
    const auto at = std::find(names.begin(), names.end(), name);
    if (at == names.end()) return InvalidInput("{}", UnknownName(what, name, names));
    bits |= static_cast<std::uint8_t>(1 << (at - names.begin()));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return bits;
}

std::string BitsText(std::uint8_t bits, std::span<const std::string_view> names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if ((bits >> i & 1) == 0) continue;
    if (!text.empty()) text += '+';
    text += names[i];
  }
  return text;
}

}  // namespace

Result<std::uint8_t> ParseRecomputeModules(std::string_view text) {
  return ParseBits(text, "module to recompute", kModuleNames);
}
std::string RecomputeModulesText(std::uint8_t modules) { return BitsText(modules, kModuleNames); }

Result<std::uint8_t> ParseOffloadModules(std::string_view text) {
  return ParseBits(text, "module to offload", kOffloadNames);
}
std::string OffloadModulesText(std::uint8_t modules) { return BitsText(modules, kOffloadNames); }

Result<std::uint8_t> ParseBf16Modules(std::string_view text) {
  if (text == "none") return std::uint8_t{0};
  return ParseBits(text, "module kept in bf16", kBf16Names);
}
std::string Bf16ModulesText(std::uint8_t modules) { return BitsText(modules, kBf16Names); }

Result<std::uint8_t> ParseLoraTargets(std::string_view text) {
  if (text == "all") return kLoraAll;
  if (text == "none") return std::uint8_t{0};
  if (text == "attention") return std::uint8_t{kLoraQkv | kLoraProjection};
  if (text == "mlp") return std::uint8_t{kLoraFc1 | kLoraFc2};
  Result<std::uint8_t> bits = ParseBits(text, "target of adapters", kLoraNames);
  if (bits.ok()) return bits;
  constexpr std::string_view kWords[] = {"all",        "attention", "mlp", "qkv",
                                         "projection", "fc1",       "fc2"};
  return InvalidInput("{}", UnknownName("target of adapters", text, kWords));
}
std::string LoraTargetsText(std::uint8_t targets) {
  if (targets == kLoraAll) return "all";
  if (targets == 0) return "none";
  if (targets == (kLoraQkv | kLoraProjection)) return "attention";
  if (targets == (kLoraFc1 | kLoraFc2)) return "mlp";
  return BitsText(targets, kLoraNames);
}

Result<std::uint8_t> ParseGraphScope(std::string_view text) {
  return ParseBits(text, "part of a layer", kScopeNames);
}
std::string GraphScopeText(std::uint8_t scope) { return BitsText(scope, kScopeNames); }

Neighbour NeighbourOf(const Plan& plan, int stage, int chunk, bool before) {
  const bool folds = plan.v_shape() || plan.dual();
  const bool descends = !folds || chunk % 2 == 0;
  const bool next = descends != before;
  const int to = stage + (next ? 1 : -1);
  if (to >= 0 && to < plan.parallel.pp) return {true, next, to, chunk};
  // The model's end, or the turn, which stays on this stage; straight chunks go round.
  const int beyond = chunk + (before ? -1 : 1);
  if (folds || beyond < 0 || beyond >= plan.parallel.vpp || plan.parallel.pp == 1) return {};
  return {true, next, (to + plan.parallel.pp) % plan.parallel.pp, beyond};
}

std::string NearestDivisors(std::int64_t n, std::int64_t value) {
  std::int64_t below = 0, above = 0;
  for (std::int64_t d = std::min(value, n); d >= 1 && below == 0; --d) {
    if (n % d == 0) below = d;
  }
  for (std::int64_t d = value + 1; d <= n && above == 0; ++d) {
    if (n % d == 0) above = d;
  }
  if (below == 0) return std::to_string(above);
  if (above == 0) return std::to_string(below);
  return fmt::format("{} or {}", below, above);
}

Status Validate(const Model& model, const Plan& plan) {
  ORRERY_RETURN_IF_ERROR(CheckBounds(plan));
  ORRERY_RETURN_IF_ERROR(CheckTensorParallel(model, plan));
  ORRERY_RETURN_IF_ERROR(CheckBatch(plan));
  ORRERY_RETURN_IF_ERROR(CheckInterleaving(plan));
  ORRERY_RETURN_IF_ERROR(CheckKernels(model, plan));
  ORRERY_RETURN_IF_ERROR(CheckImages(model, plan));
  ORRERY_RETURN_IF_ERROR(CheckContextParallel(model, plan));
  ORRERY_RETURN_IF_ERROR(CheckSharding(model, plan));
  ORRERY_RETURN_IF_ERROR(CheckShardGroup(model, plan));
  ORRERY_RETURN_IF_ERROR(CheckPrecision(model, plan));
  ORRERY_RETURN_IF_ERROR(CheckExperts(model, plan));
  ORRERY_RETURN_IF_ERROR(CheckRankOrder(model, plan));
  ORRERY_RETURN_IF_ERROR(CheckFeatures(model, plan));
  return LayersPerChunk(model, plan).status();
}

}  // namespace orrery::workload
