// What a program runs around its passes: static memory and zeroed gradients in front; gradients'
// last reductions, the optimizer, parameters' gathers and the loss behind.
#include <algorithm>
#include <map>

#include "orrery/workload/generators/layers/precision.h"
#include "orrery/workload/generators/layers/quantized.h"
#include "orrery/workload/generators/program_writer.h"
#include "orrery/workload/generators/sharding/optimizer.h"
#include "orrery/workload/generators/sharding/reduce_and_update.h"
#include "orrery/workload/generators/sharding/tensor_gradients.h"

namespace orrery::workload {

// The memory of the layers, tables and norms of this rank, which are not trained.
BlockId ProgramWriter::Frozen() const {
  const Shape& s = *job_.shape;
  std::int64_t sum = 0;
  PackedWeights packed;
  const auto add = [&sum](const std::vector<std::int64_t>& tensors) {
    for (const std::int64_t n : tensors) sum += n;
  };
  for (const Chunk& chunk : chunks_) {
    for (const Kind kind : chunk.parts.kinds) {
      const Shape layer = OfKind(s, kind);
      add(LayerParameters(layer));
      add(ExpertParameters(layer));
      packed = packed + PackedOf(layer) + PackedExperts(layer);
    }
    if (chunk.parts.embedding) add(EmbeddingParameters(s));
    if (chunk.parts.head) add(HeadParameters(s, !s.tied || chunk.parts.copies_embedding));
  }
  return job_.blocks->Get(BlockKind::kFrozenMemory, sum - packed.elements, packed.codes,
                          packed.scales);
}

std::int64_t ProgramWriter::StepFlags() const {
  const bool fp16 = plan().precision.type == Precision::kFp16;
  if (!AsksForNumber(*job_.shape)) return PackStepFlags(job_.distributed(), fp16, 0);
  OptimizerCounts counts;
  if (job_.shape->whole_moments) {  // the shard is one tensor
    return PackStepFlags(job_.distributed(), fp16, OptimizerNumber(*job_.shape, {.tensors = 1}));
  }
  for (const Chunk& chunk : chunks_) {
    for (const Kind kind : chunk.parts.kinds) {
      CountLayer(OfKind(*job_.shape, kind), &counts);
    }
    if (job_.shape->frozen()) continue;
    if (chunk.parts.embedding) {
      CountTensors(*job_.shape, EmbeddingParameters(*job_.shape), &counts);
      counts.full += FullStates(*job_.shape);
    }
    if (chunk.parts.head) {
      CountTensors(*job_.shape,
                   HeadParameters(*job_.shape, !job_.shape->tied || chunk.parts.copies_embedding),
                   &counts);
    }
  }
  if (job_.shape->optimizer_states != OptimizerStates::kFull && plan().shards_are_flat()) {
    counts = {.tensors = 1};  // the shard
  }
  if (job_.layer_wise()) {  // dealt out as the matrices are
    const std::int64_t ranks = plan().shard_ranks();
    counts.outside = (counts.outside + ranks - 1) / ranks;
  }
  return PackStepFlags(job_.distributed(), fp16, OptimizerNumber(*job_.shape, counts));
}

void ProgramWriter::Begin() {
  const std::int64_t total = elements();
  const std::int64_t flags = StepFlags();
  // In the model's type what nobody else holds is its own shard, and gathered nowhere.
  std::int64_t alone = 0;
  for (const Chunk& chunk : chunks_) alone += plan().framework.model_type_states ? chunk.alone : 0;
  out_->prologue.push_back({.block = job_.blocks->Get(BlockKind::kStatic, total - alone, shard(),
                                                      job_.norm_group, flags)});
  if (job_.shape->frozen()) {
    out_->prologue.push_back({.block = Frozen()});
  }
  if (const std::int64_t held = plan().keeps_units() ? UnreducedGradients() : 0; held > 0) {
    out_->prologue.push_back({.block = job_.blocks->Get(BlockKind::kHoldGradients, held, 0, 1)});
  }
  // zero_grad(set_to_none=True) runs no kernel.
  if (plan().framework.reducer == Reducer::kBuffer) {
    Call(job_.blocks->Get(BlockKind::kZeroGradients, plan().keeps_units() ? 0 : total), 0, -1);
  }
  if (plan().precision.low != LowPrecision::kNone) {
    std::int64_t weights = 0;
    for (const Chunk& chunk : chunks_) {
      for (const Kind kind : chunk.parts.kinds) {
        weights += LinearWeights(OfKind(*job_.shape, kind));
      }
      if (chunk.parts.head && plan().framework.fp8_output_layer) {
        weights += job_.shape->hidden * job_.shape->vocab;
      }
    }
    out_->prologue.push_back({.block = job_.blocks->Get(BlockKind::kLowPrecisionMemory, weights)});
    Call(job_.blocks->Get(BlockKind::kCastWeights, weights, job_.norm_group, job_.model->layers), 0,
         -1);
  }
  if (!overlaps_gather()) return;
  if (chunks() > 1 && plan().framework.align_param_gather) {
    GatherChunk(0);
    GatherChunk(1);
  } else {
    Gather(&chunks_[0], 1);
  }
}

void ProgramWriter::FinishReduction() {
  if (!reduces()) return;
  if (reduces_each() && !plan().framework.overlap_grad_reduce) return;
  if (plan().framework.overlap_grad_reduce) {
    Call(job_.blocks->Get(BlockKind::kWaitGradients), 0, -1);
  } else {
    for (int c = 0; c < chunks(); ++c) {
      for (const Bucket& bucket : chunks_[static_cast<std::size_t>(c)].buckets) {
        Reduce(bucket, c, false, true, -1);
      }
    }
  }
  if (plan().framework.reducer != Reducer::kDdp || plan().framework.bucket_views) return;
  std::int64_t tensors = 0;
  for (const Bucket& bucket : chunks_.front().buckets) tensors += bucket.tensors;
  Call(job_.blocks->Get(BlockKind::kCopyOutTensors, elements(), tensors), 0, -1);
}

void ProgramWriter::End() {
  for (int c = 0; plan().framework.overlap_grad_reduce && c < chunks(); ++c) ReduceChunk(c);
  // Behind the start of the last reductions, as Megatron's schedules have it.
  DeferredHead();
  FinishReduction();
  const Shape& s = *job_.shape;
  if (s.sequence_parallel) {
    std::int64_t partial = 0;
    std::map<Kind, std::int64_t> known;
    const auto partial_of = [&](Kind kind) {
      if (known[kind] == 0) known[kind] = SequenceParallelParameters(OfKind(s, kind));
      return known[kind];
    };
    for (const Chunk& chunk : chunks_) {
      for (const Kind kind : chunk.parts.kinds) partial += partial_of(kind);
      if (chunk.parts.head && !s.frozen()) {
        partial += s.hidden * (s.norm == Norm::kLayerNorm ? 2 : 1);
      }
    }
    if (partial > 0) Call(job_.blocks->Get(BlockKind::kReduceTp, partial), 0, -1);
  }
  if (plan().dual()) Call(job_.blocks->Get(BlockKind::kReduceMirror, shard()), 0, -1);
  if (job_.ties_across_stages() && (first() || last())) {
    Call(job_.blocks->Get(BlockKind::kReduceEmbedding), 0, -1);
  }
  Optimizer();
  FreeGradients();
  if (holds_head() && (plan().replicas() > 1 || plan().framework.log_every_step)) {
    Call(job_.blocks->Get(BlockKind::kLoss, plan().replicas(),
                          plan().framework.log_every_step ? 1 : 0),
         0, -1);
  }
  out_->events = next_event_;
}

void ProgramWriter::FreeGradients() {
  if (!job_.shape->passing_gradients) return;
  const auto part = [](GradientsOf of) { return static_cast<std::int64_t>(of); };
  for (const Chunk& chunk : chunks_) {
    const std::vector<Kind>& kinds = chunk.parts.kinds;
    for (std::size_t from = 0, to = 0; from < kinds.size(); from = to) {
      while (to < kinds.size() && kinds[to] == kinds[from]) ++to;
      Call(job_.blocks->Get(BlockKind::kFreeGradients, part(GradientsOf::kLayer), kinds[from]), 0,
           0, chunk.first_layer + static_cast<int>(from), static_cast<int>(to - from));
    }
    for (const GradientsOf of : {GradientsOf::kEmbedding, GradientsOf::kHead}) {
      Call(job_.blocks->Get(BlockKind::kFreeGradients, part(of)), 0, 0);
    }
  }
}

void ProgramWriter::Optimizer() {
  const std::int64_t total = elements();
  const std::int64_t flags = StepFlags();
  Call(job_.blocks->Get(BlockKind::kOptimizer, total, shard(), job_.norm_group, flags), 0, -1);
  if (plan().optimizer == Optimizer::kMuon) Orthogonalise();
  if (!job_.distributed() || !reduces() || overlaps_gather()) return;
  if (plan().framework.broadcast_parameters) {
    std::int64_t tensors = 0;
    for (const Chunk& chunk : chunks_) {
      for (const Bucket& bucket : chunk.buckets) tensors += bucket.tensors;
    }
    const std::int64_t owners = std::min<std::int64_t>(plan().shard_ranks(), tensors);
    Call(job_.blocks->Get(BlockKind::kBroadcastShards, total, owners), 0, -1);
    return;
  }
  for (const Chunk& chunk : chunks_) {
    for (const Bucket& bucket : chunk.buckets) {
      Call(job_.blocks->Get(BlockKind::kGatherBucket, bucket.elements,
                            static_cast<std::int64_t>(GatherMode::kBlocking),
                            bucket.experts ? 1 : 0, CastBefore(bucket)),
           0, -1);
    }
  }
}

}  // namespace orrery::workload
