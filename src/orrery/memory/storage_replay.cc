#include "orrery/memory/storage_replay.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "orrery/base/check.h"

namespace orrery::memory {
namespace {

using Handle = CachingAllocator::Handle;

class StorageReplayer {
 public:
  explicit StorageReplayer(const ReplayOptions& options)
      : allocator_(options.settings, options.device_bytes, options.capacity) {
    for (const std::int64_t bytes : options.workspaces) {
      Take(bytes, 0);
      out_.workspaces += bytes;
    }
  }

  Result<StorageReplay> Run(std::span<const StorageEvent> events, std::size_t measured) {
    for (std::size_t i = 0; i < events.size(); ++i) {
      place_ = events[i].place;
      if (i == measured) Measure();
      Status status = Apply(events[i]);
      if (!status.ok()) return status;
      if (i >= measured) Measure();
    }
    if (measured >= events.size()) Measure();
    out_.peak_reserved = allocator_.stats().peak_reserved;
    out_.retries = allocator_.stats().retries;
    return out_;
  }

 private:
  struct Storage {
    Handle handle = CachingAllocator::kNone;  // none: of no bytes
    std::int64_t bytes = 0;
    StorageRole role = StorageRole::kOther;
  };

  Status Apply(const StorageEvent& e) {
    if (e.stream >= CachingAllocator::kMaxStreams) {
      return InvalidInput("line {}: stream {}; the allocator's model has {}", e.place, e.stream,
                          CachingAllocator::kMaxStreams);
    }
    const auto found = live_.find(e.storage);
    if (e.kind == StorageEvent::Kind::kAlloc) {
      if (found != live_.end()) {
        return InvalidInput("line {}: storage {} is allocated, and lives", e.place, e.storage);
      }
      live_.emplace(e.storage, Storage{Take(e.bytes, e.stream), e.bytes, e.role});
      Count(e.role, e.bytes);
      return {};
    }
    if (found == live_.end()) {
      return InvalidInput("line {}: storage {} does not live", e.place, e.storage);
    }
    Storage& s = found->second;
    if (e.kind == StorageEvent::Kind::kUse) {
      if (s.handle != CachingAllocator::kNone) allocator_.RecordStream(s.handle, e.stream);
      return {};
    }
    const Handle before = s.handle;
    Count(s.role, -s.bytes);
    if (e.kind == StorageEvent::Kind::kResize) {
      s.handle = Take(e.bytes, e.stream);
      s.bytes = e.bytes;
      Count(s.role, s.bytes);
    } else {
      live_.erase(found);
    }
    if (before != CachingAllocator::kNone) allocator_.Free(before);
    return {};
  }

  // kNone for no bytes.
  Handle Take(std::int64_t bytes, int stream) {
    if (bytes == 0) return CachingAllocator::kNone;
    Handle h = allocator_.Alloc(bytes, stream);
    if (h != CachingAllocator::kNone) return h;
    if (!out_.oom) {
      const AllocatorStats& s = allocator_.stats();
      out_.oom = OutOfMemory{.requested = bytes,
                             .allocated = s.allocated,
                             .reserved = s.reserved,
                             .device_free = allocator_.capacity() - s.reserved,
                             .largest_cached = allocator_.LargestFree()};
      out_.oom_place = place_;
    }
    allocator_.LiftLimits();
    h = allocator_.Alloc(bytes, stream);
    ORRERY_CHECK(h != CachingAllocator::kNone, "an unlimited device is full");
    return h;
  }
  void Count(StorageRole role, std::int64_t bytes) {
    by_role_[static_cast<std::size_t>(role)] += bytes;
    requested_ += bytes;
  }
  void Measure() {
    out_.peak_requested = std::max(out_.peak_requested, requested_);
    if (allocator_.stats().allocated <= out_.peak_allocated) return;
    out_.peak_allocated = allocator_.stats().allocated;
    out_.at_peak = by_role_;
    out_.peak_place = place_;
  }

  CachingAllocator allocator_;
  StorageReplay out_;
  std::unordered_map<std::int64_t, Storage> live_;
  std::array<std::int64_t, kStorageRoles> by_role_{};
  std::int64_t requested_ = 0;
  std::uint32_t place_ = 0;
};

}  // namespace

std::string_view Name(StorageRole role) {
  switch (role) {
    case StorageRole::kParameter:
      return "parameters";
    case StorageRole::kGradient:
      return "gradients";
    case StorageRole::kOptimizer:
      return "optimizer";
    case StorageRole::kBuffer:
      return "buffers";
    case StorageRole::kOther:
    case StorageRole::kCount:
      break;
  }
  return "other";
}

Result<StorageReplay> ReplayStorages(std::span<const StorageEvent> events, std::size_t measured,
                                     const ReplayOptions& options) {
  return StorageReplayer(options).Run(events, measured);
}

}  // namespace orrery::memory
