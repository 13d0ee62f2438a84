// Device memory of a program: its alloc/free events replayed in host program order, so that one
// replay per distinct program needs no clock.
//
// Model: every buffer is rounded up to 512 bytes as PyTorch's caching allocator does, lives from
// its alloc to its free, and counts at once. Peak with its parts; library memory (library_memory.h)
// added outside. What is reserved is the allocated peak rounded up to segments of 2 MiB: no
// fragmentation. The caching allocator (pools, segments, splitting, cross-stream frees) takes its
// place behind the same call.
//
// Lifetimes: kCall is freed within its call, an error otherwise. kMicrobatch is keyed by (layer,
// micro-batch, chunk, id) and freed by any call of the same key. kForever is keyed by (layer,
// chunk, id): the first alloc counts and later ones change nothing, as state that is created at
// first use.
//
// Cost: blocks are walked once per distinct state of what they touch; after that a call costs one
// look-up and an addition whatever its repeat, about 20 ns. The second iteration is left out when
// the first one returns to where it started.
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

namespace orrery::memory {

inline constexpr std::size_t kKinds = static_cast<std::size_t>(graph::MemoryKind::kCount);
inline constexpr std::int64_t kRounding = 512;     // PyTorch: kMinBlockSize
inline constexpr std::int64_t kSegment = 2 << 20;  // PyTorch: kSmallBuffer, kRoundLarge

constexpr std::int64_t RoundUp(std::int64_t bytes, std::int64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

struct Footprint {
  ProgramId program;
  std::int64_t peak_allocated = 0;  // bytes, as torch.cuda.max_memory_allocated
  std::int64_t peak_reserved = 0;   // as torch reserves: at least peak_allocated
  std::int64_t context_bytes = 0;   // CUDA context, cuBLAS and NCCL buffers, outside torch
  std::array<std::int64_t, kKinds> at_peak{};  // parts of peak_allocated
  std::string peak_op;                         // what ran at the peak
  bool oom = false;
  std::string oom_op;  // the first operation that no longer fits
};

// Replays the prologue and two iterations. A free without its alloc, or an alloc of what still
// lives, is an error that names block, buffer and call.
Result<Footprint> Replay(const graph::Graph& graph, ProgramId program,
                         const cluster::DeviceSpec& device);
// Every program of the graph, in order, with one pass over its bindings.
Result<std::vector<Footprint>> ReplayAll(const graph::Graph& graph,
                                         const cluster::DeviceSpec& device);

// A block as search sees it: bytes that one call adds, and the most it holds above where it
// started.
struct BlockNet {
  std::int64_t net = 0, peak = 0;
  bool lasting = false;  // allocates kForever buffers
};
// By BlockId. O(operations), once per graph; a block's entry depends on that block only.
std::vector<BlockNet> BlockNets(const graph::Graph& graph);
BlockNet NetOf(const graph::Block& block);
// The peak_allocated of Replay, at one addition per call. Checks nothing. A program whose iteration
// creates kForever buffers is replayed instead.
Result<std::int64_t> QuickPeak(const graph::Graph& graph, ProgramId program,
                               std::span<const BlockNet> nets);

}  // namespace orrery::memory
