// PyTorch's caching allocator for one device, as torch 2.x runs it by default ("native" backend).
//
// Model, in the order in which a request meets it:
//   1. Rounding: to 512 bytes, or to a fraction of a power of two (roundup_power2_divisions).
//   2. Pool: requests up to 1 MiB are small, others large; a pool belongs to one stream.
//   3. Best fit among the pool's free blocks: the smallest that fits, then the lowest address. The
//      rest of a block is split off when it is at least 512 bytes (small pool, or expandable
//      segments) or more than 1 MiB (large pool, request below max_split_size).
//   4. A new segment from the driver: 2 MiB for a small request, 20 MiB for one below 10 MiB, else
//      the request rounded up to 2 MiB. Expandable segments instead map pages of 2 or 20 MiB at the
//      end of one address range a stream and pool.
//   5. When the device is full: cached blocks above max_split_size go back to the driver, largest
//      first; then every cached segment (or page) that is wholly free; else out of memory.
//   Before step 4, with a memory fraction and garbage_collection_threshold set, cached segments
//   older than the mean age go back.
// A freed block merges with its free neighbours of the same segment. A block used on another stream
// (RecordStream) comes back when that stream has reached the free.
//
// Assumes: a segment's address is above those of all earlier segments, as with a driver that hands
// out rising addresses; the driver gives out `capacity` bytes in all and never fragments.
// Source: the behaviour of c10/cuda/CUDACachingAllocator.cpp (PyTorch 2.5 to 2.15), checked against
// the library itself, byte for byte, on recorded traces (tools/allocator).
//
// Cost: O(log f) to find and O(f) bytes moved to insert, f free blocks of the pool; about 40 ns an
// event at the sizes of training. No allocation once its arrays have grown.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

namespace orrery::memory {

inline constexpr std::int64_t kMiB = 1 << 20;

inline constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

struct AllocatorSettings {
  bool expandable_segments = false;
  std::int64_t max_split_bytes = kUnlimited;               // max_split_size_mb
  std::int64_t max_non_split_rounding_bytes = 20LL << 20;  // max_non_split_rounding_mb
  std::int64_t large_segment_bytes = 20LL << 20;           // large_segment_size_mb
  double garbage_collection_threshold = 0;                 // of the allowed memory; 0: off
  double memory_fraction = 0;  // per_process_memory_fraction; 0: not set, the whole device
  // Divisions of a power of two to which sizes are rounded, from 1 MiB up by powers of two; the
  // last entry holds above, the first below. 0 or 1: multiples of 512 bytes.
  std::array<std::int32_t, 16> roundup_power2_divisions{};
  friend bool operator==(const AllocatorSettings&, const AllocatorSettings&) = default;
};

// Bytes unless said otherwise; `peak_` since the start.
struct AllocatorStats {
  std::int64_t allocated = 0, peak_allocated = 0;  // blocks handed out: memory_allocated
  std::int64_t reserved = 0, peak_reserved = 0;    // from the driver: memory_reserved
  std::int64_t rounded = 0, peak_rounded = 0;      // rounded requests: without unsplit rests
  std::int64_t waiting = 0;                        // freed, but another stream may still read it
  std::int64_t driver_allocs = 0, driver_frees = 0, retries = 0;  // counts
};

class CachingAllocator {
 public:
  using Handle = std::uint32_t;
  static constexpr Handle kNone = 0xFFFFFFFFu;
  static constexpr int kMaxStreams = 64;

  // `device_bytes` is the device's memory, `capacity` what of it the driver can still give.
  CachingAllocator(const AllocatorSettings& settings, std::int64_t device_bytes,
                   std::int64_t capacity);

  // kNone: out of memory, after the retries. REQUIRES: bytes > 0, 0 <= stream < kMaxStreams.
  Handle Alloc(std::int64_t bytes, int stream = 0);
  void Free(Handle handle);
  // The block is also read on `stream`: its free then waits for what that stream has queued.
  void RecordStream(Handle handle, int stream);
  // While a stream is busy its events are not reached. None is busy at first.
  void SetBusy(int stream, bool busy) { busy_[static_cast<std::size_t>(stream)] = busy; }
  // Gives all wholly free segments back to the driver.
  void EmptyCache();
  // So that a replay can go on after it ran out: from here on the device gives whatever is asked
  // for, and memory_fraction only says when garbage is collected.
  void LiftLimits() {
    capacity_ = kUnlimited;
    limited_ = false;
  }

