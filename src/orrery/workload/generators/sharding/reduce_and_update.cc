#include "orrery/workload/generators/sharding/reduce_and_update.h"

#include <algorithm>

#include "orrery/workload/generators/layers/layer_ops.h"
#include "orrery/workload/generators/sharding/optimizer.h"

namespace orrery::workload {

using graph::Collective;
using graph::Comm;
using graph::DType;
using graph::GroupSlot;
using graph::Lifetime;
using graph::MemoryBound;
using graph::MemoryKind;
using graph::MemoryOp;
using graph::Pass;

namespace {

// Whose gradient lives alone where the optimizer runs in the backward pass.
std::int64_t LargestTensor(const Shape& s) {
  std::int64_t largest = 0;
  const auto tensors = {s.frozen() ? TrainedParameters(s) : LayerParameters(s), ExpertParameters(s),
                        EmbeddingParameters(s), HeadParameters(s, !s.tied)};
  for (const std::vector<std::int64_t>& some : tensors) {
    for (const std::int64_t n : some) largest = std::max(largest, n);
  }
  return largest;
}

}  // namespace

graph::Block StaticMemory(const Shape& s, const StepSizes& sizes, Names* names) {
  BlockWriter w(names, "static", Pass::kOptimizer);
  const auto forever = [&](std::uint32_t id, std::string_view name, MemoryKind kind,
                           std::int64_t bytes) {
    w.Alloc(w.Named(id, name, bytes, kind, Lifetime::kForever));
  };
  forever(1, "parameters", MemoryKind::kParameter, sizes.elements * s.element_bytes);
  const bool part = s.framework.reducer == Reducer::kDeepSpeed;
  // FSDP's shards are beside what is gathered and accumulated between the two (HoldGradients).
  if (s.keeps_units) {
    forever(8, "gradient_shards", MemoryKind::kGradient, sizes.shard * s.state_bytes);
  } else if (!s.passing_gradients) {
    const std::int64_t kept = s.framework.optimizer_in_backward ? LargestTensor(s)
                              : part                            ? sizes.shard
                                                                : sizes.elements;
    forever(2, "gradients", MemoryKind::kGradient, kept * s.gradient_bytes);
  }
  if (part) {
    forever(7, "gradient_buckets", MemoryKind::kGradient, s.contiguous_elements * s.gradient_bytes);
  }
  if (s.framework.reducer == Reducer::kDdp && !s.framework.bucket_views) {
    forever(7, "gradient_buckets", MemoryKind::kGradient, sizes.elements * s.gradient_bytes);
  }
  WriteOptimizerState(s, sizes.shard, sizes.number, &w);
  if (s.framework.keeps_scores) {
    forever(6, "attention.scores", MemoryKind::kTemporary,
            s.batch * s.heads * s.seq * s.seq * s.element_bytes);
  }
  return w.Finish();
}

graph::Block FreeGradients(const Shape& s, GradientsOf part, Names* names) {
  BlockWriter w(names, "gradients.free", Pass::kOptimizer);
  w.Free(PassingGradients(s, part, &w));
  return w.Finish();
}

graph::Block ZeroGradients(const Shape& s, std::int64_t elements, Names* names) {
  BlockWriter w(names, "zero_gradients", Pass::kOptimizer);
  w.Host("training_loop", s.framework.host.step);
  if (elements == 0) return w.Finish();
  w.Kernel("zero", Flat(MemoryOp::kZero, elements, 0, s.gradient_bytes, s.gradient_dtype));
  return w.Finish();
}

namespace {

graph::Buffer UnitGradients(const Shape& s, std::int64_t elements, bool experts, Lifetime lifetime,
                            BlockWriter* w) {
  return w->Named(experts ? 2 : 1, "gradients", elements * s.gradient_bytes, MemoryKind::kGradient,
                  lifetime);
}

}  // namespace

graph::Block HoldGradients(const Shape& s, std::int64_t elements, bool experts, bool forever,
                           Names* names) {
  BlockWriter w(names, "gradients.hold", Pass::kOptimizer);
  if (forever) {
    w.Alloc(w.Named(9, "gradients", elements * s.gradient_bytes, MemoryKind::kGradient,
                    Lifetime::kForever));
  } else {
    w.Alloc(UnitGradients(s, elements, experts, Lifetime::kMicrobatch, &w));
  }
  return w.Finish();
}

graph::Block ReduceBucket(const Shape& s, std::int64_t elements, BucketMode mode, Names* names) {
  BlockWriter w(names, "gradients.reduce", Pass::kBackward);
  const std::int64_t bytes = elements * s.gradient_bytes;
  const graph::Buffer input =
      w.Temporary("reduce_scatter.input", s.keeps_units ? bytes : 0, MemoryKind::kCommunication);
  if (s.keeps_units) w.Alloc(input);
  // Scaling by 1/dp before the sum.
  w.Kernel("scale", MemoryBound{.op = MemoryOp::kGradScale,
                                .rows = 1,
                                .cols = elements,
                                .bytes_read = bytes,
                                .bytes_written = bytes,
                                .dtype = s.gradient_dtype,
                                .pass = Pass::kBackward});
  if (s.keeps_units) {
    w.Free(UnitGradients(s, elements, mode.experts, Lifetime::kMicrobatch, &w));
  }
  Comm comm{.collective = Collective::kAllReduce,
            .group = mode.experts ? GroupSlot::kExpertDp : GroupSlot::kDp,
            .stream = kDpStream,
            .blocking = mode.blocking,
            .dtype = s.gradient_dtype,
            .bytes = {.value = bytes}};
  const std::int16_t event = mode.last && !mode.blocking ? kGradientEvent : graph::kNoEvent;
  const bool hybrid = mode.distributed && !mode.experts && s.shard_ranks > 0;
  if (mode.distributed && (mode.experts || !s.framework.reduce_whole)) {
    comm.collective = Collective::kReduceScatter;
    if (hybrid) {  // within the shard group, then each shard over its copies
      comm.group = GroupSlot::kShard;
      w.Comm("reduce_scatter", comm);
      comm.collective = Collective::kAllReduce;
      comm.group = GroupSlot::kReplica;
      comm.bytes.value = bytes / s.shard_ranks;
    }
  }
  comm.event = event;
  w.Comm(comm.collective == Collective::kAllReduce ? "all_reduce" : "reduce_scatter", comm);
  if (s.keeps_units) w.Free(input);
  return w.Finish();
}

graph::Block GatherBucket(const Shape& s, std::int64_t elements, GatherMode mode, bool experts,
                          std::int64_t cast, Names* names) {
  const bool blocking = mode == GatherMode::kBlocking;
  BlockWriter w(names, "parameters.gather", blocking ? Pass::kOptimizer : Pass::kForward);
  if (cast > 0 && s.dtype != DType::kFp32 && !s.offload_optimizer) {
    MemoryBound kernel = Flat(MemoryOp::kCast, cast, 4, s.element_bytes, s.dtype);
    kernel.pass = Pass::kForward;
    w.Kernel("shard.cast", kernel);
  }
  w.Comm("all_gather",
         {.collective = Collective::kAllGather,
          .group = experts             ? GroupSlot::kExpertDp
                   : s.shard_ranks > 0 ? GroupSlot::kShard
                                       : GroupSlot::kDp,
          .stream = kDpStream,
          .blocking = blocking,
          .event = mode == GatherMode::kRecorded ? graph::kCallEvent : graph::kNoEvent,
          .dtype = s.framework.low_precision_gather ? DType::kFp8 : s.dtype,
          .bytes = {.value = elements * (s.framework.low_precision_gather ? 1 : s.element_bytes)}});
  return w.Finish();
}

graph::Block BroadcastShards(const Shape& s, std::int64_t elements, std::int64_t owners,
                             Names* names) {
  BlockWriter w(names, "parameters.broadcast", Pass::kOptimizer);
  for (std::int64_t i = 0; i < owners; ++i) {
    const std::int64_t part = elements * (i + 1) / owners - elements * i / owners;
    w.Comm("broadcast", {.collective = Collective::kBroadcast,
                         .group = s.shard_ranks > 0 ? GroupSlot::kShard : GroupSlot::kDp,
                         .stream = kDpStream,
                         .dtype = s.dtype,
                         .bytes = {.value = part * s.element_bytes}});
  }
  return w.Finish();
}

graph::Block WaitParameters(const Shape& s, std::int64_t elements, Names* names) {
  BlockWriter w(names, "parameters.wait", Pass::kForward);
  w.Wait("wait", graph::kCallEvent);
  if (elements > 0) {
    MemoryBound copy = Flat(MemoryOp::kCopy, elements, s.element_bytes, s.element_bytes, s.dtype);
    copy.pass = Pass::kForward;
    w.Kernel("copy_out", copy);
  }
  return w.Finish();
}

graph::Block WaitEvent(std::string_view name, std::int16_t event, Names* names) {
  BlockWriter w(names, name, Pass::kForward);
  w.Wait("wait", event);
  return w.Finish();
}

graph::Block ReduceSequenceParallelGradients(const Shape& s, std::int64_t elements, Names* names) {
  BlockWriter w(names, "gradients.reduce_tp", Pass::kBackward);
  const std::int64_t g = s.gradient_bytes;
  const auto copy = [&](std::string_view name) {
    w.Kernel(name, MemoryBound{.op = MemoryOp::kCopy,
                               .rows = 1,
                               .cols = elements,
                               .bytes_read = elements * g,
                               .bytes_written = elements * g,
                               .dtype = s.gradient_dtype,
                               .pass = Pass::kBackward});
  };
  const graph::Buffer flat = w.Temporary("flat", elements * g, MemoryKind::kCommunication);
  w.Alloc(flat);
  copy("flatten");
  TpCollective(s, &w, "all_reduce", Collective::kAllReduce, elements * g, s.gradient_dtype);
  copy("unflatten");
  w.Free(flat);
  return w.Finish();
}

graph::Block ReduceEmbeddingGradient(const Shape& s, Names* names) {
  BlockWriter w(names, "gradients.reduce_embedding", Pass::kBackward);
  w.Comm("all_reduce", {.collective = Collective::kAllReduce,
                        .group = GroupSlot::kEmbedding,
                        .stream = kModelStream,
                        .dtype = s.gradient_dtype,
                        .bytes = {.value = s.vocab * s.hidden * s.gradient_bytes}});
  return w.Finish();
}

graph::Block ReduceMirror(const Shape& s, std::int64_t elements, Names* names) {
  BlockWriter w(names, "gradients.reduce_mirror", Pass::kBackward);
  w.Comm("all_reduce", {.collective = Collective::kAllReduce,
                        .group = GroupSlot::kReplica,
                        .stream = kModelStream,
                        .dtype = s.gradient_dtype,
                        .bytes = {.value = elements * s.gradient_bytes}});
  return w.Finish();
}

graph::Block OptimizerStep(const Shape& s, const StepSizes& sizes, Names* names) {
  BlockWriter w(names, "optimizer", Pass::kOptimizer);
  const DType fp32 = DType::kFp32;
  const std::int64_t n = sizes.shard;
  const auto sum = [&](std::string_view name) {
    if (sizes.norm_group == 1) return;
    w.Comm(name, {.collective = Collective::kAllReduce,
                  .group = GroupSlot::kModel,
                  .stream = kModelStream,
                  .dtype = fp32,
                  .bytes = {.value = 4}});
  };
  const bool casts = s.gradient_dtype != fp32 && !s.sharded && !s.updates_in_place &&
                     !s.framework.bf16_main_gradients;  // shards are fp32
  const graph::Buffer flat =
      w.Temporary("flat_gradients", s.framework.flat_step ? n * s.element_bytes : 0);
  const graph::Buffer main =
      w.Temporary("main_gradients", (casts && !s.keeps_units) || s.framework.flat_step ? n * 4 : 0);
  w.Alloc(flat);
  w.Alloc(main);
  w.Free(flat);
  w.Module("optimizer.gradients");
  if (casts) w.Kernel("cast", Flat(MemoryOp::kCast, n, s.gradient_bytes, 4, fp32));
  if (sizes.fp16) {  // loss scaling: unscale, look for infinities, everyone must agree
    w.Kernel("unscale", Flat(MemoryOp::kGradScale, n, 4, 4, fp32));
    sum("all_reduce.found_inf");
    w.HostSync("found_inf.item");
  }
  if (s.framework.clip_gradients) {
    w.Module("optimizer.norm");
    w.Kernel("l2_norm", Flat(MemoryOp::kGradNorm, n, s.state_bytes, 0, fp32));
    sum("all_reduce.norm");
    w.HostSync("norm.item");
    w.Kernel("clip", Flat(MemoryOp::kGradScale, n, s.state_bytes, s.state_bytes, fp32));
  }
  w.Module("optimizer.adam");
  const std::int64_t at_once =
      s.framework.optimizer_in_backward ? std::min(n, LargestTensor(s)) : n;
  const std::int64_t results = AdamTemporaries(s, at_once);
  const graph::Buffer root = w.Temporary("exp_avg_sq.sqrt", results);
  const graph::Buffer quotient = w.Temporary("denominator", s.framework.flat_step ? results : 0);
  w.Alloc(root);
  w.Alloc(quotient);
  WriteUpdate(s, n, sizes.number, &w);
  w.Free(root);
  w.Free(quotient);
  if (s.dtype != fp32 && (!s.sharded || s.framework.unit_buffers) && !s.keeps_units &&
      !s.autocasts() && !s.offload_optimizer && !s.updates_in_place) {
    const std::int64_t copied = s.optimizer == Optimizer::kMuon ? sizes.number : n;
    w.Kernel("copy_to_model", Flat(MemoryOp::kCast, copied, 4, s.element_bytes, s.dtype));
  }
  w.Free(main);
  return w.Finish();
}

namespace {

// torchmetrics' gather_all_tensors: each of two metrics has a sum and a count, which it gathers
// over the ranks behind a barrier into a list of cleared tensors: a clear, a view and a copy a
// rank, each an operator of the host's.
void GatherMetrics(const Shape& s, std::int64_t dp, BlockWriter* w) {
  for (int state = 0; state < 4 && dp > 1; ++state) {
    w->HostSync("metrics.barrier");
    w->Host("metrics.views", 3 * dp * s.framework.host.view);
    w->Comm("metrics.all_gather", {.collective = Collective::kAllGather,
                                   .group = GroupSlot::kDp,
                                   .stream = kDpStream,
                                   .dtype = DType::kFp32,
                                   .bytes = {.value = dp * 4}});
  }
  w->HostSync("metrics.item");
}

}  // namespace

graph::Block ReduceLoss(const Shape& s, std::int64_t dp, bool sync, Names* names) {
  BlockWriter w(names, "loss.reduce", Pass::kForward);
  if (dp > 1) {
    w.Comm("all_reduce", {.collective = Collective::kAllReduce,
                          .group = GroupSlot::kDp,
                          .stream = kDpStream,
                          .dtype = DType::kFp32,
                          .bytes = {.value = 8}});
  }
  if (sync) w.HostSync("loss.item");
  if (s.framework.loss_metrics) GatherMetrics(s, dp, &w);
  return w.Finish();
}

}  // namespace orrery::workload
