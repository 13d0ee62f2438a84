#include "orrery/workload/generators/sharding/sharded_units.h"

#include "orrery/workload/generators/layers/layer.h"
#include "orrery/workload/generators/layers/lora.h"
#include "orrery/workload/generators/layers/offload.h"
#include "orrery/workload/generators/layers/precision.h"
#include "orrery/workload/generators/layers/quantized.h"
#include "orrery/workload/generators/sharding/optimizer.h"

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
enum : std::uint32_t {
  kUnitParameters = 60,
  kRootParameters,
  kUnitExperts,
  kUnitPart,
  kHeldGradients,
  kUnitShards
};

// What one all-gather or reduce-scatter moves: so many elements over so many ranks (one: nothing).
struct Part {
  std::int64_t elements = 0, trained = 0, ranks = 1;
  bool experts = false;
  std::int64_t pieces = 1;  // adapters, each by itself
};

std::vector<Part> PartsOf(const Unit& unit) {
  std::vector<Part> parts;
  if (unit.adapters > 0) {
    parts.push_back({unit.elements - unit.trained, 0, unit.ranks});
    parts.push_back({unit.trained, unit.trained, unit.ranks, false, unit.adapters});
  } else if (unit.elements > 0) {
    parts.push_back({unit.elements, unit.trained, unit.ranks});
  }
  if (unit.expert_elements > 0)
    parts.push_back({unit.expert_elements, unit.expert_trained, unit.expert_ranks, true});
  return parts;
}

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
std::int64_t GatherBytes(const Shape& s, const Part& part) {
  const bool low = IsLow(s) && s.framework.low_precision_gather;
  return low ? LinearBytes(s, part.elements) / part.ranks * part.ranks
             : part.elements * s.element_bytes;
}

// A unit's shards on their way from host memory.
void Fetch(const Shape& s, BlockWriter* w, const Unit& unit, bool blocking) {
  std::int64_t bytes = 0;
  for (const Part& part : PartsOf(unit)) bytes += GatherBytes(s, part) / part.ranks;
  if (bytes == 0) return;
  graph::Comm copy = HostCopy(Collective::kCopyToDevice, bytes);
  copy.blocking = blocking;
  if (!blocking) copy.event = kShardEvent;
  w->Comm("shard.to_device", copy);
}

// Whether backward gathers what forward left on this rank, over fewer ranks.
bool GathersPart(const Shape& s, Pass pass) {
  return s.reshard_ranks > 0 && pass == Pass::kBackward;
}

struct Tensors {
  std::int64_t elements = 0, count = 0;
};

// DeepSpeed of 2021 (_allgather_param): a tensor at a time is cleared, the device synchronised, and
// the parts are gathered into a list, out of which PyTorch copies them: a view and a copy for each
// rank, each an operator of the host's.
void GatherLists(const Shape& s, BlockWriter* w, const Tensors& tensors, std::int64_t ranks,
                 Pass pass) {
  if (tensors.count == 0) return;
  const std::int64_t e = s.element_bytes, elements = tensors.elements / tensors.count;
  for (std::int64_t i = 0; i < tensors.count; ++i) {
    w->Kernel("zero", Flat(MemoryOp::kZero, elements, 0, e, s.dtype, pass));
    w->HostSync("gather");
    w->Host("views", 2 * ranks * s.framework.host.view);
    w->Comm("all_gather", {.collective = Collective::kAllGather,
                           .group = GroupSlot::kDp,
                           .stream = kDpStream,
                           .dtype = s.dtype,
                           .bytes = {.value = elements * e}});
    w->Kernel("copy_out", Flat(MemoryOp::kCopy, elements, e, e, s.dtype, pass));
  }
}

