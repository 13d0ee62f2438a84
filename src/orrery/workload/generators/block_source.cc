#include "orrery/workload/generators/block_source.h"

#include <algorithm>
#include <bit>

#include "orrery/base/check.h"
#include "orrery/base/hash.h"
#include "orrery/workload/generators/experts/expert_host.h"
#include "orrery/workload/generators/experts/expert_parts.h"
#include "orrery/workload/generators/layers/embedding_and_head.h"
#include "orrery/workload/generators/layers/fills.h"
#include "orrery/workload/generators/layers/layer.h"
#include "orrery/workload/generators/layers/mtp.h"
#include "orrery/workload/generators/layers/offload.h"
#include "orrery/workload/generators/layers/precision.h"
#include "orrery/workload/generators/layers/quantized.h"
#include "orrery/workload/generators/layers/split_backward.h"
#include "orrery/workload/generators/schedules/exchange.h"
#include "orrery/workload/generators/sharding/optimizer.h"
#include "orrery/workload/generators/sharding/reduce_and_update.h"
#include "orrery/workload/generators/sharding/sharded_units.h"
#include "orrery/workload/generators/sharding/tensor_gradients.h"

namespace orrery::workload {

std::size_t BlockCache::KeyHash::operator()(const BlockKey& key) const {
  const auto bits = [&](std::size_t i) { return static_cast<std::uint64_t>(key.numbers[i]); };
  const std::uint64_t which = std::uint64_t{key.shape} << 8 | static_cast<std::uint64_t>(key.kind);
  return Hasher()
      .Add(which)
      .Add(bits(0))
      .Add(bits(1) + std::rotl(bits(2), 24) + std::rotl(bits(3), 48))
      .value();
}

std::uint32_t BlockCache::ShapeId(const Shape& shape) {
  std::vector<std::uint32_t>& same_hash = shape_ids_[Hash(shape)];
  for (const std::uint32_t id : same_hash) {
    if (shapes_[id] == shape) return id;
  }
  shapes_.push_back(shape);
  same_hash.push_back(static_cast<std::uint32_t>(shapes_.size() - 1));
  return same_hash.back();
}

void BlockCache::Trim(std::size_t blocks) {
  if (blocks_.size() <= blocks) return;
  shapes_.clear();
  shape_ids_.clear();
  ids_.clear();
  blocks_.clear();
}

std::uint32_t BlockCache::Find(const BlockKey& key) {
  const auto [at, added] = ids_.try_emplace(key, static_cast<std::uint32_t>(blocks_.size()));
  if (added) blocks_.push_back(Build(key));
  return at->second;
}

namespace {

bool IsLayer(BlockKind kind) {
  return kind == BlockKind::kLayerForward || kind == BlockKind::kLayerBackward ||
         kind == BlockKind::kLayerData || kind == BlockKind::kLayerWeight ||
         kind == BlockKind::kForwardPart || kind == BlockKind::kBackwardPart ||
         kind == BlockKind::kWeightPart;
}

// Of an operation in this module. Megatron captures a layer up to what the router needs: dispatch,
// experts and combine run eagerly, unless every expert has a fixed number of rows.
bool IsCaptured(const Shape& s, bool experts, std::string_view module) {
  const auto in = [&](std::string_view prefix) { return module.starts_with(prefix); };
  const auto part = in("layers.mamba")                                       ? kGraphMamba
                    : in("layers.input_norm") || in("layers.self_attention") ? kGraphAttention
                    : !experts                                               ? kGraphMlp
                    : in("layers.mlp.preprocess")                            ? kGraphPreprocess
                                                                             : kGraphRouter;
  const bool eager = experts && !s.experts.fixed_rows && RunsEagerly(module);
  return (s.framework.graph_scope & part) != 0 && !eager;
}

// What is not captured keeps its host work. Kernels of the captured part are counted one by one
// all the same: a block has one way of launch.
void CaptureInPart(const Shape& s, bool experts, bool launches, Names* names, graph::Block* block) {
  std::erase_if(block->ops, [&](const graph::Op& op) {
    return op.kind == graph::OpKind::kHost &&
           IsCaptured(s, experts, names->all()[op.module.index()]);
  });
  if (launches && s.framework.host.graph > 0) {
    block->ops.insert(block->ops.begin(),
                      graph::Op{.kind = graph::OpKind::kHost,
                                .index = static_cast<std::uint32_t>(block->host_ps.size()),
                                .name = names->Intern("graph"),
                                .module = block->name});
    block->host_ps.push_back(s.framework.host.graph * 1000);
  }
  block->Seal();
}

// As captured: no host work inside. What the host must read cannot be captured.
void Capture(const Shape& s, const BlockKey& key, Names* names, graph::Block* block) {
  const BlockKind kind = key.kind;
  const bool layers = s.framework.cuda_graphs == CudaGraphs::kLayers;
  if (s.framework.cuda_graphs == CudaGraphs::kNone || (layers && !IsLayer(kind))) return;
  if (layers) {
    const bool experts = (key.numbers[0] & kExpertLayer) != 0;
    // What belongs to no module goes with the rest.
    const auto lies = [&](bool inside) {
      return std::any_of(block->ops.begin(), block->ops.end(), [&](const graph::Op& op) {
        return op.module.valid() &&
               IsCaptured(s, experts, names->all()[op.module.index()]) == inside;
      });
    };
    if (!lies(true)) return;
    const bool launches = kind == BlockKind::kForwardPart    ? key.numbers[1] == 0
                          : kind == BlockKind::kBackwardPart ? key.numbers[1] == 2
                                                             : kind != BlockKind::kWeightPart;
    if ((experts && !s.experts.fixed_rows) || lies(false)) {
      return CaptureInPart(s, experts, launches, names, block);
    }
  }
  for (const graph::Op& op : block->ops) {
    if (op.kind == graph::OpKind::kHostSync) return;
  }
  // The training loop around the iteration is in no graph.
  const bool begins = kind == BlockKind::kZeroGradients;
  if (!begins) {
    std::erase_if(block->ops, [](const graph::Op& op) { return op.kind == graph::OpKind::kHost; });
    block->host_ps.clear();
  }
  // The iteration is one graph: its first block launches it.
  const bool launches = layers || begins;
  block->launch = launches ? graph::Launch::kGraph : graph::Launch::kInGraph;
  if (layers && s.framework.host.graph > 0) {
    block->ops.insert(block->ops.begin(), graph::Op{.kind = graph::OpKind::kHost,
                                                    .name = names->Intern("graph"),
                                                    .module = block->name});
    block->host_ps.push_back(s.framework.host.graph * 1000);
  }
  block->Seal();
}

}  // namespace

graph::Block BlockCache::Build(const BlockKey& key) {
  graph::Block block = BuildPlain(key);
  if (shapes_[key.shape].framework.deterministic) block = WithFills(std::move(block), &names_);
  Capture(shapes_[key.shape], key, &names_, &block);
  return block;
}

namespace {

// Of messages between a network's stages.
Shape Between(Shape s, std::int64_t previous, std::int64_t next) {
  s.previous_elements = previous;
  s.next_elements = next;
  return s;
}

// Of a later micro-batch, where gradients are tensors.
Shape Adding(Shape s, bool adds) {
  s.adds_gradients = s.framework.reducer == Reducer::kDdp && adds;
  return s;
}

}  // namespace

namespace {

// The shape of a layer of kind numbers[0], with the load and the shares of numbers[2] and what its
// routers send; a whole layer's at its place in a group.
Shape OfLayer(const Shape& shape, const BlockKey& key) {
  Shape s = OfKind(shape, key.numbers[0]);
  const bool whole = key.kind == BlockKind::kLayerForward || key.kind == BlockKind::kLayerBackward;
  const auto places = static_cast<std::uint8_t>(whole ? key.numbers[1] >> 1 : 0);
  if (places != 0) s = InGroup(s, places);
  if (key.numbers[2] == 0) return s;
  s.experts.load_permille = key.numbers[2] >> 32;
  s.experts.wire_permille = 1000;
  s.experts.shares = SharesId(static_cast<std::size_t>(key.numbers[2] & 0xFFFFFFFF) - 1);
  s.experts.sent_permille = key.numbers[3];
  return s;
}

Unit RootOf(const Shape& s, std::int64_t elements, std::int64_t ranks) {
  return {.elements = elements, .trained = s.frozen() ? 0 : elements, .ranks = ranks};
}

UnitMode ModeOf(std::int64_t flags) {
  return {.accumulates = (flags & call_flag::kAccumulates) != 0,
          .records = (flags & call_flag::kRecords) != 0,
          .defers = (flags & call_flag::kDefers) != 0,
          .adds = (flags & call_flag::kAdds) != 0,
          .gathered = (flags & call_flag::kGathered) != 0,
          .own_group = (flags & call_flag::kOwnGroup) != 0};
}

// Units of a sharded layer's call.
UnitCall UnitsOf(const Shape& s, const BlockKey& key) {
  const auto unit = [&](std::int64_t kind) {
    return UnitOf(OfKind(s, kind), key.numbers[1], key.numbers[3]);
  };
  const std::int64_t next = (key.numbers[0] >> 16 & 0x1FFFF) - 1;
  const std::int64_t after = (key.numbers[0] >> 33) - 1;
  return {.own = unit(key.numbers[0] & 0xFFFF),
          .next = next < 0 ? Unit{} : unit(next),
          .after = after < 0 ? Unit{} : unit(after),
          .mode = ModeOf(key.numbers[2])};
}

// Of a held unit's buffers: a layer's, or the root's.
Unit HeldUnitOf(const Shape& s, const BlockKey& key) {
  const auto& [kind, ranks, elements, expert_ranks] = key.numbers;
  return kind < 0 ? RootOf(s, elements, ranks) : UnitOf(OfKind(s, kind), ranks, expert_ranks);
}

}  // namespace

std::int64_t BlockCache::MovedBytes(const Shape& s, std::int64_t kind) {
  return KeptBytes(LayerForward(OfKind(s, kind), &names_), s.offload_modules, &names_);
}

graph::Block BlockCache::BuildLayer(const BlockKey& key) {
  const Shape& s = shapes_[key.shape];
  const auto& [a, b, c, d] = key.numbers;
  switch (key.kind) {
    case BlockKind::kLayerForward:
      if (s.offload_activations && !s.sharded) {
        return MoveOut(LayerForward(OfKind(s, a), &names_), s.offload_modules, (b & 1) != 0,
                       &names_);
      }
      return LayerForward(OfLayer(s, key), &names_);
    case BlockKind::kLayerBackward:
      if (s.offload_activations && !s.sharded) {
        return BringBack(LayerBackward(OfKind(s, a), &names_), s.offload_modules, MovedBytes(s, a),
                         (b & 1) != 0, &names_);
      }
      return LayerBackward(Adding(OfLayer(s, key), (b & 1) != 0), &names_);
    case BlockKind::kLayerData:
      return DataHalf(OfKind(s, a), LayerBackward(OfKind(s, a), &names_), &names_);
    case BlockKind::kLayerWeight:
      return WeightHalf(OfKind(s, a), LayerBackward(OfKind(s, a), &names_), &names_);
    case BlockKind::kForwardPart:
      return PartOf(LayerForward(OfLayer(s, key), &names_), static_cast<int>(b), &names_);
    case BlockKind::kBackwardPart:
      return BackwardPart(OfLayer(s, key), static_cast<int>(b), &names_);
    case BlockKind::kWeightPart:
      return WeightPart(OfLayer(s, key), static_cast<int>(b), &names_);
    case BlockKind::kReload:
      return Reload(MovedBytes(s, a), &names_);
    case BlockKind::kOffloadBegin:
      return BeginOut(LayerForward(OfKind(s, a), &names_), s.offload_modules, &names_);
    case BlockKind::kOffloadEnd:
      return EndOut(LayerForward(OfKind(s, a), &names_), s.offload_modules, &names_);
    case BlockKind::kReloadBegin:
      return BeginBack(LayerForward(OfKind(s, a), &names_), s.offload_modules, &names_);
    case BlockKind::kReloadEnd:
      return EndBack(&names_);
    case BlockKind::kOrthogonalise:
      return OrthogonaliseLayer(OfKind(s, a), {.own = b, .experts = c}, &names_);
    default:
      ORRERY_CHECK(false, "a kind of another group");
  }
}

graph::Block BlockCache::BuildStep(const BlockKey& key) {
  const Shape& s = shapes_[key.shape];
  const auto& [a, b, c, d] = key.numbers;
  const StepSizes sizes{.elements = a,
                        .shard = b,
                        .norm_group = c,
                        .distributed = (d & 1) != 0,
                        .fp16 = (d & 2) != 0,
                        .number = d >> 2};
  switch (key.kind) {
    case BlockKind::kReduceTensors:
      return ReduceTensors(s,
                           {.elements = a,
                            .tensors = b,
                            .ranks = c,
                            .blocking = (d & 1) != 0,
                            .last = (d & 2) != 0,
                            .adds = (d & 4) != 0},
                           &names_);
    case BlockKind::kCopyOutTensors:
      return CopyOutTensors(s, a, b, &names_);
    case BlockKind::kFrozenMemory:
      return FrozenMemory(s, a, b, c, &names_);
    case BlockKind::kFactorMeans:
      return FactorMeans(a < 0 ? s : OfKind(s, a), a < 0, &names_);
    case BlockKind::kStatic:
      return StaticMemory(s, sizes, &names_);
    case BlockKind::kZeroGradients:
      return ZeroGradients(s, a, &names_);
    case BlockKind::kHoldGradients:
      return HoldGradients(s, a, b != 0, c != 0, &names_);
    case BlockKind::kFreeGradients: {
      const auto part = static_cast<GradientsOf>(a);
      return FreeGradients(part == GradientsOf::kLayer ? OfKind(s, b) : s, part, &names_);
    }
    case BlockKind::kReduceBucket:
      return ReduceBucket(s, a,
                          {.distributed = (b & 1) != 0,
                           .blocking = (b & 2) != 0,
                           .last = (b & 4) != 0,
                           .experts = (b & 8) != 0},
                          &names_);
    case BlockKind::kGatherBucket:
      return GatherBucket(s, a, static_cast<GatherMode>(b), c != 0, d, &names_);
    case BlockKind::kBroadcastShards:
      return BroadcastShards(s, a, b, &names_);
    case BlockKind::kWaitGradients:
      return WaitEvent("gradients.wait", kGradientEvent, &names_);
    case BlockKind::kWaitParameters:
      return WaitParameters(s, a, &names_);
    case BlockKind::kReduceTp:
      return ReduceSequenceParallelGradients(s, a, &names_);
    case BlockKind::kReduceEmbedding:
      return ReduceEmbeddingGradient(s, &names_);
    case BlockKind::kReduceMirror:
      return ReduceMirror(s, a, &names_);
    case BlockKind::kOptimizer:
      return OptimizerStep(s, sizes, &names_);
    case BlockKind::kCastWeights:
      return CastAllWeights(s, a, b, c, &names_);
    case BlockKind::kLowPrecisionMemory:
      return LowPrecisionMemory(s, a, &names_);
    default:
      ORRERY_CHECK(false, "a kind of another group");
  }
}

graph::Block BlockCache::BuildSharded(const BlockKey& key) {
  const Shape& s = shapes_[key.shape];
  const auto& [a, b, c, d] = key.numbers;
  switch (key.kind) {
    case BlockKind::kShardedMemory:
      return ShardedMemory(s, {.trained = a, .frozen = c, .layer = b, .number = d}, &names_);
    case BlockKind::kShardedForward: {
      graph::Block block = ShardedLayerForward(OfKind(s, a & 0xFFFF), UnitsOf(s, key), &names_);
      if (!s.offload_activations) return block;
      return MoveOut(block, s.offload_modules, (c & call_flag::kLinked) != 0, &names_);
    }
    case BlockKind::kShardedBackward: {
      graph::Block block = ShardedLayerBackward(OfKind(s, a & 0xFFFF), UnitsOf(s, key), &names_);
      if (!s.offload_activations) return block;
      return BringBack(block, s.offload_modules, MovedBytes(s, a & 0xFFFF),
                       (c & call_flag::kLinked) != 0, &names_);
    }
    case BlockKind::kStartUnit:
      return StartUnit(
          s, UnitsOf(s, key),
          (c & call_flag::kForBackward) != 0 ? graph::Pass::kBackward : graph::Pass::kForward,
          &names_);
    case BlockKind::kGatherRoot:
      return GatherRoot(s, RootOf(s, a, b), c != 0, &names_);
    case BlockKind::kReduceRoot:
      return ReduceRoot(s, RootOf(s, a, b), ModeOf(c), &names_);
    case BlockKind::kHoldUnit:
      return HoldUnit(s, HeldUnitOf(s, key), &names_);
    case BlockKind::kShardUnit:
      return ShardUnit(s, HeldUnitOf(s, key), &names_);
    case BlockKind::kFreeShards:
      return FreeShards(s, HeldUnitOf(s, key), &names_);
    default:
      ORRERY_CHECK(false, "a kind of another group");
  }
}

graph::Block BlockCache::BuildPlain(const BlockKey& key) {
  const Shape& s = shapes_[key.shape];
  const auto& [a, b, c, d] = key.numbers;
  switch (key.kind) {
    case BlockKind::kHeadData:
      return DataHalf(s, HeadBackward(s, &names_), &names_);
    case BlockKind::kHeadWeight:
      return WeightHalf(s, HeadBackward(s, &names_), &names_);
    case BlockKind::kMtpForward:
      return MtpForward(s, &names_);
    case BlockKind::kMtpBackward:
      return MtpBackward(s, &names_);
    case BlockKind::kEmbeddingForward:
      return EmbeddingForward(s, &names_);
    case BlockKind::kEmbeddingBackward:
      return EmbeddingBackward(Adding(s, a != 0), &names_);
    case BlockKind::kHeadForward:
      return HeadForward(s, &names_);
    case BlockKind::kHeadBackward:
      return HeadBackward(Adding(s, a != 0), &names_);
    case BlockKind::kLoss:
      return ReduceLoss(s, a, b != 0, &names_);
    case BlockKind::kMessage:
      return StartMessage(s, a != 0, b != 0, c != 0, &names_);
    case BlockKind::kBatchedExchange:
      return BatchedExchange(Between(s, b, c), static_cast<Directions>(a), &names_);
    case BlockKind::kUnbatchedExchange:
      return UnbatchedExchange(Between(s, c, d), static_cast<Directions>(a), b != 0, &names_);
    case BlockKind::kStartExchange:
      return StartExchange(s, static_cast<Direction>(a), &names_);
    case BlockKind::kEnterChunk:
      return EnterChunk(s, &names_);
    case BlockKind::kWaitExchange:
      return WaitEvent("pipeline.wait", graph::kCallEvent, &names_);
    case BlockKind::kLayerForward:
    case BlockKind::kLayerBackward:
    case BlockKind::kLayerData:
    case BlockKind::kLayerWeight:
    case BlockKind::kForwardPart:
    case BlockKind::kBackwardPart:
    case BlockKind::kWeightPart:
    case BlockKind::kReload:
    case BlockKind::kOffloadBegin:
    case BlockKind::kOffloadEnd:
    case BlockKind::kReloadBegin:
    case BlockKind::kReloadEnd:
    case BlockKind::kOrthogonalise:
      return BuildLayer(key);
    case BlockKind::kShardedMemory:
    case BlockKind::kShardedForward:
    case BlockKind::kShardedBackward:
    case BlockKind::kStartUnit:
    case BlockKind::kGatherRoot:
    case BlockKind::kReduceRoot:
    case BlockKind::kHoldUnit:
    case BlockKind::kShardUnit:
    case BlockKind::kFreeShards:
      return BuildSharded(key);
    case BlockKind::kReduceTensors:
    case BlockKind::kCopyOutTensors:
    case BlockKind::kFrozenMemory:
    case BlockKind::kFactorMeans:
    case BlockKind::kStatic:
    case BlockKind::kZeroGradients:
    case BlockKind::kHoldGradients:
    case BlockKind::kFreeGradients:
    case BlockKind::kReduceBucket:
    case BlockKind::kGatherBucket:
    case BlockKind::kBroadcastShards:
    case BlockKind::kWaitGradients:
    case BlockKind::kWaitParameters:
    case BlockKind::kReduceTp:
    case BlockKind::kReduceEmbedding:
    case BlockKind::kReduceMirror:
    case BlockKind::kOptimizer:
    case BlockKind::kCastWeights:
    case BlockKind::kLowPrecisionMemory:
      return BuildStep(key);
  }
  ORRERY_CHECK(false, "every kind of block is built");
}

BlockId BlockSource::Get(BlockKind kind, std::int64_t a, std::int64_t b, std::int64_t c,
                         std::int64_t d) {
  const std::uint32_t index =
      cache_->Find({.shape = shape_, .kind = kind, .numbers = {a, b, c, d}});
  if (index >= copies_.size()) copies_.resize(cache_->size());
  if (!copies_[index].valid()) copies_[index] = Copy(index);
  return copies_[index];
}

NameId BlockSource::Translate(NameId name) {
  if (!name.valid()) return name;
  if (name.index() >= names_.size()) names_.resize(cache_->names().size());
  NameId& to = names_[name.index()];
  if (!to.valid()) to = graph_->Intern(cache_->names()[name.index()]);
  return to;
}

BlockId BlockSource::Copy(std::uint32_t index) {
  graph_->blocks.push_back(cache_->block(index));
  graph::Block& block = graph_->blocks.back();
  block.name = Translate(block.name);
  for (graph::Op& op : block.ops) {
    op.name = Translate(op.name);
    op.module = Translate(op.module);
  }
  for (graph::Buffer& buffer : block.buffers) buffer.name = Translate(buffer.name);
  return BlockId(graph_->blocks.size() - 1);
}

}  // namespace orrery::workload