  const AllocatorStats& stats() const { return stats_; }
  std::int64_t capacity() const { return capacity_; }
  std::int64_t BlockBytes(Handle handle) const { return blocks_[handle].size; }
  std::int64_t Round(std::int64_t bytes) const;  // step 1
  std::int64_t LargestFree() const;              // the size of the largest cached block
  // A number that differs, but for collisions, when the cached blocks differ. O(free blocks).
  std::uint64_t FreeListHash() const;
  // Appends the layout of every segment, in address order: sizes, and `tag` of each block in use.
  // Two allocators with equal layouts and settings behave alike from there on.
  template <typename Tag>
  void AppendLayout(Tag&& tag, std::vector<std::uint64_t>* out) const;

 private:
  enum class State : std::uint8_t { kFree, kUsed, kWaiting, kUnmapped, kGone };
  struct Block {
    std::int64_t address = 0, size = 0;
    std::int64_t rounded = 0;   // of the request that it serves
    std::int64_t born = 0;      // the pool's look-ups when it became free
    std::uint64_t streams = 0;  // recorded uses, a bit each
    Handle prev = kNone, next = kNone;
    std::int32_t events = 0;
    std::uint32_t range = kNone;  // expandable address range
    std::uint16_t pool = 0;
    State state = State::kFree;
  };
  struct Key {
    std::int64_t size = 0, address = 0;
    Handle block = kNone;
  };
  struct Pool {
    std::vector<Key> free;         // by (size, address)
    std::vector<Handle> unmapped;  // by address
  };
  struct Range {
    std::int64_t base = 0, bytes = 0;
  };
  static constexpr std::size_t kNowhere = std::numeric_limits<std::size_t>::max();

  bool IsSmall(std::uint16_t pool) const { return (pool & 1) != 0; }
  Handle NewBlock(const Block& block);
  void Drop(Handle h);
  void InsertFree(Handle h);
  void EraseFree(Handle h);
  std::size_t PlaceOf(Handle h) const;
  void ReplaceFree(std::size_t from, Handle h);
  void InsertUnmapped(Handle h);
  void EraseUnmapped(Handle h);
  std::size_t FindFree(std::uint16_t pool, std::int64_t size) const;
  bool ShouldSplit(std::uint16_t pool, std::int64_t rest, std::int64_t size) const;
  Handle TakeFront(Handle h, std::int64_t size);
  void Absorb(Handle into, Handle gone);
  bool CanMerge(Handle into, Handle other) const;
  void MergeUnmapped(Handle h);  // takes unmapped neighbours in
  void MakeFree(Handle h);
  void ProcessEvents(bool all);
  bool Reserve(std::int64_t bytes);
  Handle NewSegment(std::uint16_t pool, std::int64_t size);
  Handle Expand(std::uint16_t pool, std::int64_t size);
  Handle FindExpandable(std::uint16_t pool, std::int64_t size);
  bool Map(Handle h, std::int64_t size);
  void Unmap(Handle h);
  void ReleaseSegment(Handle h);
  void CollectGarbage();
  bool ReleaseOversize(std::uint16_t pool, std::int64_t size);

  AllocatorSettings settings_;
  std::int64_t device_bytes_, capacity_;
  std::int64_t allowed_;  // memory_fraction of the device
  bool limited_ = true;   // to allowed_
  AllocatorStats stats_;
  std::vector<Block> blocks_;
  std::vector<Handle> recycled_;
  std::vector<Pool> pools_;  // 2 * stream + small
  std::vector<Range> ranges_;
  std::vector<Handle> heads_;                 // first block of each segment, by address
  std::vector<std::vector<Handle>> waiting_;  // by stream: blocks that wait for its events
  std::array<bool, kMaxStreams> busy_{};
  std::array<std::int64_t, 2> lookups_{};  // of large, small pools
  std::int64_t next_address_ = 0;
  std::vector<Handle> scratch_;
};

template <typename Tag>
void CachingAllocator::AppendLayout(Tag&& tag, std::vector<std::uint64_t>* out) const {
  const bool aged = settings_.garbage_collection_threshold > 0;
  for (const Handle head : heads_) {
    for (Handle h = head; h != kNone; h = blocks_[h].next) {
      const Block& b = blocks_[h];
      const std::uint64_t first = h == head ? 1 : 0;
      out->push_back(static_cast<std::uint64_t>(b.size) << 24 | std::uint64_t{b.pool} << 8 |
                     static_cast<std::uint64_t>(b.state) << 1 | first);
      if (b.state == State::kUsed || b.state == State::kWaiting) {
        out->push_back(tag(h));
      } else if (aged && b.state == State::kFree) {
        out->push_back(static_cast<std::uint64_t>(lookups_[b.pool & 1] - b.born));
      }
    }
  }
}

}  // namespace orrery::memory
