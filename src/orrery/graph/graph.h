// The graph: the only thing that workload sources write and that everything behind them reads.
//
// Three levels, so that 100,000 ranks cost megabytes:
//   Block    a straight piece (one layer's forward, an optimizer step, a traced step): operations,
//            which name groups, peers and numbers by slot, never by rank.
//   Program  the order of block calls of one iteration, with micro-batch and chunk.
//   Binding  one rank: its program, its job, and what its slots mean.
//
// Execution semantics (what the engine must honour):
//   - Operations of one stream run one after the other, in the order that the stream has
//     (StreamOrder; in order of issue unless the graph says otherwise). An operation on kNoStream
//     is ordered by its dependencies alone.
//   - An operation begins after all that it depends on: Dep names an earlier or later operation of
//     the same call of its block, and whether its end or its start is what counts.
//   - An operation that holds a processor or a network interface (Hold) waits until that is free;
//     who became ready first is served first.
//   - Block::issue says who issues. kHost: one host thread, in program order; a kernel runs after
//     the host issued it. kFree: nobody; an operation may begin as soon as streams, dependencies
//     and what it holds allow.
//   - A communication runs on its communicator's own stream: after the communication before it
//     there and, issued by a host, after all that the stream `after` had queued when it was issued
//     (as PyTorch's ProcessGroupNCCL does with the current stream). `blocking` makes that stream
//     wait for its end at once; otherwise a later kWait on its `event` does.
//   - kRecord records an event when its stream has done all before it; kWait stops a stream, or the
//     host (kHostStream), until an event's last record so far, or the communication's end.
//   - Communications of one block with equal nonzero `batch` are one NCCL group call: they are
//     issued together and end together.
//   - Collectives match in their order per communicator. Send and receive of a pair match in order
//     per (sender, receiver, tag); a receive may take any source (PeerKind::kAny) or any tag
//     (kAnyTag): then it takes the message that came first.
//   - Copies between device and host are communications that meet nobody. Their streams hold copies
//     only.
//   - kHostSync stops the host until its stream has drained.
//   - kHostPace stops the host until the compute stream has done what it had queued at the last
//     kHostPace before it (nothing, at the first).
//   - kAlloc/kFree act in host order on the device's allocator and take no time.
//   - Where nobody issues, a kHost on a stream is work of that thread, and one on kNoStream a
//   delay.
// Invariants are checked by Verify (graph/verify/verify.h). `IsStraight` (graph/verify/straight.h)
// says whether a graph keeps to what the engine's fast machine assumes; any other runs on the
// general one.
//
// Limits, all refused by name: 2^31 of operations a block, calls, events, streams and slots; a call
// repeats its block at most 65,535 times, for layers up to 32,767; 65,535 processors and network
// interfaces a rank; of graphs that are read, 2^52 bytes a communication.
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
#include "orrery/graph/columns.h"
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
  kReduce,        // to the group's first member
  kBarrier,       // an all-reduce of nothing: its members meet
};
inline constexpr int kCollectives = 13;
inline constexpr std::int32_t kAnyTag = -1;                        // of a receive
inline constexpr std::int64_t kMostBytes = std::int64_t{1} << 52;  // so that sums stay in 64 bits
std::string_view Name(Collective collective);
constexpr bool IsPointToPoint(Collective c) {
  return c == Collective::kSend || c == Collective::kRecv;
}
constexpr bool IsCopy(Collective c) {
  return c == Collective::kCopyToHost || c == Collective::kCopyToDevice;
}

