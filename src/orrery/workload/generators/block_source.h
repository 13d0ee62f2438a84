// Blocks kept between plans, and their copies in the graph at hand.
//
// A block is found by (shape, kind, four numbers): one hash look-up when warm. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "orrery/graph/graph.h"
#include "orrery/workload/generators/block_writer.h"
#include "orrery/workload/generators/shape.h"

namespace orrery::workload {

enum class BlockKind : std::uint8_t {
  kLayerForward,   // kind: bits of LayerKind; PackCall, linked with offload: waits; PackLoad
  kLayerBackward,  // kind; PackCall, linked with offload: prefetches, under DDP: adds; PackLoad
  kEnterChunk,
  kEmbeddingForward,
  kEmbeddingBackward,  // under DDP: 1 adds to gradients
  kHeadForward,
  kHeadBackward,       // under DDP: 1 adds to gradients
  kBatchedExchange,    // directions, elements from and to the previous and the next stage
  kUnbatchedExchange,  // directions, odd stage, elements likewise
  kStartExchange,      // direction
  kWaitExchange,
  kStatic,           // elements, shard, norm group, PackStepFlags
  kZeroGradients,    // elements
  kHoldGradients,    // elements, experts, forever
  kFreeGradients,    // GradientsOf; of a layer: its kind
  kReduceBucket,     // elements, distributed + 2·blocking + 4·last + 8·experts
  kGatherBucket,     // elements, GatherMode, experts, elements to cast before (FSDP2)
  kBroadcastShards,  // elements, owners
  kWaitGradients,
  kWaitParameters,  // elements to copy out
  kReduceTp,        // elements
  kReduceEmbedding,
  kReduceMirror,        // elements
  kOptimizer,           // as kStatic
  kLoss,                // dp, sync
  kCastWeights,         // elements, norm group, layers of the model
  kLowPrecisionMemory,  // elements
  kShardedMemory,       // shard, of a layer, frozen, number of its optimizer
  kShardedForward,      // PackKinds, ranks, call_flag, ranks of experts
  kShardedBackward,     // the same
  kStartUnit,           // the same
  kGatherRoot,          // elements, ranks, whether gathered before
  kReduceRoot,          // elements, ranks, call_flag
  kHoldUnit,            // kind (-1: root), ranks, elements of the root, ranks of experts
  kShardUnit,           // the same
  kFreeShards,          // the same
  kReload,              // kind
  kOffloadBegin,        // kind: of the first layers alone
  kOffloadEnd,          // kind
  kReloadBegin,         // kind
  kReloadEnd,
  kFrozenMemory,   // elements; quantised: bytes of codes, of scales
  kOrthogonalise,  // layer kind; of its matrices, of its experts': how many; -1: all
  kFactorMeans,    // layer kind; -1: the root unit's
  kLayerData,      // kind
  kLayerWeight,
  kHeadData,
  kHeadWeight,
  kMessage,         // send, to the next stage, gradient
  kReduceTensors,   // elements, tensors, ranks, blocking + 2·last + 4·adds
  kCopyOutTensors,  // elements, tensors
  kForwardPart,     // kind, part: of a layer with experts; PackLoad
  kBackwardPart,    // the same
  kWeightPart,      // the same: what a backward part leaves out with delayed weight gradients
  kMtpForward,
  kMtpBackward,
};

// Of a layer whose experts are loaded by a drawn routing; 0: as its shape says.
constexpr std::int64_t PackLoad(std::int64_t received, SharesId shares) {
  return received << 32 | (shares.valid() ? std::int64_t{shares.value} + 1 : 0);
}

// Whether a layer's call is linked to another one, and its place in a group (bits of GroupPlace).
constexpr std::int64_t PackCall(bool linked, std::uint8_t places) {
  return (linked ? 1 : 0) + (std::int64_t{places} << 1);
}

// Bits that tell a sharded unit's call what it does.
namespace call_flag {
inline constexpr std::int64_t kAccumulates = 2;  // adds to shards of earlier micro-batches
inline constexpr std::int64_t kRecords = 4;      // records its reductions, for the optimizer
inline constexpr std::int64_t kForBackward = 8;  // a gather that begins a backward pass
inline constexpr std::int64_t kLinked = 16;      // offload: see PackCall
inline constexpr std::int64_t kDefers = 32;      // leaves gradients unsharded (defer_grad_reduce)
inline constexpr std::int64_t kAdds = 64;        // adds to unsharded ones of earlier micro-batches
inline constexpr std::int64_t kGathered = 128;   // finds parameters of an earlier micro-batch
inline constexpr std::int64_t kOwnGroup = 256;   // reduces within the shard group alone
}  // namespace call_flag

// Kinds of the layer at hand and of those behind it in its pass, where these count; -1: none.
constexpr std::int64_t PackKinds(std::int64_t own, std::int64_t next, std::int64_t after) {
  return own + ((next + 1) << 16) + ((after + 1) << 33);
}

struct BlockKey {
  std::uint32_t shape = 0;
  BlockKind kind = BlockKind::kLayerForward;
  std::array<std::int64_t, 4> numbers{};
  friend bool operator==(const BlockKey&, const BlockKey&) = default;
};

class BlockCache {
 public:
  std::uint32_t ShapeId(const Shape& shape);
  std::uint32_t Find(const BlockKey& key);  // index of blocks(), built at first use
  const graph::Block& block(std::uint32_t index) const { return blocks_[index]; }
  std::size_t size() const { return blocks_.size(); }
  const std::vector<std::string>& names() const { return names_.all(); }
  // Forgets everything but names when it has grown past `blocks`.
  void Trim(std::size_t blocks);

 private:
  struct KeyHash {
    std::size_t operator()(const BlockKey& key) const;
  };
  graph::Block Build(const BlockKey& key);
  graph::Block BuildPlain(const BlockKey& key);
  // BuildPlain's kinds by what they are of: one layer; gradients, parameters and the optimizer's
  // step; sharded units.
  graph::Block BuildLayer(const BlockKey& key);
  graph::Block BuildStep(const BlockKey& key);
  graph::Block BuildSharded(const BlockKey& key);
  // Of a layer's tensors, what goes to host memory.
  std::int64_t MovedBytes(const Shape& s, std::int64_t kind);

  Names names_;
  std::vector<Shape> shapes_;
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> shape_ids_;
  std::unordered_map<BlockKey, std::uint32_t, KeyHash> ids_;
  std::vector<graph::Block> blocks_;
};

// Copies each block into one graph when it is first asked for.
class BlockSource {
 public:
  BlockSource(BlockCache* cache, const Shape& shape, graph::Graph* graph)
      : cache_(cache), graph_(graph), shape_(cache->ShapeId(shape)) {}

  BlockId Get(BlockKind kind, std::int64_t a = 0, std::int64_t b = 0, std::int64_t c = 0,
              std::int64_t d = 0);

 private:
  BlockId Copy(std::uint32_t index);
  NameId Translate(NameId name);

  BlockCache* cache_;
  graph::Graph* graph_;
  std::uint32_t shape_;
  std::vector<BlockId> copies_;
  std::vector<NameId> names_;
};

}  // namespace orrery::workload
