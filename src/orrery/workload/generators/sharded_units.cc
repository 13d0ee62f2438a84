#include "orrery/workload/generators/sharded_units.h"

#include "orrery/workload/generators/layer.h"
#include "orrery/workload/generators/offload.h"
#include "orrery/workload/generators/optimizer.h"
#include "orrery/workload/generators/precision.h"

namespace orrery::workload {

using graph::Buffer;
using graph::Collective;
using graph::DType;
using graph::GroupSlot;
using graph::Lifetime;
using graph::MemoryBound;
using graph::MemoryKind;
using graph::MemoryOp;
using graph::Pass;

namespace {

// Buffer ids beside those of layers (1 to 17) and ends (40 to 46).
enum : std::uint32_t { kUnitParameters = 60, kRootParameters };

MemoryBound Flat(MemoryOp op, std::int64_t elements, std::int64_t read, std::int64_t written,
                 DType dtype, Pass pass) {
  return {.op = op,
          .rows = 1,
          .cols = elements,
          .bytes_read = elements * read,
          .bytes_written = elements * written,
          .dtype = dtype,
          .pass = pass};
}

// On the wire: weights of linear layers in low precision where the framework gathers them so.
std::int64_t GatherBytes(const Shape& s, const Unit& unit) {
  const bool low = IsLow(s) && s.low_precision_gather;
  return low ? LinearBytes(s, unit.elements) / unit.ranks * unit.ranks
             : unit.elements * s.element_bytes;
}

// A unit's shard on its way from host memory.
void Fetch(const Shape& s, BlockWriter* w, const Unit& unit, bool blocking) {
  graph::Comm copy = HostCopy(Collective::kCopyToDevice, GatherBytes(s, unit) / unit.ranks);
  copy.blocking = blocking;
  if (!blocking) copy.event = kShardEvent;
  w->Comm("shard.to_device", copy);
}

// Of shards in host memory the copy has been started, or is made here where all blocks.
void Gather(const Shape& s, BlockWriter* w, const Unit& unit, bool blocking, Pass pass) {
  if (s.offload_parameters && blocking) Fetch(s, w, unit, true);
  if (s.offload_parameters && !blocking) w->Wait("shard", kShardEvent);
  if (s.dtype != DType::kFp32 && !s.offload_optimizer) {
    w->Kernel("shard.cast",
              Flat(MemoryOp::kCast, unit.elements / unit.ranks, 4, s.element_bytes, s.dtype, pass));
  }
  w->Comm("all_gather", {.collective = Collective::kAllGather,
                         .group = s.shard_ranks > 0 ? GroupSlot::kShard : GroupSlot::kDp,
                         .stream = kDpStream,
                         .blocking = blocking,
                         .event = blocking ? graph::kNoEvent : kUnitEvent,
                         .dtype = IsLow(s) && s.low_precision_gather ? DType::kFp8 : s.dtype,
                         .bytes = {.value = GatherBytes(s, unit)}});
}

void Reduce(const Shape& s, BlockWriter* w, const Unit& unit, bool blocking, std::int16_t event) {
  const std::int64_t e = s.element_bytes, g = s.gradient_bytes;
  const Pass pass = Pass::kBackward;
  const Buffer flat = w->Temporary("gradients.flat", unit.elements * g, MemoryKind::kGradient);
  w->Alloc(flat);
  if (s.flat_parameters) {
    w->Kernel("concatenate", Flat(MemoryOp::kCopy, unit.elements, e, e, s.dtype, pass));
    // Divides by the number of ranks before the sum, in the type of the reduction.
    w->Kernel("scale", Flat(MemoryOp::kGradScale, unit.elements, e, g, s.dtype, pass));
  } else {
    w->Kernel("copy_in", Flat(MemoryOp::kCopy, unit.elements, e, g, s.dtype, pass));
  }
  graph::Comm comm{.collective = Collective::kReduceScatter,
                   .group = GroupSlot::kDp,
                   .stream = kDpStream,
                   .blocking = blocking,
                   .dtype = s.gradient_dtype,
                   .bytes = {.value = unit.elements * g}};
  if (s.shard_ranks > 0) {  // HSDP: within the group, then each shard over its copies
    comm.group = GroupSlot::kShard;
    w->Comm("reduce_scatter", comm);
    comm.collective = Collective::kAllReduce;
    comm.group = GroupSlot::kReplica;
    comm.bytes.value = unit.elements / unit.ranks * g;
  }
  comm.event = event;
  w->Comm(s.shard_ranks > 0 ? "all_reduce" : "reduce_scatter", comm);
  // On the reduction's own stream in the framework; here it does not wait for the reduction.
  const std::int64_t read = g + (unit.accumulates ? 4 : 0);
  w->Kernel("shard.add", Flat(unit.accumulates ? MemoryOp::kAdd : MemoryOp::kCast,
                              unit.elements / unit.ranks, read, 4, DType::kFp32, pass));
  w->Free(flat);
}

Buffer Gathered(const Shape& s, BlockWriter* w, const Unit& unit) {
  const std::int64_t bytes = unit.elements * s.element_bytes;
  if (s.reshards) return w->Temporary("parameters.gathered", bytes, MemoryKind::kParameter);
  return w->Named(kUnitParameters, "parameters.gathered", bytes, MemoryKind::kParameter,
                  Lifetime::kMicrobatch);
}

// The unit's own parameters are there, its neighbour's are on their way.
Buffer BeginUnit(const Shape& s, BlockWriter* w, const Unit& unit, bool gathers, Pass pass) {
  w->Module("fsdp");
  w->Host("fsdp", s.host.unit);
  const Buffer next =
      w->Temporary("parameters.prefetched",
                   gathers && s.prefetch && unit.prefetches ? unit.elements * s.element_bytes : 0,
                   MemoryKind::kParameter);
  if (!gathers) return next;
  if (s.prefetch) {
    w->Wait("all_gather", kUnitEvent);
  } else {
    Gather(s, w, unit, true, pass);
  }
  if (!s.flat_parameters) {
    w->Kernel("copy_out", Flat(MemoryOp::kCopy, unit.elements, s.element_bytes, s.element_bytes,
                               s.dtype, pass));
  }
  CastWeights(s, w, LinearWeights(s), pass);
  w->Alloc(next);
  if (!s.prefetch || !unit.prefetches) return next;
  Gather(s, w, unit, false, pass);
  if (unit.copies) Fetch(s, w, unit, false);
  return next;
}

}  // namespace

graph::Block ShardedLayerForward(const Shape& s, const Unit& unit, Names* names) {
  BlockWriter w(names, "layer.forward", Pass::kForward);
  const Buffer own = Gathered(s, &w, unit);
  w.Alloc(own);
  const Buffer next = BeginUnit(s, &w, unit, true, Pass::kForward);
  WriteLayerForward(s, &w);
  w.Free(next);
  if (s.reshards) w.Free(own);
  return w.Finish();
}

graph::Block ShardedLayerBackward(const Shape& s, const Unit& unit, Names* names) {
  BlockWriter w(names, "layer.backward", Pass::kBackward);
  const Buffer own = Gathered(s, &w, unit);
  if (s.reshards) w.Alloc(own);
  const Buffer next = BeginUnit(s, &w, unit, s.reshards, Pass::kBackward);
  const Buffer gradients =
      w.Temporary("gradients", unit.elements * s.element_bytes, MemoryKind::kGradient);
  w.Alloc(gradients);
  WriteLayerBackward(s, &w);
  w.Module("fsdp");
  w.Free(own);
  Reduce(s, &w, unit, !s.prefetch, graph::kNoEvent);
  w.Free(gradients);
  w.Free(next);
  return w.Finish();
}

graph::Block StartUnit(const Shape& s, const Unit& unit, Names* names) {
  BlockWriter w(names, "parameters.gather", Pass::kForward);
  if (!s.prefetch) return w.Finish();
  if (s.offload_parameters) Fetch(s, &w, unit, false);
  Gather(s, &w, unit, false, Pass::kForward);
  if (unit.copies) Fetch(s, &w, unit, false);
  return w.Finish();
}

graph::Block GatherRoot(const Shape& s, const Unit& root, Names* names) {
  BlockWriter w(names, "root.gather", Pass::kForward);
  w.Host("fsdp", s.host.unit);
  w.Alloc(w.Named(kRootParameters, "root.parameters", root.elements * s.element_bytes,
                  MemoryKind::kParameter, Lifetime::kMicrobatch));
  Shape plain = s;
  plain.low_precision = LowPrecision::kNone;  // nothing in the root is a low-precision layer
  Gather(plain, &w, root, true, Pass::kForward);
  return w.Finish();
}

graph::Block ReduceRoot(const Shape& s, const Unit& root, bool last, Names* names) {
  BlockWriter w(names, "root.reduce", Pass::kBackward);
  w.Host("fsdp", s.host.unit);
  const Buffer gradients =
      w.Temporary("gradients", root.elements * s.element_bytes, MemoryKind::kGradient);
  w.Alloc(gradients);
  Reduce(s, &w, root, !s.prefetch, s.prefetch && last ? kGradientEvent : graph::kNoEvent);
  w.Free(gradients);
  w.Free(w.Named(kRootParameters, "root.parameters", root.elements * s.element_bytes,
                 MemoryKind::kParameter, Lifetime::kMicrobatch));
  return w.Finish();
}

graph::Block ShardedMemory(const Shape& s, std::int64_t shard, std::int64_t layer_shard,
                           Names* names) {
  BlockWriter w(names, "static", Pass::kOptimizer);
  const auto forever = [&](std::uint32_t id, std::string_view name, MemoryKind kind,
                           std::int64_t bytes) {
    w.Alloc(w.Named(id, name, shard * bytes, kind, Lifetime::kForever));
  };
  // With the optimizer on the CPU the GPU holds what it gathers; gradients pass through.
  if (s.offload_parameters) {
    // Two layers' shards on their way to be gathered.
    w.Alloc(w.Named(1, "parameter_shards.staged", 2 * layer_shard * s.element_bytes,
                    MemoryKind::kParameter, Lifetime::kForever));
  } else {
    forever(1, "parameter_shards", MemoryKind::kParameter,
            s.offload_optimizer ? s.element_bytes : 4);
  }
  if (s.bucket_elements > 0) {
    w.Alloc(w.Named(7, "gradient_buckets", s.bucket_elements * s.gradient_bytes,
                    MemoryKind::kGradient, Lifetime::kForever));
  }
  if (!s.offload_optimizer) forever(2, "gradient_shards", MemoryKind::kGradient, 4);
  WriteOptimizerState(s, shard, 0, &w);
  return w.Finish();
}

namespace {

std::int64_t Padded(const std::vector<std::int64_t>& tensors, std::int64_t ranks) {
  std::int64_t sum = 0;
  for (const std::int64_t n : tensors) sum += n;
  return (sum + ranks - 1) / ranks * ranks;
}

}  // namespace

std::int64_t LayerUnit(const Shape& s, std::int64_t ranks) {
  return Padded(LayerParameters(s), ranks);
}

std::int64_t RootUnit(const Shape& s, std::int64_t ranks) {
  std::vector<std::int64_t> tensors = EmbeddingParameters(s);
  for (const std::int64_t n : HeadParameters(s, !s.tied)) tensors.push_back(n);
  return Padded(tensors, ranks);
}

}  // namespace orrery::workload
