#include "orrery/workload/generators/sharding/sharded_program.h"

#include <algorithm>
#include <vector>

#include "orrery/workload/generators/layers/quantized.h"
#include "orrery/workload/generators/sharding/optimizer.h"
#include "orrery/workload/generators/sharding/sharded_units.h"

namespace orrery::workload {

namespace {

// Layers of a sharded job, one call a run of equal ones.
class ShardedLayers {
 public:
  ShardedLayers(const JobContext& job, graph::Program* out) : job_(job), out_(out) {
    const Plan& plan = *job.plan;
    copies_ = plan.memory.offload_parameters && plan.framework.prefetch;
    for (int l = 0; l < job.chunk_layers.front(); ++l) {
      kinds_.push_back(KindOf(*job.model, plan, l) | KeepingOf(plan, l, l));
    }
    for (const Kind kind : kinds_) {
      const Unit unit = UnitOf(OfKind(*job.shape, kind), ranks(), expert_ranks());
      shard_ += TrainedShardOf(unit);
      frozen_ += ShardOf(unit) - TrainedShardOf(unit);
      largest_ = std::max(largest_, ShardOf(unit));
      const Shape layer = OfKind(*job.shape, kind);
      scales_ += (PackedOf(layer) + PackedExperts(layer)).scales;
    }
  }

  std::int64_t ranks() const { return job_.plan->shard_ranks(); }
  std::int64_t expert_ranks() const {
    return job_.model->experts.count > 0 ? job_.plan->expert_dp() : 1;
  }
  // Elements of all layers that lie here, trained and frozen.
  std::int64_t shard() const { return shard_; }
  std::int64_t frozen() const { return frozen_; }
  std::int64_t largest() const { return largest_; }  // of a layer
  // Bytes of quantised weights' scales that every rank has whole.
  std::int64_t scales() const { return job_.plan->framework.nf4_tensor ? 0 : scales_; }
  const std::vector<Kind>& kinds() const { return kinds_; }

  // The gather of a pass's first layer.
  void Start(bool forward, int microbatch) {
    const int first = forward ? 0 : last();
    const std::int64_t second = copies_ ? KindAt(first + Step(forward)) : -1;
    Call(BlockKind::kStartUnit, PackKinds(KindAt(first), second, -1),
         forward ? std::int64_t{0} : call_flag::kForBackward, 0, 1, microbatch, graph::kNoEvent);
  }

  // Memory of deferred reductions, of every layer: `kind` says what becomes of it.
  void Held(BlockKind kind) {
    for (int l = 0; l <= last();) {
      int count = 1;
      while (KindAt(l + count) == KindAt(l)) ++count;
      out_->calls.push_back({.block = job_.blocks->Get(kind, KindAt(l), ranks(), 0, expert_ranks()),
                             .repeat = static_cast<std::uint16_t>(count),
                             .first_layer = static_cast<std::int16_t>(l),
                             .microbatch = -1});
      l += count;
    }
  }

  // `flags`: of call_flag.
  void Pass(bool forward, std::int64_t flags, int microbatch) {
    const int step = Step(forward);
    int l = forward ? 0 : last();
    while (l >= 0 && l <= last()) {
      const std::int64_t kinds = KindsFrom(l, step);
      if (!forward && KindAt(l + 1) != KindAt(l)) Reload(l, microbatch);
      const std::int64_t link = LinkFlag(forward, l);
      int count = 1;
      while (Same(l, l + count * step, step) && LinkFlag(forward, l + count * step) == link) {
        ++count;
      }
      Call(forward ? BlockKind::kShardedForward : BlockKind::kShardedBackward, kinds, link + flags,
           l, count, microbatch, EventOf(forward));
      if (forward) moved_out_ = true;
      l += count * step;
    }
  }

  std::int16_t events() const {
    return static_cast<std::int16_t>(kFirstCallEvent +
                                     (job_.plan->memory.offload_activations ? 2 : 0));
  }

 private:
  static int Step(bool forward) { return forward ? 1 : -1; }
  int last() const { return static_cast<int>(kinds_.size()) - 1; }
  std::int64_t KindAt(int l) const {
    return l < 0 || l > last() ? -1 : kinds_[static_cast<std::size_t>(l)];
  }
  std::int64_t KindsFrom(int l, int step) const {
    return PackKinds(KindAt(l), KindAt(l + step), copies_ ? KindAt(l + 2 * step) : -1);
  }
  bool Same(int l, int other, int step) const {
    return other >= 0 && other <= last() && KindsFrom(l, step) == KindsFrom(other, step);
  }

  // Activations in host memory: the copies out and back have an event each. A layer waits for the
  // copy out of the one before it, but for the first of an iteration; it starts the copy back of
  // its successor where that is of its kind, else the copy is started apart.
  bool offloads() const { return job_.plan->memory.offload_activations; }
  std::int16_t EventOf(bool forward) const {
    if (!offloads()) return graph::kNoEvent;
    return static_cast<std::int16_t>(kFirstCallEvent + (forward ? 0 : 1));
  }
  std::int64_t LinkFlag(bool forward, int l) const {
    if (!offloads()) return 0;
    const bool linked = forward ? moved_out_ || l > 0 : KindAt(l - 1) == KindAt(l);
    return linked ? call_flag::kLinked : std::int64_t{0};
  }
  void Reload(int l, int microbatch) {
    if (!offloads()) return;
    out_->calls.push_back({.block = job_.blocks->Get(BlockKind::kReload, KindAt(l)),
                           .event = EventOf(false),
                           .microbatch = microbatch});
  }

