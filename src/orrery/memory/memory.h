// Device memory of a program: its alloc/free events replayed in host program order, so that one replay
// per distinct program needs no clock.
//
// The spine's model: exact bytes per buffer, peak with parts at the peak, library memory added. The
// caching allocator (rounding, pools, segments) takes its place behind the same call.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "orrery/base/ids.h"
#include "orrery/base/status.h"
#include "orrery/cluster/cluster.h"
#include "orrery/graph/graph.h"

namespace orrery::memory {

inline constexpr std::size_t kKinds = static_cast<std::size_t>(graph::MemoryKind::kCount);

struct Footprint {
  ProgramId program;
  std::int64_t peak_allocated = 0;                   // bytes, as torch.cuda.max_memory_allocated
  std::int64_t peak_reserved = 0;                    // as torch reserves: at least peak_allocated
  std::int64_t context_bytes = 0;                    // CUDA context, cuBLAS and NCCL buffers, outside torch
  std::array<std::int64_t, kKinds> at_peak{};        // parts of peak_allocated
  std::string peak_op;                               // what ran at the peak
  bool oom = false;
  std::string oom_op;                                // the first operation that no longer fits
};

// Replays the prologue and two iterations. A free without its alloc is an error that names block,
// buffer and call. O(operations).
Result<Footprint> Replay(const graph::Graph& graph, ProgramId program, const cluster::DeviceSpec& device);

}  // namespace orrery::memory