// Tensors that are gathered: smaller ones stay (stage3_param_persistence_threshold).
std::int64_t GatheredTensors(const Shape& s) {
  const std::vector<std::int64_t> sizes = LayerParameters(s);
  const auto large = std::count_if(sizes.begin(), sizes.end(),
                                   [](std::int64_t elements) { return elements > 100'000; });
  return std::max<std::int64_t>(1, large);
}

// Weights of a layer that are given back between its recomputation and its backward pass: those not
// needed again within 10^9 elements (stage3_max_reuse_distance), counted over the weights between.
Tensors ReleasedAfterRecompute(const Shape& s) {
  Tensors released;
  if (s.recompute != Recompute::kFull || !s.attends || !s.feeds_forward || s.experts.count > 0) {
    return released;
  }
  std::int64_t behind = 0;
  for (const std::int64_t weight :
       {s.ffn * s.hidden, s.hidden * s.fc1(), s.context() * s.hidden, s.hidden * s.qkv()}) {
    if (2 * behind >= 1'000'000'000) {
      released.elements += weight;
      ++released.count;
    }
    behind += weight;
  }
  return released;
}

// Its gradients are reduced a tensor at a time as well, all of them, from lists of every rank's
// part (_reduce_scatter_gradient), which PyTorch copies into one tensor.
void ReduceLists(const Shape& s, BlockWriter* w, const Unit& unit, std::size_t tensors) {
  if (!s.framework.list_gathers || unit.ranks == 1) return;
  w->Host("views", static_cast<std::int64_t>(tensors) * 2 * unit.ranks * s.framework.host.view);
  w->Kernel("lists.copy_in", Flat(MemoryOp::kCopy, unit.trained, s.element_bytes, s.element_bytes,
                                  s.dtype, Pass::kBackward));
}

// Of shards in host memory the copy has been started, or is made here where all blocks.
void Gather(const Shape& s, BlockWriter* w, const Unit& unit, bool blocking, Pass pass) {
  const std::vector<Part> parts = PartsOf(unit);
  if (parts.empty()) return;
  const bool part_only = GathersPart(s, pass);
  if (s.offload_parameters && blocking) Fetch(s, w, unit, true);
  if (s.offload_parameters && !blocking) w->Wait("shard", kShardEvent);
  for (const Part& part : parts) {
    if (s.dtype != DType::kFp32 && !s.offload_optimizer && !part_only && part.trained > 0 &&
        !s.framework.unit_buffers && s.state_bytes == 4) {
      w->Kernel("shard.cast", Flat(MemoryOp::kCast, part.trained / part.ranks, 4, s.element_bytes,
                                   s.dtype, pass));
    }
    if (part.ranks == 1) continue;
    if (s.framework.list_gathers) {
      GatherLists(s, w, {part.elements, GatheredTensors(s)}, part.ranks, pass);
      continue;
    }
    const bool last = &part == &parts.back() || (&part)[1].ranks == 1;
    GroupSlot group = part.experts        ? GroupSlot::kExpertDp
                      : s.shard_ranks > 0 ? GroupSlot::kShard
                                          : GroupSlot::kDp;
    if (part_only) group = GroupSlot::kShard;
    const auto whole = static_cast<std::size_t>(part.pieces);
    for (std::size_t i = 0; i < whole; ++i) {
      w->Comm(part.experts ? "all_gather.experts" : "all_gather",
              {.collective = Collective::kAllGather,
               .group = group,
               .stream = kDpStream,
               .blocking = blocking,
               .event = blocking || !last || i + 1 < whole ? graph::kNoEvent : kUnitEvent,
               .dtype = IsLow(s) && s.framework.low_precision_gather ? DType::kFp8 : s.dtype,
               .bytes = {.value = GatherBytes(s, part) / part.pieces}});
    }
  }
}

// Bytes of an unsharded gradient that waits for later micro-batches.
std::int64_t HeldBytes(const Shape& s) {
  return s.framework.flat_parameters ? s.element_bytes : s.gradient_bytes;
}

// What a pass has written is added to what waits, or becomes it.
void KeepUnsharded(const Shape& s, BlockWriter* w, std::int64_t elements, bool adds) {
  const std::int64_t e = s.element_bytes, held = HeldBytes(s);
  const Pass pass = Pass::kBackward;
  if (s.framework.flat_parameters) {
    w->Kernel("concatenate", Flat(MemoryOp::kCopy, elements, e, e, s.dtype, pass));
  }
  if (adds) {
    w->Kernel("add", Flat(MemoryOp::kAdd, elements, e + held, held, s.dtype, pass));
  } else if (held != e) {
    w->Kernel("cast", Flat(MemoryOp::kCast, elements, e, held, s.dtype, pass));
  }
}

// A unit's gradients into the buffer that is reduced: `e` bytes where they lie, `g` there.
void FillReduced(const Shape& s, BlockWriter* w, std::int64_t elements, bool adds) {
  const std::int64_t g = s.gradient_bytes;
  const std::int64_t e = adds ? HeldBytes(s) : s.element_bytes;
  const Pass pass = Pass::kBackward;
  if (s.framework.unit_buffers) {
    // NCCL scales wider sums itself (gradient_reduce_div_fusion).
    if (!s.framework.fused_weight_gradient) {
      w->Kernel("copy_in", Flat(MemoryOp::kCopy, elements, e, g, s.dtype, pass));
    }
    if (g < 4) w->Kernel("scale", Flat(MemoryOp::kGradScale, elements, g, g, s.dtype, pass));
  } else if (s.framework.flat_parameters) {
    if (!adds) w->Kernel("concatenate", Flat(MemoryOp::kCopy, elements, e, e, s.dtype, pass));
    // Cast to the type of the reduction, then divided by ranks before the sum (_post_backward_hook,
    // _reduce_grad).
    if (e != g) w->Kernel("cast", Flat(MemoryOp::kCast, elements, e, g, s.dtype, pass));
    w->Kernel("scale", Flat(MemoryOp::kGradScale, elements, g, g, s.dtype, pass));
  } else if (s.framework.copies_units || e != g) {
    w->Kernel("copy_in", Flat(MemoryOp::kCopy, elements, e, g, s.dtype, pass));
  }
}

void ReducePart(const Shape& s, BlockWriter* w, const Part& part, const UnitMode& mode,
                bool blocking, std::int16_t event) {
  const std::int64_t g = s.gradient_bytes;
  const std::int64_t shard = part.trained / part.ranks;
  const Buffer flat = w->Temporary("gradients.flat", part.trained * g, MemoryKind::kGradient);
  w->Alloc(flat);
  if (mode.defers || mode.adds) KeepUnsharded(s, w, part.trained, mode.adds);
  if (mode.defers) return w->Free(flat);
  FillReduced(s, w, part.trained, mode.adds);
  graph::Comm comm{.collective = Collective::kReduceScatter,
                   .group = part.experts ? GroupSlot::kExpertDp : GroupSlot::kDp,
                   .stream = kDpStream,
                   .blocking = blocking,
                   .dtype = s.gradient_dtype,
                   .bytes = {.value = part.trained * g}};
  const bool hybrid = s.shard_ranks > 0 && !part.experts;
  if (part.ranks == 1) {
    // Nobody else has them.
  } else if (hybrid) {  // HSDP: within the group, then each shard over its copies
    comm.group = GroupSlot::kShard;
    if (mode.own_group) comm.event = event;
    w->Comm("reduce_scatter", comm);
    if (!mode.own_group) {
      comm.collective = Collective::kAllReduce;
      comm.group = GroupSlot::kReplica;
      comm.bytes.value = shard * g;
      comm.event = event;
      w->Comm("all_reduce", comm);
    }
  } else {
    comm.event = event;
    w->Comm(part.experts ? "reduce_scatter.experts" : "reduce_scatter", comm);
  }
  // On the reduction's own stream in the framework; here it does not wait for the reduction.
  const std::int64_t b = s.state_bytes;
  w->Kernel("shard.add", Flat(mode.accumulates ? MemoryOp::kAdd : MemoryOp::kCast, shard,
                              g + (mode.accumulates ? b : 0), b, DType::kFp32, Pass::kBackward));
  w->Free(flat);
}

void Reduce(const Shape& s, BlockWriter* w, const Unit& unit, const UnitMode& mode, bool blocking,
            std::int16_t event) {
  for (Part part : PartsOf(unit)) {
    part.trained /= part.pieces;
    for (std::int64_t i = 0; part.trained > 0 && i < part.pieces; ++i) {
      ReducePart(s, w, part, mode, blocking, event);
    }
  }
}

// The gathered parameters of a unit, and what is kept of them after forward. Gathered layers that
// FSDP1's host frees far ahead of the GPU linger.
class Parameters {
 public:
  Parameters(const Shape& s, BlockWriter* w, const Unit& unit) : s_(s), w_(w) {
    const std::int64_t e = s.element_bytes;
    const auto add = [&](std::uint32_t id, std::string_view name, std::int64_t elements) {
      if (elements == 0) return;
      if (!s.reshards) {
        buffers_.push_back(
            w->Named(id, name, elements * e, MemoryKind::kParameter, Lifetime::kMicrobatch));
        return;
      }
      buffers_.push_back(w->Temporary(name, elements * e, MemoryKind::kParameter));
      if (s.gathers_linger) buffers_.back().lifetime = Lifetime::kLingering;
    };
    add(kUnitParameters, "parameters.gathered", unit.elements);
    add(kUnitExperts, "experts.gathered", unit.expert_elements);
    if (s.reshard_ranks == 0) return;
    part_ = w->Named(kUnitPart, "parameters.resharded", unit.elements / s.reshard_ranks * e,
                     MemoryKind::kParameter, Lifetime::kMicrobatch);
  }
  void Alloc() {
    for (const Buffer& b : buffers_) w_->Alloc(b);
  }
  void Free() {
    for (const Buffer& b : buffers_) w_->Free(b);
  }
  // fully_shard's reshard to fewer ranks: this rank's part is copied, the rest given back.
  void Reshard() {
    if (s_.reshard_ranks == 0) return;
    w_->Alloc(part_);
    const std::int64_t e = s_.element_bytes;
    w_->Kernel("reshard", Flat(MemoryOp::kCopy, part_.bytes / e, e, e, s_.dtype, Pass::kForward));
  }
  void FreePart() {
    if (s_.reshard_ranks > 0) w_->Free(part_);
  }

 private:
  const Shape& s_;
  BlockWriter* w_;
  std::vector<Buffer> buffers_;
  Buffer part_;
};

// The unit's own parameters are there, its neighbour's are on their way. Returns what they take.
Buffer BeginUnit(const Shape& s, BlockWriter* w, const UnitCall& call, bool gathers, Pass pass,
                 Parameters* parameters) {
  w->Module("fsdp");
  w->Host("fsdp", s.framework.host.unit * (s.units() + call.own.adapters));
  const std::int64_t ahead = call.next.elements + call.next.expert_elements;
  const Buffer next = w->Temporary("parameters.prefetched",
                                   gathers && s.framework.prefetch ? ahead * s.element_bytes : 0,
                                   MemoryKind::kParameter);
  if (!gathers) return next;
  if (s.framework.prefetch) {
    w->Wait("all_gather", kUnitEvent);
  } else {
    Gather(s, w, call.own, true, pass);
  }
  if (pass == Pass::kBackward) parameters->FreePart();
  if (!s.framework.flat_parameters && s.framework.copies_units && !s.framework.unit_buffers) {
    for (const Part& part : PartsOf(call.own)) {
      w->Kernel("copy_out", Flat(MemoryOp::kCopy, part.elements, s.element_bytes, s.element_bytes,
                                 s.dtype, pass));
    }
  }
  CastWeights(s, w, LinearWeights(s), pass);
  w->Alloc(next);
  if (!s.framework.prefetch) return next;
  Gather(s, w, call.next, false, pass);
  Fetch(s, w, call.after, false);
  return next;
}

void EndUnit(const Shape& s, BlockWriter* w) {
  if (s.limits_gathers) w->HostPace("rate_limiter");
}

}  // namespace

graph::Block ShardedLayerForward(const Shape& s, const UnitCall& call, Names* names) {
  BlockWriter w(names, "layer.forward", Pass::kForward);
  Parameters own(s, &w, call.own);
  own.Alloc();
  const Buffer next = BeginUnit(s, &w, call, !call.mode.gathered, Pass::kForward, &own);
  WriteLayerForward(s, &w);
  w.Free(next);
  if (s.reshards) {
    w.Module("fsdp");
    own.Reshard();
    own.Free();
  }
  EndUnit(s, &w);
  return w.Finish();
}

graph::Block ShardedLayerBackward(const Shape& s, const UnitCall& call, Names* names) {
  BlockWriter w(names, "layer.backward", Pass::kBackward);
  Parameters own(s, &w, call.own);
  if (s.reshards) own.Alloc();
  const Buffer next = BeginUnit(s, &w, call, s.reshards, Pass::kBackward, &own);
  const std::int64_t trained = call.own.trained + call.own.expert_trained;
  const Buffer gradients =
      w.Temporary("gradients", trained * s.element_bytes, MemoryKind::kGradient);
  w.Alloc(gradients);
  // Behind the recomputation in truth; the host and the GPU wait for it wherever it stands.
  if (s.framework.list_gathers && call.own.ranks > 1) {
    GatherLists(s, &w, ReleasedAfterRecompute(s), call.own.ranks, Pass::kBackward);
  }
  WriteLayerBackward(s, &w);
  w.Module("fsdp");
  own.Free();
  ReduceLists(s, &w, call.own, LayerParameters(s).size());
  Reduce(s, &w, call.own, call.mode, !s.framework.prefetch,
         s.framework.prefetch && call.mode.records ? kGradientEvent : graph::kNoEvent);
  w.Free(gradients);
  w.Free(next);
  EndUnit(s, &w);
  return w.Finish();
}

graph::Block StartUnit(const Shape& s, const UnitCall& call, Pass pass, Names* names) {
  BlockWriter w(names, "parameters.gather", Pass::kForward);
  if (!s.framework.prefetch) return w.Finish();
  if (s.offload_parameters) Fetch(s, &w, call.own, false);
  Gather(s, &w, call.own, false, pass);
  Fetch(s, &w, call.next, false);
  return w.Finish();
}

graph::Block GatherRoot(const Shape& s, const Unit& root, bool gathered, Names* names) {
  BlockWriter w(names, "root.gather", Pass::kForward);
  w.Host("fsdp", s.framework.host.unit);
  w.Alloc(w.Named(kRootParameters, "root.parameters", root.elements * s.element_bytes,
                  MemoryKind::kParameter, Lifetime::kMicrobatch));
  // No linear layer is in the root.
  if (!gathered) Gather(InBf16(s), &w, root, true, Pass::kForward);
  return w.Finish();
}

graph::Block ReduceRoot(const Shape& s, const Unit& root, const UnitMode& mode, Names* names) {
  BlockWriter w(names, "root.reduce", Pass::kBackward);
  w.Host("fsdp", s.framework.host.unit);
  const Buffer gradients =
      w.Temporary("gradients", root.trained * s.element_bytes, MemoryKind::kGradient);
  w.Alloc(gradients);
  ReduceLists(s, &w, root, EmbeddingParameters(s).size() + HeadParameters(s, !s.tied).size());
  Reduce(s, &w, root, mode, !s.framework.prefetch,
         s.framework.prefetch && mode.records ? kGradientEvent : graph::kNoEvent);
  w.Free(gradients);
  w.Free(w.Named(kRootParameters, "root.parameters", root.elements * s.element_bytes,
                 MemoryKind::kParameter, Lifetime::kMicrobatch));
  return w.Finish();
}

namespace {

Buffer HeldGradients(const Shape& s, const Unit& unit, BlockWriter* w) {
  return w->Named(kHeldGradients, "gradients.unsharded",
                  (unit.trained + unit.expert_trained) * HeldBytes(s), MemoryKind::kGradient,
                  Lifetime::kMicrobatch);
}

// On the CPU where the optimizer runs there.
Buffer GradientShards(const Shape& s, const Unit& unit, BlockWriter* w) {
  return w->Named(kUnitShards, "gradient_shards",
                  s.offload_optimizer ? 0 : TrainedShardOf(unit) * s.state_bytes,
                  MemoryKind::kGradient, Lifetime::kMicrobatch);
}

}  // namespace

graph::Block HoldUnit(const Shape& s, const Unit& unit, Names* names) {
  BlockWriter w(names, "gradients.hold", Pass::kOptimizer);
  w.Alloc(HeldGradients(s, unit, &w));
  return w.Finish();
}

graph::Block ShardUnit(const Shape& s, const Unit& unit, Names* names) {
  BlockWriter w(names, "gradients.shard", Pass::kOptimizer);
  w.Free(HeldGradients(s, unit, &w));
  w.Alloc(GradientShards(s, unit, &w));
  return w.Finish();
}

graph::Block FreeShards(const Shape& s, const Unit& unit, Names* names) {
  BlockWriter w(names, "gradients.free", Pass::kOptimizer);
  w.Free(GradientShards(s, unit, &w));
  return w.Finish();
}

graph::Block ShardedMemory(const Shape& s, const ShardSizes& sizes, Names* names) {
  BlockWriter w(names, "static", Pass::kOptimizer);
  const auto forever = [&](std::uint32_t id, std::string_view name, MemoryKind kind,
                           std::int64_t bytes) {
    w.Alloc(w.Named(id, name, sizes.trained * bytes, kind, Lifetime::kForever));
  };
  // With the optimizer on the CPU the GPU holds what it gathers; gradients pass through.
  if (s.offload_parameters) {
    // Two layers' shards on their way to be gathered.
    w.Alloc(w.Named(1, "parameter_shards.staged", 2 * sizes.layer * s.element_bytes,
                    MemoryKind::kParameter, Lifetime::kForever));
  } else {
    forever(1, "parameter_shards", MemoryKind::kParameter,
            s.offload_optimizer ? s.element_bytes : s.state_bytes);
    if (sizes.frozen > 0) {
      w.Alloc(w.Named(20, "frozen_shards", sizes.frozen * s.element_bytes, MemoryKind::kParameter,
                      Lifetime::kForever));
    }
  }
  if (s.framework.unit_buffers && !s.offload_parameters && !s.offload_optimizer) {
    forever(8, "model_shards", MemoryKind::kParameter, s.element_bytes);
  }
  if (s.contiguous_elements > 0) {
    w.Alloc(w.Named(7, "gradient_buckets", s.contiguous_elements * s.gradient_bytes,
                    MemoryKind::kGradient, Lifetime::kForever));
  }
  if (!s.offload_optimizer && !s.framework.optimizer_in_backward &&
      !s.framework.defer_grad_reduce) {
    forever(2, "gradient_shards", MemoryKind::kGradient,
            s.framework.unit_buffers ? s.gradient_bytes : s.state_bytes);
  }
  WriteOptimizerState(s, sizes.trained, sizes.number, &w);
  return w.Finish();
}

namespace {

// Elements of these tensors, those of them that are packed counted as what they are gathered as.
std::int64_t Padded(const Shape& s, const std::vector<std::int64_t>& tensors,
                    const PackedWeights& packed, std::int64_t ranks) {
  std::int64_t sum = 0;
  for (const std::int64_t n : tensors) sum += n;
  const std::int64_t bytes = packed.codes + (s.framework.nf4_tensor ? packed.scales : 0);
  sum += (bytes + s.element_bytes - 1) / s.element_bytes - packed.elements;
  return (sum + ranks - 1) / ranks * ranks;
}

}  // namespace

Unit UnitOf(const Shape& layer, std::int64_t ranks, std::int64_t expert_ranks) {
  const std::int64_t own = Padded(layer, LayerParameters(layer), PackedOf(layer), ranks);
  const std::int64_t experts =
      Padded(layer, ExpertParameters(layer), PackedExperts(layer), expert_ranks);
  Unit unit{.elements = own,
            .trained = own,
            .ranks = ranks,
            .expert_elements = experts,
            .expert_ranks = expert_ranks,
            .expert_trained = experts};
  if (!layer.frozen()) return unit;
  const std::vector<std::int64_t> tensors = AdapterParameters(layer);
  const auto count = static_cast<std::int64_t>(tensors.size());
  // DeepSpeed gathers several parameters at once (contiguous buffers).
  const bool apart = layer.framework.flat_parameters && layer.contiguous_elements == 0;
  unit.trained = Padded(layer, tensors, {}, apart ? ranks * count : ranks);
  unit.elements += unit.trained;
  unit.expert_trained = 0;
  unit.adapters = apart ? count : 0;
  return unit;
}

std::int64_t RootUnit(const Shape& s, std::int64_t ranks) {
  std::vector<std::int64_t> tensors = EmbeddingParameters(s);
  for (const std::int64_t n : HeadParameters(s, !s.tied)) tensors.push_back(n);
  return Padded(s, tensors, {}, ranks);
}

}  // namespace orrery::workload
