// The graph: the only thing that workload sources write and that everything behind them reads.
//
// Three levels, so that 100,000 ranks cost megabytes:
//   Block    a straight piece (one layer's forward, an optimizer step): operations in host issue
//            order. Blocks name groups and peers by slot, never by rank.
//   Program  the order of block calls of one iteration, with micro-batch and chunk.
//   Binding  one rank: its program, its job, and what its slots mean.
//
// Execution semantics (what the engine must honour):
//   - The host issues a rank's operations in program order. A kernel runs on its stream after the
//     kernel before it there and after the host issued it.
//   - A communication runs on its communicator's own stream: after the communication before it
//     there, and after all that the compute stream had queued when it was issued (as PyTorch's
//     ProcessGroupNCCL does). `blocking` makes the compute stream wait for its end at once;
//     otherwise a later kWait on its `event` does.
//   - Messages of one block with equal nonzero `batch` are one NCCL group call: they are
//   issued
//     together and end together. They stand next to each other.
//   - Send and receive of a pair match in order per (sender, receiver, tag).
//   - Copies between device and host are communications that meet nobody. Their streams hold copies
//     only.
//   - kHostSync stops the host until the compute stream has drained.
//   - kHostPace stops the host until the compute stream has done what it had queued at the last
//     kHostPace before it (nothing, at the first).
//   - kAlloc/kFree act in host order on the device's allocator and take no time.
// Invariants are checked by Verify (graph/verify.h).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orrery/base/ids.h"
#include "orrery/base/status.h"
#include "orrery/graph/kernel.h"

namespace orrery::graph {

enum class Collective : std::uint8_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kSend,
  kRecv,
  kAllToAll,
  kCopyToHost,    // over the GPU's own PCIe link; meets nobody, has no group
  kCopyToDevice,  // the other way
  kGather,        // to the group's first member
  kScatter,       // from the group's first member
};
inline constexpr int kTags = 2;  // of sends and receives: forward and backward
std::string_view Name(Collective collective);
constexpr bool IsPointToPoint(Collective c) {
  return c == Collective::kSend || c == Collective::kRecv;
}
constexpr bool IsCopy(Collective c) {
  return c == Collective::kCopyToHost || c == Collective::kCopyToDevice;
}

// What a group is for: a slot of the binding. The breakdown reports exposed time per slot.
enum class GroupSlot : std::uint8_t {
  kTp,
  kDp,
  kPp,
  kCp,
  kEp,
  kEmbedding,
  kModel,
  kExpertTp,
  kExpertDp,
  kShard,    // replicas that hold a shard each of the same state
  kReplica,  // those that hold the same shard, where kShard does not span all replicas
  kOffload,  // copies between device and host: nobody else, no group
  kCount,
};
inline constexpr std::size_t kGroupSlots = static_cast<std::size_t>(GroupSlot::kCount);
std::string_view Name(GroupSlot slot);

// Whom a send or a receive meets: a slot of the binding.
// Slots come in opposite pairs, 2i and 2i + 1: along the pipeline, and round the ring of a
// context-parallel or a tensor-parallel group.
enum class PeerSlot : std::uint8_t {
  kPrevious,
  kNext,
  kCpPrevious,
  kCpNext,
  kTpPrevious,
  kTpNext,
  kCount
};
inline constexpr std::size_t kPeerSlots = static_cast<std::size_t>(PeerSlot::kCount);
std::string_view Name(PeerSlot slot);

// A number that is the same for every rank, or the binding's numeric slot `slot` when slot >= 0
// (times `value`).
struct Quantity {
  std::int64_t value = 0;
  std::int16_t slot = -1;
  friend bool operator==(Quantity, Quantity) = default;
};

inline constexpr std::int16_t kNoEvent = -1;
inline constexpr std::int16_t kCallEvent = -2;  // the event of the call (Call::event)

// Who sends how much to whom in an all-to-all whose members do not all send each other the same.
// `parts` are millionths of what each would send each if they did (Comm::bytes over `ranks`): by
// receiver, the same from every sender, or all of them, sender by sender. Members count in the
// order of their group; a member's own part is one of them.
struct Shares {
  static constexpr std::int64_t kEven = 1000000;
  static constexpr std::int64_t kMostPart = 1000000000000;  // a million times an even one
  std::uint32_t ranks = 0;
  std::vector<std::int64_t> parts;  // `ranks` of them, or their square
  std::uint64_t content_hash = 0;   // set by Seal

  // Computes content_hash; call once after the last change.
  void Seal();
  // `returned`: each member sends what it would have received. REQUIRES: from, to < ranks.
  std::int64_t part(std::size_t from, std::size_t to, bool returned) const {
    if (returned) std::swap(from, to);
    return parts[parts.size() == ranks ? to : from * ranks + to];
  }
  friend bool operator==(const Shares&, const Shares&) = default;
};

// One communication. `bytes` is nccl-tests' size column: the whole buffer (for all-gather and
// reduce-scatter the gathered side, group size times the shard; for all-to-all what one rank sends,
// its own part included, with `shares` on average if these are 1). Point-to-point: the message.
struct Comm {
  Collective collective = Collective::kAllReduce;
  GroupSlot group = GroupSlot::kTp;  // point-to-point: kPp, kCp or kTp, for the breakdown
  PeerSlot peer = PeerSlot::kNext;   // point-to-point only
  std::uint8_t stream = 1;           // the communicator's stream on this rank; never 0
  std::uint8_t tag = 0;              // point-to-point only
  std::uint8_t batch = 0;
  bool blocking = true;
  std::int16_t event = kNoEvent;  // recorded at its end; nonblocking only
  DType dtype = DType::kBf16;
  Quantity bytes;
  SharesId shares;        // all-to-all: none: all members send all others the same
  bool returned = false;  // with shares: they are sent back
  friend bool operator==(const Comm&, const Comm&) = default;
};