// A slot of the binding's table of groups. The first kGroupSlots are also roles: what a group is
// for, by which the breakdown reports exposed time. Imported graphs have groups behind them, as
// many as they need; such a group's role is `slot` of Groups.
enum class GroupSlot : std::uint32_t {
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
std::string_view Name(GroupSlot slot);  // of a role; "group" for slots behind them
std::string SlotName(GroupSlot slot);   // of a role; "#k" for the k-th slot behind them

// Neighbours that a binding names: along the pipeline, and round the ring of a context-parallel or
// a tensor-parallel group. They come in opposite pairs, 2i and 2i + 1.
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

// Whom a send or a receive meets.
//   kSlot    a neighbour of the binding (`value`: a PeerSlot)
//   kMember  member `value` of the communication's group
//   kOffset  the member `value` places on in the group, counted round it from the rank's own
//   kColumn  the rank whose number in its job stands in the numeric slot `value`
//   kAny     whoever sends (receives only)
enum class PeerKind : std::uint8_t { kSlot, kMember, kOffset, kColumn, kAny };
std::string_view Name(PeerKind kind);
struct Peer {
  PeerKind kind = PeerKind::kSlot;
  std::int32_t value = static_cast<std::int32_t>(PeerSlot::kNext);
  constexpr Peer() = default;
  constexpr Peer(PeerSlot slot) : value(static_cast<std::int32_t>(slot)) {}  // NOLINT: it is one
  constexpr Peer(PeerKind k, std::int32_t v) : kind(k), value(v) {}
  // REQUIRES: kind is kSlot.
  constexpr PeerSlot slot() const { return static_cast<PeerSlot>(value); }
  friend constexpr bool operator==(Peer, Peer) = default;
};

// A number that is the same for every rank, or the binding's numeric slot `slot` when slot >= 0
// (times `value`).
struct Quantity {
  std::int64_t value = 0;
  std::int32_t slot = -1;
  friend bool operator==(Quantity, Quantity) = default;
};

inline constexpr std::int32_t kNoEvent = -1;
inline constexpr std::int32_t kCallEvent = -2;  // the event of the call (Call::event)

inline constexpr std::uint32_t kComputeStream = 0;
inline constexpr std::uint32_t kNoStream = 0xFFFFFFFFu;
inline constexpr std::uint32_t kHostStream = 0xFFFFFFFEu;  // of a wait: the host waits

// In which order a stream serves what has been issued on it and is ready.
enum class StreamOrder : std::uint8_t {
  kInOrder,    // as issued: CUDA's streams, threads
  kReadiness,  // who was ready first: an exclusive unit
  kLast,       // who was ready last (ASTRA-sim's LIFO)
  kPriority,   // the highest Op::priority, then who was ready first
};
std::string_view Name(StreamOrder order);
struct Stream {
  NameId name;
  StreamOrder order = StreamOrder::kInOrder;
  friend bool operator==(const Stream&, const Stream&) = default;
};

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

// How a reduction combines what its members give.
enum class ReduceOp : std::uint8_t { kSum, kAverage, kMax, kMin, kProduct, kOther };
std::string_view Name(ReduceOp op);

// One communication. `bytes` is nccl-tests' size column: the whole buffer (for all-gather and
// reduce-scatter the gathered side, group size times the shard; for all-to-all what one rank sends,
// its own part included, with `shares` on average if these are 1). Point-to-point: the message.
struct Comm {
  Collective collective = Collective::kAllReduce;
  // Point-to-point: the communicator that its peer counts in, and the role for the breakdown.
  GroupSlot group = GroupSlot::kTp;
  Peer peer = PeerSlot::kNext;  // point-to-point only
  std::uint32_t stream = 1;     // the communicator's stream on this rank
  std::int32_t tag = 0;         // point-to-point only
  std::uint32_t batch = 0;
  bool blocking = true;
  std::int32_t event = kNoEvent;  // recorded at its end; nonblocking only
  DType dtype = DType::kBf16;
  Quantity bytes;
  SharesId shares;                       // all-to-all: none: all members send all others the same
  bool returned = false;                 // with shares: they are sent back
  ReduceOp reduce = ReduceOp::kSum;      // of reductions; costs the same
  std::uint32_t after = kComputeStream;  // host-issued: waits for what this stream had queued
  // What a trace measured, in ps: from the arrival of the last member to this one's end. A run may
  // take it in place of a price (engine::Options::measured_communication). Negative: nothing.
  Quantity measured{-1, -1};
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
  std::uint32_t stream = kComputeStream;  // whose pool of the allocator it comes from
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
  kHostPace,
  kTimed,   // an operation whose time is known: a traced kernel or copy, a GOAL calc
  kRecord,  // of an event, on a stream
};
inline constexpr int kOpKinds = 10;
// Its index selects an entry of one of its block's tables.
constexpr bool HasIndex(OpKind kind) {
  return kind != OpKind::kWait && kind != OpKind::kHostSync && kind != OpKind::kHostPace &&
         kind != OpKind::kRecord;
}

// One operation: `index` selects an entry of kernels, comms, host_ps, buffers or times of its
// block.
struct Op {
  OpKind kind = OpKind::kKernel;
  // kWait: what it waits for; kRecord: what it records; kFree: the event after which the storage
  // may be used again (kNoEvent: at once).
  std::int32_t event = kNoEvent;
  std::uint32_t index = 0;
  NameId name;                            // what a profiler would show
  NameId module;                          // e.g. "layers.self_attention.qkv"
  std::uint32_t stream = kComputeStream;  // of all but communications, which have their own
  std::int32_t priority = 0;              // for streams in order of priority
  std::uint16_t hold = 0;                 // one above its entry in Block::holds; 0: holds nothing
};

// What an operation begins after: the end of operation `op` of its block, or its start
// (`on_start`); where a host issues the block, one before it.
struct Dep {
  std::uint32_t op : 31 = 0;
  std::uint32_t on_start : 1 = 0;
  friend bool operator==(Dep, Dep) = default;
};

// What of its rank an operation has to itself while it runs: a processor, a network interface
// (GOAL's cpu and nic). Operations of known time and messages may; messages hold them as the
// network says (network/loggops.h), the others both together.
struct Hold {
  static constexpr std::uint16_t kNone = 0xFFFF;
  std::uint16_t cpu = kNone, nic = kNone;
  friend bool operator==(Hold, Hold) = default;
};

// Who issues a block's operations: the host, in their order, or nobody.
enum class Issue : std::uint8_t { kHost, kFree };
std::string_view Name(Issue issue);

// What a source assumed: `op` is kWholeBlock or an operation of the block.
struct Assumption {
  static constexpr std::uint32_t kWholeBlock = 0xFFFFFFFFu;
  std::uint32_t op = kWholeBlock;
  NameId text;
  friend bool operator==(const Assumption&, const Assumption&) = default;
};

// Operation `op`'s sizes scale with the tokens that arrive by a routing (Graph::routings).
struct Routed {
  std::uint32_t op = 0;
  std::uint32_t routing = 0;
  friend bool operator==(const Routed&, const Routed&) = default;
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
  std::vector<Quantity> times;        // kTimed: in ps
  Issue issue = Issue::kHost;
  std::vector<Hold> holds;
  // Of operation i: deps[dep_begin[i]] … deps[dep_begin[i + 1]]; dep_begin is empty where there are
  // none.
  std::vector<std::uint32_t> dep_begin;
  std::vector<Dep> deps;
  std::vector<Assumption> assumed;
  std::vector<Routed> routed;
  std::uint64_t content_hash = 0;  // of all but names; set by Seal

