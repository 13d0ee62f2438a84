// A program's allocations through the caching allocator: what torch reports and nvidia-smi shows.
//
// Host order, one stream, as the program issues them: the prologue, then iterations until one
// leaves the allocator as the one before did (at most kMaxIterations). Within an iteration runs of
// calls that repeat with the micro-batch moved on are found first; once the allocator's whole
// layout comes back within such a run, with the micro-batches moved on, the rest of the run is
// skipped: it would only repeat. The answer is that of the full replay.
//
// After the first request that does not fit the replay goes on with a larger device, so that the
// peaks say what the program needs.
//
// Assumes: a program that WalkBlock accepts; temporaries, saved tensors and states on the compute
// stream. Cost: about 100 ns an event that is not skipped, and a layout (blocks in use) when a run
// seems to repeat.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "orrery/base/ids.h"
#include "orrery/graph/graph.h"
#include "orrery/memory/caching_allocator.h"
#include "orrery/memory/memory.h"

namespace orrery::memory {

inline constexpr int kMaxIterations = 6;  // then the result is not `settled`
// A run of periods whose layouts have not come back after so many, the last half of them without a
// new peak or segment, is left there if its live buffers do come back: the result is `bounded`.
inline constexpr std::size_t kMaxPeriods = 256;

struct ReplayOptions {
  AllocatorSettings settings;
  std::int64_t device_bytes = 0;
  std::int64_t capacity = kUnlimited;    // what the allocator may reserve
  std::vector<std::int64_t> workspaces;  // of libraries, held from the first iteration on
  bool timeline = false;                 // also skips nothing
  bool skip = true;                      // leave out what only repeats
};

struct ReplayResult {
  AllocatorStats stats;
  std::array<std::int64_t, kKinds> at_peak{};  // sums to stats.peak_allocated
  // Bytes at that peak by NameId, then of no module, then of library workspaces.
  std::vector<std::int64_t> modules;
  CallPlace peak;
  std::int64_t cached_at_peak = 0;  // reserved less allocated, when reserved was first at its peak
  int iterations = 0;
  bool settled = false;
  bool bounded = false;
  std::int64_t events = 0, skipped_calls = 0;
  std::optional<OutOfMemory> oom;
  CallPlace oom_place;
  std::vector<MemorySample> timeline;  // of the last iteration, one a call
};

ReplayResult ReplayAllocator(const graph::Graph& graph, const graph::Program& program,
                             const ReplayOptions& options);

}  // namespace orrery::memory
