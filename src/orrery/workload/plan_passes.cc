// Rules of schedules that split the backward pass, and of those that a user gives.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/workload/plan_features.h"

namespace orrery::workload {
namespace {

Status CheckZeroBubble(const Plan& plan) {
  const std::string_view name = Schedules()[static_cast<std::size_t>(plan.parallel.schedule)].name;
  if (plan.parallel.pp < 2) {
    return InvalidInput("parallel.pp: the schedule {} needs at least 2 stages, not {}; use 1f1b",
                        name, plan.parallel.pp);
  }
  const bool folded = plan.v_shape() || plan.dual();
  const int chunks = folded ? 2 : 1;
  if (plan.parallel.schedule != Schedule::kGiven && plan.parallel.vpp != chunks) {
    return InvalidInput("parallel.vpp: the schedule {} has {} a stage, not {}; set vpp: {}", name,
                        chunks == 1 ? "one chunk" : "two chunks", plan.parallel.vpp, chunks);
  }
  const std::int64_t m = plan.microbatches();
  if (plan.dual() && (plan.parallel.pp % 2 != 0 || m % 2 != 0)) {
    return InvalidInput(
        "schedule: dualpipe needs an even number of stages and of micro-batches a replica, half "
        "from either end, not {} and {}; change parallel.pp or training.global_batch",
        plan.parallel.pp, m);
  }
  if (plan.dual() && (plan.hybrid() || plan.lora.rank > 0)) {
    return InvalidInput(
        "schedule: dualpipe is not built with shard groups or adapters; use dualpipe-v or leave "
        "parallel.shard_group and training.lora_rank out");
  }
  if (plan.parallel.schedule != Schedule::kGiven && folded && m < 2 * plan.parallel.pp) {
    return InvalidInput(
        "training.global_batch: {} gives {} micro-batches a replica, and the schedule {} needs at "
        "least 2 · pp = {}; use {} or more",
        plan.batch.global_batch, m, name, 2 * plan.parallel.pp,
        plan.batch.micro_batch * plan.parallel.dp * 2 * plan.parallel.pp);
  }
  if (plan.memory.offload_activations) {
    return InvalidInput(
        "training.offload: activations in host memory are not built with the schedule {}; use 1f1b",
        name);
  }
  if (!plan.framework.fused_weight_gradient) {
    return InvalidInput(
        "framework_options.fused_weight_gradient: the schedule {} is built of GEMMs that add to "
        "gradients; turn it on",
        name);
  }
  if (plan.framework.scatter_gather_p2p && plan.parallel.tp > 1 &&
      !plan.parallel.sequence_parallel) {
    return InvalidInput(
        "framework_options.scatter_gather_p2p: not built with the schedule {}; turn it off", name);
  }
  return {};
}

// "stage 2: F3/1": where a given schedule breaks a rule.
std::string Place(std::size_t stage, const PipelinePass& pass) {
  constexpr std::string_view kLetters = "FBDW";
  return fmt::format("stage {}: {}{}/{}", stage, kLetters[static_cast<std::size_t>(pass.kind)],
                     pass.microbatch, pass.chunk);
}

// Every pass of every micro-batch and chunk once, halves and backward after their forward.
Status CheckStage(const Plan& plan, std::size_t stage) {
  using Kind = PipelinePass::Kind;
  const std::int64_t m = plan.microbatches();
  std::vector<std::uint8_t> done(static_cast<std::size_t>(m * plan.parallel.vpp));
  const std::string& name = plan.parallel.given->name;
  constexpr std::uint8_t kForward = 1, kData = 2, kWhole = 4;
  for (const PipelinePass& pass : plan.parallel.given->stages[stage]) {
    if (pass.microbatch < 0 || pass.microbatch >= m || pass.chunk < 0 ||
        pass.chunk >= plan.parallel.vpp) {
      return InvalidInput("{}: {}: the plan has micro-batches 0 … {} and chunks 0 … {}", name,
                          Place(stage, pass), m - 1, plan.parallel.vpp - 1);
    }
    std::uint8_t& state = done[static_cast<std::size_t>(pass.chunk * m + pass.microbatch)];
    const std::uint8_t wanted = pass.kind == Kind::kForward  ? 0
                                : pass.kind == Kind::kWeight ? kForward | kData
                                                             : kForward;
    if (state != wanted) {
      return InvalidInput("{}: {}: a forward comes once and first, then B, or D and W, once each",
                          name, Place(stage, pass));
    }
    state |= pass.kind == Kind::kForward ? kForward : pass.kind == Kind::kData ? kData : kWhole;
  }
  for (std::size_t i = 0; i < done.size(); ++i) {
    if ((done[i] & kWhole) != 0) continue;
    return InvalidInput("{}: stage {}: micro-batch {} of chunk {} is not finished", name, stage,
                        i % static_cast<std::size_t>(m), i / static_cast<std::size_t>(m));
  }
  return {};
}

// A pass and the chunk and micro-batch of its message, as its sender calls them.
struct Carried {
  const PipelinePass* pass = nullptr;
  int chunk = 0;
};
// A stage's passes that take messages of a kind from one neighbour, or make them for it, in order.
std::vector<Carried> CarriedBy(const Plan& plan, int stage, bool takes, bool next, bool gradient) {
  std::vector<Carried> carried;
  for (const PipelinePass& pass : plan.parallel.given->stages[static_cast<std::size_t>(stage)]) {
    if (pass.kind == PipelinePass::Kind::kWeight) continue;
    if ((pass.kind != PipelinePass::Kind::kForward) != gradient) continue;
    const Neighbour n = NeighbourOf(plan, stage, pass.chunk, takes != gradient);
    if (n.crosses && n.next == next) carried.push_back({&pass, takes ? n.chunk : pass.chunk});
  }
  return carried;
}

// NCCL matches messages in order: neighbours must run micro-batches alike.
Status CheckMatching(const Plan& plan) {
  const GivenSchedule& given = *plan.parallel.given;
  if (given.by_microbatch) return {};
  for (int s = 0; s < plan.parallel.pp; ++s) {
    for (const bool gradient : {false, true}) {
      for (const bool next : {false, true}) {
        const int sender = (s + (next ? 1 : plan.parallel.pp - 1)) % plan.parallel.pp;
        const auto takes = CarriedBy(plan, s, true, next, gradient);
        const auto makes = CarriedBy(plan, sender, false, !next, gradient);
        const auto [a, b] = std::ranges::mismatch(takes, makes, [](const auto& l, const auto& r) {
          return l.chunk == r.chunk && l.pass->microbatch == r.pass->microbatch;
        });
        if (a == takes.end() || b == makes.end()) continue;
        const std::string_view kind = gradient ? "the backward of " : "F";
        return InvalidInput(
            "{}: stage {} runs {}{}/{} where stage {} runs {}{}/{}: messages match in order, so "
            "that it would get the other's; list both alike, or say 'match microbatch'",
            given.name, s, kind, a->pass->microbatch, a->pass->chunk, sender, kind,
            b->pass->microbatch, b->pass->chunk);
      }
    }
  }
  return {};
}

Status CheckGiven(const Plan& plan) {
  if (plan.parallel.given == nullptr) {
    return InvalidInput("schedule: given needs a file; name it: schedule: my.schedule");
  }
  if (plan.parallel.given->v_shape && plan.parallel.vpp % 2 != 0) {
    return InvalidInput(
        "parallel.vpp: {} is in V shape, which has an even number of chunks a stage, not {}",
        plan.parallel.given->name, plan.parallel.vpp);
  }
  if (plan.parallel.given->stages.size() != static_cast<std::size_t>(plan.parallel.pp)) {
    return InvalidInput("parallel.pp: {} for {} of {} stages; use {}", plan.parallel.pp,
                        plan.parallel.given->name, plan.parallel.given->stages.size(),
                        plan.parallel.given->stages.size());
  }
  // Receives are posted in the sender's order until the one that a pass takes is there: each may
  // hold one of a program's 32,767 events, as may 240 sends (generators/schedules/passes.cc).
  constexpr std::int64_t kMostPasses = 16'000;
  if (plan.parallel.given->by_microbatch && plan.microbatches() * plan.parallel.vpp > kMostPasses) {
    return InvalidInput(
        "training.global_batch: {} makes {} micro-batches of {} chunks a stage, more than the {} "
        "passes that {} may match by micro-batch; use a smaller global_batch or 'match order'",
        plan.batch.global_batch, plan.microbatches(), plan.parallel.vpp, kMostPasses,
        plan.parallel.given->name);
  }
  for (std::size_t s = 0; s < plan.parallel.given->stages.size(); ++s) {
    ORRERY_RETURN_IF_ERROR(CheckStage(plan, s));
  }
  return CheckMatching(plan);
}

}  // namespace

Status CheckPasses(const Plan& plan) {
  if (plan.parallel.schedule < Schedule::kZbH1) return {};
  if (plan.parallel.schedule == Schedule::kGiven) ORRERY_RETURN_IF_ERROR(CheckGiven(plan));
  return CheckZeroBubble(plan);
}

}  // namespace orrery::workload
