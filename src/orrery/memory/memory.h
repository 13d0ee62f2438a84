// Device memory of a program: its alloc/free events replayed in host program order, so that one
// replay per distinct program needs no clock.
//
// Model: the events go through PyTorch's caching allocator (caching_allocator.h) on one stream;
// library memory (library_memory.h) is added outside. What torch allocated counts whole blocks,
// what it reserved whole segments; nvidia-smi shows reserved memory, context and libraries
// together.
//
// Lifetimes: kCall is freed within its call, an error otherwise. kMicrobatch is keyed by (layer,
// micro-batch, chunk, id) and freed by any call of the same key. kForever is keyed by (layer,
// chunk, id): the first alloc counts and later ones change nothing, as state that is created at
// first use.
//
// Two readings. The sum of rounded requests (block_walk.h, QuickPeak) walks a block once per
// distinct state of what it touches, after which a call costs one look-up and an addition whatever
// its repeat, about 20 ns; the second iteration is left out when the first one returns to where it
// started. The allocator (allocator_replay.h) takes every event, about 100 ns each, until its state
// repeats. They agree on the peak of rounded requests; torch's own figure adds the ends of blocks
// that it does not split (below 1 MiB each).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "orrery/base/ids.h"
#include "orrery/base/status.h"
#include "orrery/cluster/cluster.h"
#include "orrery/graph/graph.h"
#include "orrery/memory/caching_allocator.h"

namespace orrery::memory {

inline constexpr std::size_t kKinds = static_cast<std::size_t>(graph::MemoryKind::kCount);
inline constexpr std::int64_t kRounding = 512;  // PyTorch: kMinBlockSize

constexpr std::int64_t RoundUp(std::int64_t bytes, std::int64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// An operation of a call: for messages, until a name is asked for.
struct CallPlace {
  const graph::Call* call = nullptr;
  std::int32_t layer = 0;
  std::uint32_t op = 0;  // index into Block::ops
};

// The first request that does not fit, after the allocator's retries. Bytes.
struct OutOfMemory {
  std::int64_t requested = 0;
  std::int64_t allocated = 0;  // by torch, at that moment
  std::int64_t reserved = 0;   // of which torch could give nothing more back
  std::int64_t device_free = 0;
  std::int64_t largest_cached = 0;  // the largest free block that torch holds
};

// A call of the last iteration.
struct MemorySample {
  const graph::Call* call = nullptr;
  std::int64_t peak_allocated = 0, allocated = 0, reserved = 0;  // in the call; after it
};

struct ModuleShare {
  std::string module;
  std::int64_t bytes = 0;
};

struct TimelinePoint {
  std::string call;  // "layer.forward, layer 0, micro-batch 3"
  std::int64_t peak_allocated = 0, allocated = 0, reserved = 0;
};

struct Footprint {
  ProgramId program;
  std::int64_t peak_allocated = 0;  // bytes, as torch.cuda.max_memory_allocated
  std::int64_t peak_reserved = 0;   // as torch reserves: at least peak_allocated
  std::int64_t context_bytes = 0;   // CUDA context, library and NCCL buffers, outside torch
  std::int64_t cuda_bytes = 0;      // of which the context with its kernels
  std::int64_t nccl_bytes = 0;      // of which NCCL's buffers
  std::array<std::int64_t, kKinds> at_peak{};  // parts of peak_allocated
  std::vector<ModuleShare> modules;            // the same by module, largest first
  std::string peak_op;                         // what ran at the peak
  std::int64_t peak_requested = 0;             // rounded requests, at their own peak
  std::int64_t cached_at_peak = 0;  // reserved and not allocated, when reserved reached its peak
  std::int64_t retries = 0;         // times that the allocator emptied its cache to go on
  int iterations = 0;               // replayed
  bool settled = true;              // the last one left the allocator as the one before did
  bool bounded = false;  // a long run of micro-batches was cut short (allocator_replay.h)
  bool oom = false;
  std::string oom_op;  // the first operation that no longer fits
  OutOfMemory oom_state;
  std::vector<TimelinePoint> timeline;  // when asked for

  // What nvidia-smi would show.
  std::int64_t total() const { return peak_reserved + context_bytes; }
};

// What a framework's libraries keep on the device (library_memory.h).
struct Libraries {
  bool cublas_in_torch = true;  // PyTorch 2.0 and later give cuBLAS its workspaces
  bool transformer_engine = false;
  bool userbuffers = false;  // Transformer Engine overlaps tensor-parallel communication
  // Of its buffers, or of async tensor parallelism's workspace, outside PyTorch's allocator.
  std::int64_t userbuffer_bytes = 0;
  bool deterministic = false;  // CUBLAS_WORKSPACE_CONFIG=:4096:8
  friend bool operator==(const Libraries&, const Libraries&) = default;
};

struct Options {
  AllocatorSettings allocator;
  std::vector<Libraries> libraries;  // by JobId; those beyond the list have the defaults
  bool timeline = false;
};

// Replays the prologue and iterations until they repeat. A free without its alloc, or an alloc of
// what still lives, is an error that names block, buffer and call.
Result<Footprint> Replay(const graph::Graph& graph, ProgramId program,
                         const cluster::DeviceSpec& device, const Options& options = {});
// Every program of the graph, in order, with one pass over its bindings.
Result<std::vector<Footprint>> ReplayAll(const graph::Graph& graph,
                                         const cluster::DeviceSpec& device,
                                         const Options& options = {});

// A block as search sees it: bytes that one call adds, and the most it holds above where it
// started.
struct BlockNet {
  std::int64_t net = 0, peak = 0;
  bool lasting = false;  // allocates kForever buffers
};
// By BlockId. O(operations), once per graph; a block's entry depends on that block only.
std::vector<BlockNet> BlockNets(const graph::Graph& graph);
BlockNet NetOf(const graph::Block& block);
// The peak_requested of Replay, at one addition per call. Checks nothing. A program whose iteration
// creates kForever buffers is replayed instead.
Result<std::int64_t> QuickPeak(const graph::Graph& graph, ProgramId program,
                               std::span<const BlockNet> nets);

}  // namespace orrery::memory