  void Call(BlockKind kind, std::int64_t kinds, std::int64_t flags, int first, int count,
            int microbatch, std::int16_t event) {
    out_->calls.push_back({.block = job_.blocks->Get(kind, kinds, ranks(), flags, expert_ranks()),
                           .repeat = static_cast<std::uint16_t>(count),
                           .event = event,
                           .first_layer = static_cast<std::int16_t>(first),
                           .microbatch = microbatch});
  }

  const JobContext& job_;
  graph::Program* out_;
  bool copies_ = false, moved_out_ = false;
  std::vector<Kind> kinds_;
  std::int64_t shard_ = 0, frozen_ = 0, largest_ = 0, scales_ = 0;
};

// Adafactor's means of tensors that are sharded by rows.
bool SumsFactors(const Plan& plan) {
  return plan.optimizer == Optimizer::kAdafactor && !plan.shards_are_flat();
}

// Flat parameters are one tensor a unit. Under adapters the root unit is frozen whole.
OptimizerCounts CountsOf(const JobContext& job, const std::vector<Kind>& kinds,
                         std::int64_t ranks) {
  const Plan& plan = *job.plan;
  OptimizerCounts counts;
  if (plan.framework.flat_parameters) {
    counts.tensors = job.chunk_layers.front() + (job.shape->frozen() ? 0 : 1);
    return counts;
  }
  for (const Kind kind : kinds) {
    const Shape layer = OfKind(*job.shape, kind);
    SumsFactors(plan) ? CountShardedLayer(layer, ranks, &counts) : CountLayer(layer, &counts);
  }
  if (SumsFactors(plan)) {
    CountShardedRoot(*job.shape, ranks, &counts);
  } else if (!job.shape->frozen()) {
    counts.tensors += 3;  // tables and norm
    counts.full = FullStates(*job.shape) / ranks;
  }
  return counts;
}

}  // namespace

void WriteShardedProgram(const JobContext& job, graph::Program* out) {
  const Plan& plan = *job.plan;
  ShardedLayers layers(job, out);
  const std::int64_t ranks = layers.ranks(), root = RootUnit(*job.shape, ranks);
  const bool adapts = job.shape->frozen();  // the root unit is frozen whole
  const std::int64_t shard = layers.shard() + (adapts ? 0 : root / ranks);
  const std::int64_t frozen = layers.frozen() + (adapts ? root / ranks : 0);
  int microbatch = -1;
  const auto call = [&](BlockKind kind, std::int64_t a = 0, std::int64_t b = 0, std::int64_t c = 0,
                        std::int64_t d = 0) {
    out->calls.push_back({.block = job.blocks->Get(kind, a, b, c, d), .microbatch = microbatch});
  };
  const OptimizerCounts counts = CountsOf(job, layers.kinds(), ranks);
  const std::int64_t number = OptimizerNumber(*job.shape, counts);
  const std::int64_t flags = PackStepFlags(true, plan.precision.type == Precision::kFp16, number);
  out->stage = 0;
  out->prologue.push_back({.block = job.blocks->Get(BlockKind::kShardedMemory, shard,
                                                    layers.largest(), frozen, number)});
  if (layers.scales() > 0) {
    out->prologue.push_back(
        {.block = job.blocks->Get(BlockKind::kFrozenMemory, 0, 0, layers.scales())});
  }
  const auto m = static_cast<int>(plan.microbatches());
  const bool defers = job.shape->framework.defer_grad_reduce;
  constexpr std::int64_t kNoFlag = 0;
  // Memory of deferred reductions, of all units.
  const auto held = [&](BlockKind kind) {
    microbatch = -1;
    layers.Held(kind);
    if (adapts) return;
    call(kind, -1, ranks, root);
    out->calls.back().first_layer = static_cast<std::int16_t>(layers.kinds().size());
  };
  for (int i = 0; i < m; ++i) {
    const bool last = i + 1 == m;
    // FSDP1 keeps units that it does not reshard after forward.
    const bool kept = defers && i > 0 && plan.framework.flat_parameters && !job.shape->reshards;
    const std::int64_t gathered = kept ? call_flag::kGathered : kNoFlag;
    std::int64_t gradients = defers && !last ? call_flag::kDefers : kNoFlag;
    const bool later = plan.hybrid() && job.shape->framework.defer_all_reduce && !defers;
    if (later && !last) gradients += call_flag::kOwnGroup;
    if (i > 0) gradients += defers ? call_flag::kAdds : call_flag::kAccumulates;
    microbatch = i;
    call(BlockKind::kGatherRoot, root, ranks, gathered);
    if (!kept) layers.Start(true, i);
    call(BlockKind::kEmbeddingForward);
    layers.Pass(true, gathered, i);
    call(BlockKind::kHeadForward);
    if (job.shape->reshards) layers.Start(false, i);
    call(BlockKind::kHeadBackward);
    if (defers && i == 0) held(BlockKind::kHoldUnit);
    layers.Pass(false, gradients + (adapts && last ? call_flag::kRecords : kNoFlag), i);
    microbatch = i;
    call(BlockKind::kEmbeddingBackward);
    call(BlockKind::kReduceRoot, root, ranks, gradients + (last ? call_flag::kRecords : kNoFlag));
  }
  if (defers) held(BlockKind::kShardUnit);
  microbatch = -1;
  if (plan.framework.prefetch) call(BlockKind::kWaitGradients);
  call(BlockKind::kOptimizer, shard * ranks, shard, job.norm_group, flags);
  if (SumsFactors(plan)) {
    for (const Kind kind : layers.kinds()) call(BlockKind::kFactorMeans, kind);
    call(BlockKind::kFactorMeans, -1);
  }
  if (defers) held(BlockKind::kFreeShards);
  call(BlockKind::kLoss, plan.replicas(), plan.framework.log_every_step ? 1 : 0);
  out->events = layers.events();
}

}  // namespace orrery::workload
