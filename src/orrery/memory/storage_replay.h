// Allocations that a trace has recorded, through the caching allocator: what torch would report.
//
// Events are in the order of the host program, each on the stream that was current. A storage that
// is resized is freed and asked for anew, larger ones before they are freed, as PyTorch does. A
// storage that another stream uses comes back when it is freed: streams are taken not to be behind
// the host by then. Libraries' workspaces (library_memory.h) come first and stay.
//
// After the first request that does not fit the replay goes on with a larger device, so that the
// peaks say what the program needs.
//
// Cost: about 150 ns an event.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/memory/allocator_replay.h"
#include "orrery/memory/caching_allocator.h"

namespace orrery::memory {

enum class StorageRole : std::uint8_t {
  kParameter,
  kGradient,
  kOptimizer,
  kBuffer,
  kOther,  // activations, temporaries, gradients that a step makes
  kCount
};
inline constexpr std::size_t kStorageRoles = static_cast<std::size_t>(StorageRole::kCount);
std::string_view Name(StorageRole role);

struct StorageEvent {
  enum class Kind : std::uint8_t { kAlloc, kFree, kResize, kUse };
  Kind kind = Kind::kAlloc;
  StorageRole role = StorageRole::kOther;  // kAlloc
  std::uint16_t stream = 0;                // the current one; kUse: the one that uses it
  std::uint32_t place = 0;                 // where in its source: for messages
  std::int64_t storage = 0;                // its number
  std::int64_t bytes = 0;                  // kAlloc, kResize
};

struct StorageReplay {
  // Bytes, as torch.cuda reports: of the measured part, and reserved of all.
  std::int64_t peak_allocated = 0, peak_reserved = 0;
  std::int64_t peak_requested = 0;  // sum of the storages' own sizes, workspaces left out
  std::array<std::int64_t, kStorageRoles> at_peak{};  // of storages, when allocated was at its peak
  std::int64_t workspaces = 0;
  std::uint32_t peak_place = 0;
  std::int64_t retries = 0;
  std::optional<OutOfMemory> oom;
  std::uint32_t oom_place = 0;
};

// Events from `measured` on are what peaks are taken of. An alloc of what lives, or a free of what
// does not, is an error that names the event. Uses device, capacity, settings and workspaces of
// `options`.
Result<StorageReplay> ReplayStorages(std::span<const StorageEvent> events, std::size_t measured,
                                     const ReplayOptions& options);

}  // namespace orrery::memory
