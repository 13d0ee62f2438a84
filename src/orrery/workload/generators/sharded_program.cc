#include "orrery/workload/generators/sharded_program.h"

#include <algorithm>

#include "orrery/workload/generators/optimizer.h"
#include "orrery/workload/generators/sharded_units.h"

namespace orrery::workload {

void WriteShardedProgram(const JobContext& job, graph::Program* out) {
  const Plan& plan = *job.plan;
  const std::int64_t ranks = plan.shard_ranks();
  const int layers = job.chunk_layers.front();
  const std::int64_t layer = LayerUnit(*job.shape, ranks), root = RootUnit(*job.shape, ranks);
  const std::int64_t shard = (layers * layer + root) / ranks;
  const bool copies = plan.offload_parameters && plan.prefetch;  // shards from host memory
  int microbatch = -1;
  const auto call = [&](BlockKind kind, std::int64_t a = 0, std::int64_t b = 0, std::int64_t c = 0,
                        std::int64_t d = 0) -> graph::Call& {
    return out->calls.emplace_back(
        graph::Call{.block = job.blocks->Get(kind, a, b, c, d), .microbatch = microbatch});
  };
  const auto run = [&](BlockKind kind, std::int64_t flags, int first, int count) {
    if (count == 0) return;
    graph::Call& c = call(kind, layer, ranks, flags);
    c.first_layer = static_cast<std::int16_t>(first);
    c.repeat = static_cast<std::uint16_t>(count);
  };
  // Flat parameters are one tensor a unit.
  OptimizerCounts counts;
  for (int l = 0; l < layers && !plan.flat_parameters; ++l) CountLayer(*job.shape, &counts);
  counts.tensors += plan.flat_parameters ? layers + 1 : 3;  // and the root's tables and norm
  const std::int64_t flags =
      PackStepFlags(true, plan.precision == Precision::kFp16, OptimizerNumber(*job.shape, counts));
  out->stage = 0;
  out->prologue.push_back(
      {.block = job.blocks->Get(BlockKind::kShardedMemory, shard, layer / ranks)});
  const auto m = static_cast<int>(plan.microbatches());
  for (int i = 0; i < m; ++i) {
    microbatch = i;
    const std::int64_t adds = i > 0 ? 2 : 0;
    call(BlockKind::kGatherRoot, root, ranks);
    // Flags of Unit: 1 prefetches, 2 accumulates, 4 copies. The last but one has no unit behind its
    // neighbour.
    const int fetching = copies ? std::max(0, layers - 2) : 0;
    const std::int64_t second = copies && layers > 1 ? 4 : 0;
    call(BlockKind::kStartUnit, layer, ranks, second);
    call(BlockKind::kEmbeddingForward);
    run(BlockKind::kShardedForward, 5, 0, fetching);
    run(BlockKind::kShardedForward, 1, fetching, layers - 1 - fetching);
    run(BlockKind::kShardedForward, 0, layers - 1, 1);
    call(BlockKind::kHeadForward);
    if (job.shape->reshards) call(BlockKind::kStartUnit, layer, ranks, second);
    call(BlockKind::kHeadBackward);
    run(BlockKind::kShardedBackward, 5 + adds, layers - 1, fetching);
    run(BlockKind::kShardedBackward, 1 + adds, layers - 1 - fetching, layers - 1 - fetching);
    run(BlockKind::kShardedBackward, adds, 0, 1);
    call(BlockKind::kEmbeddingBackward);
    call(BlockKind::kReduceRoot, root, ranks, adds, i + 1 == m ? 1 : 0);
  }
  microbatch = -1;
  if (plan.prefetch) call(BlockKind::kWaitGradients);
  call(BlockKind::kOptimizer, shard * ranks, shard, job.norm_group, flags);
  call(BlockKind::kLoss, plan.replicas(), plan.log_every_step ? 1 : 0);
  out->events = kFirstCallEvent;
}

}  // namespace orrery::workload