  // Computes content_hash; call once after the last change.
  void Seal();
  std::span<const Dep> deps_of(std::size_t op) const {
    if (dep_begin.empty()) return {};
    return {deps.data() + dep_begin[op], deps.data() + dep_begin[op + 1]};
  }
  // Of communications their communicator's.
  std::uint32_t stream_of(const Op& op) const {
    return op.kind == OpKind::kComm ? comms[op.index].stream : op.stream;
  }
};

// One call of a block: `repeat` times in a row, for layers first_layer, first_layer + 1, …
// (backward blocks count down). microbatch is -1 outside the pipeline.
struct Call {
  BlockId block;
  std::uint16_t repeat = 1;
  std::int32_t event = kNoEvent;
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
  std::int32_t events = 0;     // event numbers are 0 … events - 1
  Columns columns;             // its ranks' numbers: by numeric slot and Binding::row
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
  std::uint32_t more_groups = 0;  // slots from kGroupSlots on start here in Graph::more_groups
  std::uint32_t row = 0;          // of its program's columns
};

// How tokens go to experts in one layer of a mixture: what a trace has seen, so that a run may draw
// it anew.
struct Routing {
  NameId layer;
  GroupSlot group = GroupSlot::kEp;
  std::int64_t tokens = 0;  // of one rank and micro-batch
  std::int32_t experts = 0, top_k = 0;
  std::int64_t capacity = 0;  // tokens an expert takes at most; 0: all
  std::int64_t token_bytes = 0;
  friend bool operator==(const Routing&, const Routing&) = default;
};

struct JobInfo {
  std::string name;
  std::uint32_t ranks = 0;
  std::int64_t tokens_per_step = 0;
  double model_flops_per_step = 0;  // forward + backward, no recompute
  bool once = false;                // its programs run once: a trace, no step that repeats
  // Standard deviation of equal ranks' kernel times, as a share; 0: nobody waits for slower ones.
  double noise = 0;
};

class Graph {
 public:
  std::vector<Block> blocks;
  std::vector<Program> programs;
  std::vector<Binding> bindings;  // by RankId
  Groups groups;
  std::vector<GroupId> more_groups;
  std::vector<Stream> streams;  // those that have a name or are not in order; by number
  std::vector<JobInfo> jobs;
  std::vector<Shares> shares;  // by SharesId
  std::vector<Routing> routings;

  // The group in a slot; invalid where the slot is empty. REQUIRES: of a slot from kGroupSlots on,
  // that the rank has it.
  GroupId group(const Binding& b, GroupSlot slot) const {
    const auto s = static_cast<std::size_t>(slot);
    return s < kGroupSlots ? b.groups[s] : more_groups[b.more_groups + (s - kGroupSlots)];
  }
  // A number as the rank has it. REQUIRES: its slot exists.
  std::int64_t number(const Binding& b, Quantity q) const {
    if (q.slot < 0) return q.value;
    return q.value *
           programs[b.program.index()].columns.at(static_cast<std::size_t>(q.slot), b.row);
  }
  StreamOrder order_of(std::uint32_t stream) const {
    return stream < streams.size() ? streams[stream].order : StreamOrder::kInOrder;
  }

  // The number of a name, a new one where it has none. O(its length).
  NameId Intern(std::string_view name);
  const std::string& name(NameId id) const { return names_[id.index()]; }
  std::span<const std::string> names() const { return names_; }

 private:
  // Where the name stands in name_slots_, or would: a free place. REQUIRES: some place is free.
  std::size_t PlaceOf(std::string_view name) const;

  std::vector<std::string> names_;
  // Indices of names_ by hash, open-addressed: a power of two of places, at most half of them
  // taken.
  std::vector<std::uint32_t> name_slots_;
};

}  // namespace orrery::graph