enum class MemoryKind : std::uint8_t {
  kParameter,
  kGradient,
  kOptimizer,
  kActivation,
  kTemporary,
  kCommunication,
  kCount,
};
std::string_view Name(MemoryKind kind);
// How long a buffer lives: until freed within its call; until the matching call of the same
// micro-batch, chunk and layer frees it; for ever. kLingering is kCall, but another stream still
// uses the buffer: the allocator gets its bytes back once the GPU has come to the free, not before.
enum class Lifetime : std::uint8_t { kCall, kMicrobatch, kForever, kLingering };
struct Buffer {
  std::uint32_t id = 0;  // unique per (program, lifetime, layer, micro-batch, chunk)
  MemoryKind kind = MemoryKind::kActivation;
  Lifetime lifetime = Lifetime::kCall;
  std::int64_t bytes = 0;
  NameId name;
  friend bool operator==(const Buffer&, const Buffer&) = default;
};

enum class OpKind : std::uint8_t {
  kKernel,
  kComm,
  kWait,
  kHost,
  kHostSync,
  kAlloc,
  kFree,
  kHostPace
};
// Its index selects an entry of one of its block's tables.
constexpr bool HasIndex(OpKind kind) {
  return kind != OpKind::kWait && kind != OpKind::kHostSync && kind != OpKind::kHostPace;
}

// One operation: `index` selects kernels, comms, buffers or host durations of its block.
struct Op {
  OpKind kind = OpKind::kKernel;
  std::int16_t event = kNoEvent;  // kWait
  std::uint32_t index = 0;
  NameId name;    // what a profiler would show
  NameId module;  // e.g. "layers.self_attention.qkv"
};

// How a block's kernels and communications come to the GPU: one by one; the block as one CUDA
// graph; within the graph that a block before it launched.
enum class Launch : std::uint8_t { kEach, kGraph, kInGraph };

std::string_view Name(Launch launch);

struct Block {
  NameId name;  // "layer.forward"
  Pass pass = Pass::kForward;
  Launch launch = Launch::kEach;
  std::vector<Op> ops;
  std::vector<Kernel> kernels;
  std::vector<Comm> comms;
  std::vector<Buffer> buffers;
  std::vector<std::int64_t> host_ps;  // kHost: time of extra host work
  std::uint64_t content_hash = 0;     // of all but names; set by Seal

  // Computes content_hash; call once after the last change.
  void Seal();
};

// One call of a block: `repeat` times in a row, for layers first_layer, first_layer + 1, …
// (backward blocks count down). microbatch is -1 outside the pipeline.
struct Call {
  BlockId block;
  std::uint16_t repeat = 1;
  std::int16_t event = kNoEvent;
  std::int16_t first_layer = 0;
  std::int16_t chunk = 0;
  std::int32_t microbatch = -1;
  friend bool operator==(const Call&, const Call&) = default;
};

struct Program {
  std::string name;            // "stage 3"
  std::int32_t stage = 0;      // pipeline stage, for the breakdown
  std::vector<Call> prologue;  // once, before the first iteration: static memory
  std::vector<Call> calls;     // one iteration
  std::int16_t events = 0;     // event numbers are 0 … events - 1
};

// Communicators in one flat array. Members are in rank order of the communicator.
class Groups {
 public:
  GroupId Add(GroupSlot slot, std::span<const RankId> members);
  std::size_t size() const { return slots_.size(); }
  GroupSlot slot(GroupId id) const { return slots_[id.index()]; }
  std::span<const RankId> members(GroupId id) const {
    return {members_.data() + offsets_[id.index()], members_.data() + offsets_[id.index() + 1]};
  }
  void Reserve(std::size_t groups, std::size_t members);

 private:
  std::vector<GroupSlot> slots_;
  std::vector<std::size_t> offsets_{0};
  std::vector<RankId> members_;
};

struct Binding {
  ProgramId program;
  JobId job;
  std::uint32_t logical_rank = 0;  // the rank's number inside its job; keys jitter
  std::array<GroupId, kGroupSlots> groups;
  std::array<RankId, kPeerSlots> peers;
  std::uint32_t first_number = 0;  // its numeric slots start here in Graph::numbers
};

struct JobInfo {
  std::string name;
  std::uint32_t ranks = 0;
  std::int64_t tokens_per_step = 0;
  double model_flops_per_step = 0;  // forward + backward, no recompute
};

class Graph {
 public:
  std::vector<Block> blocks;
  std::vector<Program> programs;
  std::vector<Binding> bindings;  // by RankId
  Groups groups;
  std::vector<std::int64_t> numbers;
  std::vector<JobInfo> jobs;
  std::vector<Shares> shares;  // by SharesId

  NameId Intern(std::string_view name);  // O(log n)
  const std::string& name(NameId id) const { return names_[id.index()]; }
  std::span<const std::string> names() const { return names_; }

 private:
  std::vector<std::string> names_;
  std::vector<std::uint32_t> sorted_;  // indices of names_ in lexical order
};

}  // namespace orrery::graph
