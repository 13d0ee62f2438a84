#include "orrery/memory/caching_allocator.h"

#include <algorithm>
#include <bit>
#include <cstddef>

#include "orrery/base/check.h"
#include "orrery/base/rng.h"

namespace orrery::memory {
namespace {

constexpr std::int64_t kMinBlock = 512;           // kMinBlockSize
constexpr std::int64_t kSmallRequest = kMiB;      // kSmallSize
constexpr std::int64_t kSmallSegment = 2 * kMiB;  // kSmallBuffer
constexpr std::int64_t kMinLarge = 10 * kMiB;     // kMinLargeAlloc
constexpr std::int64_t kLargeUnit = 2 * kMiB;     // kRoundLarge

constexpr std::int64_t RoundTo(std::int64_t bytes, std::int64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

bool Less(const auto& key, std::int64_t size, std::int64_t address) {
  return key.size != size ? key.size < size : key.address < address;
}

}  // namespace

CachingAllocator::CachingAllocator(const AllocatorSettings& settings, std::int64_t device_bytes,
                                   std::int64_t capacity)
    : settings_(settings), device_bytes_(device_bytes), capacity_(capacity), pools_(2) {
  allowed_ =
      settings.memory_fraction > 0
          ? static_cast<std::int64_t>(settings.memory_fraction * static_cast<double>(device_bytes))
          : kUnlimited;
}

std::int64_t CachingAllocator::Round(std::int64_t bytes) const {
  if (bytes < kMinBlock) return kMinBlock;
  const std::uint64_t size = static_cast<std::uint64_t>(bytes);
  const int log = std::bit_width(size) - 1;
  const std::size_t step = static_cast<std::size_t>(std::clamp(log - 20, 0, 15));
  const std::int64_t divisions = settings_.roundup_power2_divisions[step];
  if (divisions <= 1 || bytes <= kMinBlock * divisions) return RoundTo(bytes, kMinBlock);
  const std::int64_t power = std::int64_t{1} << log;
  return RoundTo(bytes, std::max<std::int64_t>(power / divisions, 1));
}

CachingAllocator::Handle CachingAllocator::NewBlock(const Block& block) {
  if (recycled_.empty()) {
    blocks_.push_back(block);
    return static_cast<Handle>(blocks_.size() - 1);
  }
  const Handle h = recycled_.back();
  recycled_.pop_back();
  blocks_[h] = block;
  return h;
}

void CachingAllocator::Drop(Handle h) {
  blocks_[h].state = State::kGone;
  recycled_.push_back(h);
}

// Where a free block stands, or would, in its pool.
std::size_t CachingAllocator::PlaceOf(Handle h) const {
  const Block& b = blocks_[h];
  const std::vector<Key>& free = pools_[b.pool].free;
  const auto at = std::lower_bound(
      free.begin(), free.end(), b,
      [](const Key& key, const Block& block) { return Less(key, block.size, block.address); });
  return static_cast<std::size_t>(at - free.begin());
}

void CachingAllocator::InsertFree(Handle h) {
  Block& b = blocks_[h];
  b.state = State::kFree;
  b.born = lookups_[b.pool & 1];
  std::vector<Key>& free = pools_[b.pool].free;
  free.insert(free.begin() + static_cast<std::ptrdiff_t>(PlaceOf(h)), {b.size, b.address, h});
}

void CachingAllocator::EraseFree(Handle h) {
  std::vector<Key>& free = pools_[blocks_[h].pool].free;
  const std::size_t at = PlaceOf(h);
  ORRERY_CHECK(at < free.size() && free[at].block == h, "a free block is in its pool");
  free.erase(free.begin() + static_cast<std::ptrdiff_t>(at));
}

// As to erase what stands at `from` and to insert `h`, which moves only what lies between the two.
void CachingAllocator::ReplaceFree(std::size_t from, Handle h) {
  Block& b = blocks_[h];
  b.state = State::kFree;
  b.born = lookups_[b.pool & 1];
  std::vector<Key>& free = pools_[b.pool].free;
  const auto gap = free.begin() + static_cast<std::ptrdiff_t>(from);
  const auto to = free.begin() + static_cast<std::ptrdiff_t>(PlaceOf(h));
  if (to <= gap) {
    std::move_backward(to, gap, gap + 1);
    *to = {b.size, b.address, h};
  } else {
    std::move(gap + 1, to, gap);
    *(to - 1) = {b.size, b.address, h};
  }
}

void CachingAllocator::InsertUnmapped(Handle h) {
  std::vector<Handle>& list = pools_[blocks_[h].pool].unmapped;
  const auto at = std::lower_bound(
      list.begin(), list.end(), blocks_[h].address,
      [this](Handle other, std::int64_t address) { return blocks_[other].address < address; });
  list.insert(at, h);
  blocks_[h].state = State::kUnmapped;
}

void CachingAllocator::EraseUnmapped(Handle h) {
  std::vector<Handle>& list = pools_[blocks_[h].pool].unmapped;
  list.erase(std::find(list.begin(), list.end(), h));
}

CachingAllocator::Handle CachingAllocator::Alloc(std::int64_t bytes, int stream) {
  ORRERY_CHECK(bytes > 0 && stream >= 0 && stream < kMaxStreams, "a request of a known stream");
  ProcessEvents(false);
  const std::int64_t size = Round(bytes);
  const bool small = size <= kSmallRequest;
  const auto pool = static_cast<std::uint16_t>(2 * stream + (small ? 1 : 0));
  if (pools_.size() <= pool) pools_.resize(static_cast<std::size_t>(pool) + 1);
  const bool collects = settings_.memory_fraction > 0 && settings_.garbage_collection_threshold > 0;
  if (collects) ++lookups_[pool & 1];
  const std::size_t at = FindFree(pool, size);
  Handle h = at == kNowhere ? kNone : pools_[pool].free[at].block;
  if (h == kNone) {
    if (collects) CollectGarbage();
    h = NewSegment(pool, size);
    if (h == kNone && ReleaseOversize(pool, size)) h = NewSegment(pool, size);
    if (h == kNone) {
      EmptyCache();
      ++stats_.retries;
      h = NewSegment(pool, size);
    }
    if (h == kNone) return kNone;
  }
  const bool splits = ShouldSplit(pool, blocks_[h].size - size, size);
  const Handle rest = h;
  if (splits) h = TakeFront(h, size);
  if (at == kNowhere) {
    if (splits) InsertFree(rest);
  } else if (splits) {
    ReplaceFree(at, rest);
  } else {
    pools_[pool].free.erase(pools_[pool].free.begin() + static_cast<std::ptrdiff_t>(at));
  }
  Block& b = blocks_[h];
  b.state = State::kUsed;
  b.rounded = size;
  stats_.allocated += b.size;
  stats_.rounded += size;
  stats_.peak_allocated = std::max(stats_.peak_allocated, stats_.allocated);
  stats_.peak_rounded = std::max(stats_.peak_rounded, stats_.rounded);
  return h;
}

// The best fit's place in its pool, or kNowhere.
std::size_t CachingAllocator::FindFree(std::uint16_t pool, std::int64_t size) const {
  const std::vector<Key>& free = pools_[pool].free;
  auto at = std::lower_bound(free.begin(), free.end(), size,
                             [](const Key& key, std::int64_t s) { return Less(key, s, -1); });
  if (at == free.end()) return kNowhere;
  if (settings_.expandable_segments) {
    // A block that ends where its range can grow counts with all that it could grow to.
    const auto room = [this](Handle h) {
      const Block& b = blocks_[h];
      const bool grows = b.next != kNone && blocks_[b.next].state == State::kUnmapped;
      return b.size + (grows ? blocks_[b.next].size : 0);
    };
    for (auto next = at + 1; next != free.end() && room(next->block) < room(at->block); ++next) {
      at = next;
    }
  }
  const bool oversize = at->size >= settings_.max_split_bytes;
  if (size < settings_.max_split_bytes && oversize) return kNowhere;
  if (size >= settings_.max_split_bytes &&
      at->size >= size + settings_.max_non_split_rounding_bytes) {
    return kNowhere;
  }
  return static_cast<std::size_t>(at - free.begin());
}

bool CachingAllocator::ShouldSplit(std::uint16_t pool, std::int64_t rest, std::int64_t size) const {
  if (IsSmall(pool) || settings_.expandable_segments) return rest >= kMinBlock;
  return size < settings_.max_split_bytes && rest > kSmallRequest;
}

// Cuts `size` bytes off the front. The rest keeps the handle; the caller puts it into its pool.
CachingAllocator::Handle CachingAllocator::TakeFront(Handle h, std::int64_t size) {
  Block front = blocks_[h];
  front.size = size;
  front.next = h;
  const Handle taken = NewBlock(front);
  Block& rest = blocks_[h];
  if (front.prev != kNone) {
    blocks_[front.prev].next = taken;
  } else {
    *std::lower_bound(heads_.begin(), heads_.end(), front.address,
                      [this](Handle other, std::int64_t address) {
                        return blocks_[other].address < address;
                      }) = taken;
  }
  rest.prev = taken;
  rest.address += size;
  rest.size -= size;
  return taken;
}

bool CachingAllocator::CanMerge(Handle into, Handle other) const {
  return other != kNone && blocks_[other].state == blocks_[into].state;
}

// `gone`, a neighbour of `into`, becomes part of it. Neither is in a pool.
void CachingAllocator::Absorb(Handle into, Handle gone) {
  Block& a = blocks_[into];
  const Block& b = blocks_[gone];
  if (a.prev == gone) {
    if (b.prev != kNone) {
      blocks_[b.prev].next = into;
    } else {
      *std::lower_bound(heads_.begin(), heads_.end(), b.address,
                        [this](Handle other, std::int64_t address) {
                          return blocks_[other].address < address;
                        }) = into;
    }
    a.prev = b.prev;
    a.address = b.address;
  } else {
    a.next = b.next;
    if (a.next != kNone) blocks_[a.next].prev = into;
  }
  a.size += b.size;
  Drop(gone);
}

void CachingAllocator::Free(Handle h) {
  Block& b = blocks_[h];
  ORRERY_CHECK(b.state == State::kUsed, "a block in use");
  stats_.allocated -= b.size;
  stats_.rounded -= b.rounded;
  if (b.streams == 0) {
    MakeFree(h);
    return;
  }
  b.state = State::kWaiting;
  stats_.waiting += b.size;
  b.events = std::popcount(b.streams);
  for (std::uint64_t left = b.streams; left != 0; left &= left - 1) {
    const auto stream = static_cast<std::size_t>(std::countr_zero(left));
    if (waiting_.size() <= stream) waiting_.resize(stream + 1);
    waiting_[stream].push_back(h);
  }
  b.streams = 0;
}

void CachingAllocator::RecordStream(Handle h, int stream) {
  ORRERY_CHECK(stream >= 0 && stream < kMaxStreams, "a known stream");
  if (stream == blocks_[h].pool / 2) return;
  blocks_[h].streams |= std::uint64_t{1} << stream;
}

void CachingAllocator::MergeUnmapped(Handle h) {
  for (const bool before : {true, false}) {
    const Handle other = before ? blocks_[h].prev : blocks_[h].next;
    if (!CanMerge(h, other)) continue;
    EraseUnmapped(other);
    Absorb(h, other);
  }
}

void CachingAllocator::MakeFree(Handle h) {
  blocks_[h].state = State::kFree;
  const Handle before = blocks_[h].prev, after = blocks_[h].next;
  const bool joins_before = CanMerge(h, before), joins_after = CanMerge(h, after);
  if (!joins_before && !joins_after) return InsertFree(h);
  if (joins_before && joins_after) EraseFree(after);
  const std::size_t place = PlaceOf(joins_before ? before : after);
  if (joins_before) Absorb(h, before);
  if (joins_after) Absorb(h, after);
  ReplaceFree(place, h);
}

void CachingAllocator::ProcessEvents(bool all) {
  for (std::size_t s = 0; s < waiting_.size(); ++s) {
    if (waiting_[s].empty() || (busy_[s] && !all)) continue;
    for (const Handle h : waiting_[s]) {
      if (--blocks_[h].events > 0) continue;
      stats_.waiting -= blocks_[h].size;
      MakeFree(h);
    }
    waiting_[s].clear();
  }
}

bool CachingAllocator::Reserve(std::int64_t bytes) {
  if (stats_.reserved + bytes > capacity_) return false;
  stats_.reserved += bytes;
  stats_.peak_reserved = std::max(stats_.peak_reserved, stats_.reserved);
  ++stats_.driver_allocs;
  return true;
}

CachingAllocator::Handle CachingAllocator::NewSegment(std::uint16_t pool, std::int64_t size) {
  const std::int64_t bytes = IsSmall(pool)      ? kSmallSegment
                             : size < kMinLarge ? settings_.large_segment_bytes
                                                : RoundTo(size, kLargeUnit);
  if (limited_ && stats_.reserved > allowed_ - bytes) return kNone;
  if (settings_.expandable_segments) return Expand(pool, size);
  if (!Reserve(bytes)) return kNone;
  Block b;
  b.address = next_address_;
  b.size = bytes;
  b.pool = pool;
  next_address_ += bytes;
  const Handle h = NewBlock(b);
  heads_.push_back(h);
  return h;
}

// The lowest place of a range where free and unmapped memory together hold `size`; a new range when
// there is none.
CachingAllocator::Handle CachingAllocator::FindExpandable(std::uint16_t pool, std::int64_t size) {
  const auto usable = [this](Handle h) {
    return h != kNone && (blocks_[h].state == State::kFree || blocks_[h].state == State::kUnmapped);
  };
  for (const Handle candidate : pools_[pool].unmapped) {
    Handle start = candidate;
    if (usable(blocks_[start].prev)) start = blocks_[start].prev;
    std::int64_t room = 0;
    for (Handle h = start; room < size && usable(h); h = blocks_[h].next) room += blocks_[h].size;
    if (room >= size) return start;
  }
  // One and an eighth of the device, so that pages can move from the front to the end; more where
  // one request is larger, as when what a job would need is asked for.
  const std::int64_t page = IsSmall(pool) ? kSmallSegment : settings_.large_segment_bytes;
  Block b;
  b.address = next_address_;
  b.size = RoundTo(std::max(device_bytes_ + device_bytes_ / 8, size), page);
  b.pool = pool;
  b.range = static_cast<std::uint32_t>(ranges_.size());
  ranges_.push_back({b.address, b.size});
  next_address_ += b.size;
  const Handle h = NewBlock(b);
  heads_.push_back(h);
  InsertUnmapped(h);
  return h;
}

CachingAllocator::Handle CachingAllocator::Expand(std::uint16_t pool, std::int64_t size) {
  Handle h = FindExpandable(pool, size);
  if (blocks_[h].state == State::kUnmapped && !Map(h, std::min(blocks_[h].size, size))) {
    return kNone;
  }
  while (blocks_[h].size < size) {
    const Handle next = blocks_[h].next;
    if (!Map(next, std::min(size - blocks_[h].size, blocks_[next].size))) return kNone;
    h = next;
  }
  EraseFree(h);
  return h;
}

// Backs at least `size` bytes of an unmapped block with pages; it joins its free neighbours.
bool CachingAllocator::Map(Handle h, std::int64_t size) {
  const std::int64_t page =
      IsSmall(blocks_[h].pool) ? kSmallSegment : settings_.large_segment_bytes;
  const std::int64_t bytes = RoundTo(size, page);
  if (!Reserve(bytes)) return false;
  EraseUnmapped(h);
  if (bytes < blocks_[h].size) {
    Block rest = blocks_[h];
    rest.address += bytes;
    rest.size -= bytes;
    rest.prev = h;
    const Handle r = NewBlock(rest);
    if (rest.next != kNone) blocks_[rest.next].prev = r;
    blocks_[h].next = r;
    blocks_[h].size = bytes;
    InsertUnmapped(r);
  }
  MakeFree(h);
  return true;
}

// Gives the pages that lie wholly in a free block back.
void CachingAllocator::Unmap(Handle h) {
  const Block whole = blocks_[h];
  const std::int64_t page = IsSmall(whole.pool) ? kSmallSegment : settings_.large_segment_bytes;
  const std::int64_t base = ranges_[whole.range].base;
  const std::int64_t begin = base + RoundTo(whole.address - base, page);
  const std::int64_t end = base + (whole.address + whole.size - base) / page * page;
  if (begin >= end) return;
  EraseFree(h);
  if (begin > whole.address) {
    Block before = whole;
    before.size = begin - whole.address;
    before.next = h;
    const Handle b = NewBlock(before);
    if (whole.prev != kNone) {
      blocks_[whole.prev].next = b;
    } else {
      *std::find(heads_.begin(), heads_.end(), h) = b;
    }
    blocks_[h].prev = b;
    InsertFree(b);
  }
  if (whole.address + whole.size > end) {
    Block after = whole;
    after.address = end;
    after.size = whole.address + whole.size - end;
    after.prev = h;
    const Handle a = NewBlock(after);
    if (whole.next != kNone) blocks_[whole.next].prev = a;
    blocks_[h].next = a;
    InsertFree(a);
  }
  Block& b = blocks_[h];
  b.address = begin;
  b.size = end - begin;
  b.state = State::kUnmapped;
  stats_.reserved -= b.size;
  ++stats_.driver_frees;
  MergeUnmapped(h);
  InsertUnmapped(h);
}

void CachingAllocator::ReleaseSegment(Handle h) {
  EraseFree(h);
  stats_.reserved -= blocks_[h].size;
  ++stats_.driver_frees;
  heads_.erase(std::find(heads_.begin(), heads_.end(), h));
  Drop(h);
}

void CachingAllocator::CollectGarbage() {
  const auto threshold = static_cast<std::int64_t>(settings_.garbage_collection_threshold *
                                                   static_cast<double>(allowed_));
  if (stats_.reserved <= threshold) return;
  const std::int64_t target = stats_.reserved - threshold;
  const auto age = [this](Handle h) { return lookups_[0] - blocks_[h].born; };
  scratch_.clear();
  std::int64_t total_age = 0;
  for (std::size_t pool = 0; pool < pools_.size(); pool += 2) {
    for (const Key& key : pools_[pool].free) {
      if (blocks_[key.block].prev != kNone || blocks_[key.block].next != kNone) continue;
      scratch_.push_back(key.block);
      total_age += age(key.block);
    }
  }
  std::int64_t reclaimed = 0;
  for (bool freed = true; freed && reclaimed < target && !scratch_.empty();) {
    freed = false;
    const double mean = static_cast<double>(total_age) / static_cast<double>(scratch_.size());
    std::erase_if(scratch_, [&](Handle h) {
      if (static_cast<double>(age(h)) < mean) return false;
      freed = true;
      reclaimed += blocks_[h].size;
      total_age -= age(h);
      ReleaseSegment(h);
      return true;
    });
  }
}

// Cached blocks that may not be split go back, largest first, until `size` could fit.
bool CachingAllocator::ReleaseOversize(std::uint16_t pool, std::int64_t size) {
  if (settings_.max_split_bytes == kUnlimited) return false;
  const std::int64_t wanted = std::max(size, settings_.max_split_bytes);
  std::vector<Key>& free = pools_[pool].free;
  const auto at = std::lower_bound(free.begin(), free.end(), wanted,
                                   [](const Key& key, std::int64_t s) { return Less(key, s, -1); });
  if (at != free.end()) {
    ReleaseSegment(at->block);
    return true;
  }
  std::int64_t released = 0;
  while (released < wanted && !free.empty() && free.back().size >= settings_.max_split_bytes) {
    released += free.back().size;
    ReleaseSegment(free.back().block);
  }
  return released >= wanted;
}

void CachingAllocator::EmptyCache() {
  ProcessEvents(true);
  for (const bool small : {false, true}) {
    for (std::size_t pool = small ? 1 : 0; pool < pools_.size(); pool += 2) {
      scratch_.clear();
      for (const Key& key : pools_[pool].free) scratch_.push_back(key.block);
      for (const Handle h : scratch_) {
        const Block& b = blocks_[h];
        if (b.range != kNone) {
          Unmap(h);
          if (blocks_[h].state == State::kUnmapped && blocks_[h].prev == kNone &&
              blocks_[h].next == kNone) {
            EraseUnmapped(h);
            heads_.erase(std::find(heads_.begin(), heads_.end(), h));
            Drop(h);
          }
        } else if (b.prev == kNone && b.next == kNone) {
          ReleaseSegment(h);
        }
      }
    }
  }
}

std::int64_t CachingAllocator::LargestFree() const {
  std::int64_t largest = 0;
  for (const Pool& pool : pools_) {
    if (!pool.free.empty()) largest = std::max(largest, pool.free.back().size);
  }
  return largest;
}

std::uint64_t CachingAllocator::FreeListHash() const {
  std::uint64_t hash = static_cast<std::uint64_t>(stats_.reserved);
  for (const Pool& pool : pools_) {
    hash = HashCombine(hash, pool.free.size());
    for (const Key& key : pool.free) hash = HashCombine(hash, static_cast<std::uint64_t>(key.size));
  }
  return hash;
}

}  // namespace orrery::memory
