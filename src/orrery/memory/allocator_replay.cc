#include "orrery/memory/allocator_replay.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "orrery/base/check.h"
#include "orrery/base/rng.h"
#include "orrery/memory/repeats.h"

namespace orrery::memory {
namespace {

using graph::Call;
using graph::Lifetime;
using graph::OpKind;
using Handle = CachingAllocator::Handle;

// What a buffer in use is: equal keys are the same buffer.
struct Key {
  std::uint64_t place = 0;   // lifetime, chunk, layer
  std::uint64_t buffer = 0;  // micro-batch + 1, id
  friend bool operator==(const Key&, const Key&) = default;
};

// Key to handle: open addressing, linear probing; erased slots are filled by moving back.
class LiveMap {
 public:
  LiveMap() : slots_(1024) {}

  // The slot of `key`, or where it would go.
  Handle* Find(const Key& key) {
    std::size_t at = Home(key);
    while (slots_[at].handle != CachingAllocator::kNone && !(slots_[at].key == key)) {
      at = (at + 1) & (slots_.size() - 1);
    }
    return slots_[at].handle == CachingAllocator::kNone ? nullptr : &slots_[at].handle;
  }
  void Insert(const Key& key, Handle handle) {
    if (++size_ * 2 > slots_.size()) Grow();
    Put(key, handle);
  }
  // REQUIRES: it is there.
  Handle Take(const Key& key) {
    std::size_t hole = Home(key);
    while (!(slots_[hole].key == key) || slots_[hole].handle == CachingAllocator::kNone) {
      ORRERY_CHECK(slots_[hole].handle != CachingAllocator::kNone, "a buffer that lives");
      hole = (hole + 1) & (slots_.size() - 1);
    }
    const Handle taken = slots_[hole].handle;
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t at = (hole + 1) & mask; slots_[at].handle != CachingAllocator::kNone;
         at = (at + 1) & mask) {
      const std::size_t home = Home(slots_[at].key);
      if (((at - home) & mask) >= ((at - hole) & mask)) {
        slots_[hole] = slots_[at];
        hole = at;
      }
    }
    slots_[hole].handle = CachingAllocator::kNone;
    --size_;
    return taken;
  }
  template <typename Visit>
  void ForEach(Visit&& visit) const {
    for (const Slot& slot : slots_) {
      if (slot.handle != CachingAllocator::kNone) visit(slot.key, slot.handle);
    }
  }

 private:
  struct Slot {
    Key key;
    Handle handle = CachingAllocator::kNone;
  };
  std::size_t Home(const Key& key) const {
    return HashCombine(key.place, key.buffer) & (slots_.size() - 1);
  }
  void Put(const Key& key, Handle handle) {
    std::size_t at = Home(key);
    while (slots_[at].handle != CachingAllocator::kNone) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = {key, handle};
  }
  void Grow() {
    std::vector<Slot> old(slots_.size() * 2);
    std::swap(old, slots_);
    for (const Slot& slot : old) {
      if (slot.handle != CachingAllocator::kNone) Put(slot.key, slot.handle);
    }
  }

  std::vector<Slot> slots_;
  std::size_t size_ = 0;
};

// An alloc or a free of a block, or where the host waits for the GPU, ready to run.
struct Event {
  std::int64_t bytes = 0;
  std::int64_t launches = 0;  // of the block before it
  std::uint32_t id = 0;       // of the buffer; of a kCall buffer its place among the block's
  std::uint32_t op = 0;
  std::uint32_t module = 0;  // index into the names; kNoModule without one
  graph::MemoryKind kind = graph::MemoryKind::kActivation;
  Lifetime lifetime = Lifetime::kCall;
  bool is_alloc = false, is_sync = false;
  bool within() const { return lifetime == Lifetime::kCall || lifetime == Lifetime::kLingering; }
};
struct BlockEvents {
  bool known = false;
  std::uint32_t call_buffers = 0;
  std::int64_t launches = 0;
  std::vector<Event> events;
};

bool Lingers(const graph::Graph& graph, const graph::Program& program) {
  return std::any_of(program.calls.begin(), program.calls.end(), [&](const Call& call) {
    const auto& buffers = graph.blocks[call.block.index()].buffers;
    return std::any_of(buffers.begin(), buffers.end(),
                       [](const graph::Buffer& b) { return b.lifetime == Lifetime::kLingering; });
  });
}

// Lingering frees. Nobody knows here how far the host is ahead of the GPU when it frees: as far as
// it can, by what the driver queues, until it waits. Frees of one span of launches come back
// together: each span is a stream of the allocator that is busy until then.
class HostLead {
 public:
  explicit HostLead(CachingAllocator* allocator) : allocator_(allocator) {}

  // Before a free at this number of launches.
  void Linger(Handle h, std::int64_t launches) {
    const std::int64_t span = launches / kSpan;
    if (busy_.empty() || busy_.back() != span) {
      busy_.push_back(span);
      allocator_->SetBusy(Stream(span), true);
    }
    allocator_->RecordStream(h, Stream(span));
  }
  // The host has issued so many launches; those that no longer fit the queue have run.
  void Issue(std::int64_t launches) {
    while (!busy_.empty() && (busy_.front() + 1) * kSpan + kQueued <= launches) Reach();
  }
  void Sync() {
    while (!busy_.empty()) Reach();
  }

 private:
  // CUDA's launch queue: a launch blocks the host while some 1,024 stand before it.
  static constexpr std::int64_t kQueued = 1024, kSpan = 64;
  static int Stream(std::int64_t span) {
    return static_cast<int>(1 + span % (CachingAllocator::kMaxStreams - 1));
  }
  void Reach() {
    allocator_->SetBusy(Stream(busy_.front()), false);
    busy_.erase(busy_.begin());
  }

  CachingAllocator* allocator_;
  std::vector<std::int64_t> busy_;  // spans, oldest first; fewer than kMaxStreams - 1
};

class Replayer {
 public:
  Replayer(const graph::Graph& graph, const graph::Program& program, const ReplayOptions& options)
      : graph_(graph),
        program_(program),
        options_(options),
        lingers_(Lingers(graph, program)),
        allocator_(options.settings, options.device_bytes, options.capacity),
        lead_(&allocator_),
        blocks_(graph.blocks.size()),
        module_bytes_(graph.names().size() + 2),
        peak_modules_(module_bytes_),
        moved_(module_bytes_.size()) {}

  ReplayResult Run() {
    for (const Call& call : program_.prologue) RunCall(call);
    for (const std::int64_t bytes : options_.workspaces) {
      Alloc({.bytes = bytes,
             .module = static_cast<std::uint32_t>(graph_.names().size() + 1),
             .kind = graph::MemoryKind::kTemporary,
             .is_alloc = true},
            {.call = nullptr});
    }
    const std::vector<RepeatedRun> runs = options_.skip && !options_.timeline && !lingers_
                                              ? FindRepeats(program_.calls)
                                              : std::vector<RepeatedRun>();
    std::vector<std::uint64_t> before, after;
    for (int i = 0; i < kMaxIterations && !out_.settled; ++i) {
      out_.timeline.clear();
      RunIteration(runs);
      Layout(0, &after);
      out_.settled = i > 0 && after == before;
      std::swap(before, after);
      ++out_.iterations;
    }
    KeepPeak();
    out_.stats = allocator_.stats();
    out_.at_peak = peak_parts_;
    out_.modules = std::move(peak_modules_);
    return std::move(out_);
  }

 private:
  static Key KeyOf(const Event& event, const Call& call, std::int32_t layer) {
    const bool micro = event.lifetime == Lifetime::kMicrobatch;
    const auto place = static_cast<std::uint64_t>(event.lifetime) << 48 |
                       std::uint64_t{static_cast<std::uint16_t>(call.chunk)} << 32 |
                       static_cast<std::uint32_t>(layer);
    const std::int32_t batch = micro ? call.microbatch + 1 : 0;
    return {place, std::uint64_t{static_cast<std::uint32_t>(batch)} << 32 | event.id};
  }

  const BlockEvents& EventsOf(BlockId id) {
    BlockEvents& known = blocks_[id.index()];
    if (known.known) return known;
    known.known = true;
    const graph::Block& block = graph_.blocks[id.index()];
    std::vector<std::uint32_t> call_ids;
    for (std::size_t i = 0; i < block.ops.size(); ++i) {
      const graph::Op& op = block.ops[i];
      if (op.kind == OpKind::kKernel || op.kind == OpKind::kComm) ++known.launches;
      if (lingers_ && op.kind == OpKind::kHostSync) known.events.push_back({.is_sync = true});
      if (op.kind != OpKind::kAlloc && op.kind != OpKind::kFree) continue;
      const graph::Buffer& buffer = block.buffers[op.index];
      Event event{.bytes = buffer.bytes,
                  .launches = known.launches,
                  .id = buffer.id,
                  .op = static_cast<std::uint32_t>(i),
                  .module = op.module.valid() ? op.module.value
                                              : static_cast<std::uint32_t>(graph_.names().size()),
                  .kind = buffer.kind,
                  .lifetime = buffer.lifetime,
                  .is_alloc = op.kind == OpKind::kAlloc};
      if (event.within()) {
        const auto at = std::find(call_ids.begin(), call_ids.end(), event.id);
        event.id = static_cast<std::uint32_t>(at - call_ids.begin());
        if (at == call_ids.end()) call_ids.push_back(buffer.id);
      }
      known.events.push_back(event);
    }
    known.call_buffers = static_cast<std::uint32_t>(call_ids.size());
    return known;
  }

  void RunCall(const Call& call) {
    const BlockEvents& block = EventsOf(call.block);
    const bool down = graph::IsBackward(graph_.blocks[call.block.index()].pass);
    call_peak_ = allocator_.stats().allocated;
    if (call_handles_.size() < block.call_buffers) call_handles_.resize(block.call_buffers);
    if (!block.events.empty()) {
      for (std::int32_t i = 0; i < call.repeat; ++i) {
        RunLayer(block, call, call.first_layer + (down ? -i : i));
      }
    } else {
      launches_ += call.repeat * block.launches;
    }
    if (options_.timeline) {
      out_.timeline.push_back(
          {&call, call_peak_, allocator_.stats().allocated, allocator_.stats().reserved});
    }
  }

  void RunLayer(const BlockEvents& block, const Call& call, std::int32_t layer) {
    out_.events += static_cast<std::int64_t>(block.events.size());
    for (const Event& event : block.events) {
      if (lingers_) lead_.Issue(launches_ + event.launches);
      if (event.is_sync) {
        lead_.Sync();
      } else if (event.is_alloc) {
        if (event.within()) {
          call_handles_[event.id] = Alloc(event, {&call, layer, event.op});
          continue;
        }
        const Key key = KeyOf(event, call, layer);
        if (event.lifetime == Lifetime::kForever && live_.Find(key) != nullptr) continue;
        live_.Insert(key, Alloc(event, {&call, layer, event.op}));
      } else {
        const Handle h =
            event.within() ? call_handles_[event.id] : live_.Take(KeyOf(event, call, layer));
        if (event.lifetime == Lifetime::kLingering && h != kEmpty) {
          lead_.Linger(h, launches_ + event.launches);
        }
        Free(h);
      }
    }
    launches_ += block.launches;
  }

  Handle Alloc(const Event& event, const CallPlace& place) {
    if (event.bytes == 0) return kEmpty;
    Handle h = allocator_.Alloc(event.bytes);
    if (h == CachingAllocator::kNone) {
      RecordOom(event, place);
      allocator_.LiftLimits();
      h = allocator_.Alloc(event.bytes);
      ORRERY_CHECK(h != CachingAllocator::kNone, "an unlimited device is full");
    }
    if (owners_.size() <= h) owners_.resize(h + 1);
    const std::int64_t bytes = allocator_.BlockBytes(h);
    owners_[h] = {event.module, event.kind};
    parts_[static_cast<std::size_t>(event.kind)] += bytes;
    AddToModule(event.module, bytes);
    const AllocatorStats& stats = allocator_.stats();
    call_peak_ = std::max(call_peak_, stats.allocated);
    if (stats.allocated > peak_) {
      peak_ = stats.allocated;
      peak_open_ = true;
      out_.peak = place;
    }
    if (stats.reserved > peak_reserved_) {
      peak_reserved_ = stats.reserved;
      out_.cached_at_peak = stats.reserved - stats.allocated;
    }
    return h;
  }

  void Free(Handle h) {
    if (h == kEmpty) return;
    KeepPeak();
    const std::int64_t bytes = allocator_.BlockBytes(h);
    parts_[static_cast<std::size_t>(owners_[h].kind)] -= bytes;
    AddToModule(owners_[h].module, -bytes);
    allocator_.Free(h);
  }

  void AddToModule(std::uint32_t module, std::int64_t bytes) {
    module_bytes_[module] += bytes;
    if (moved_[module]) return;
    moved_[module] = true;
    moved_modules_.push_back(module);
  }

  // The parts of a peak are kept when it is about to end.
  void KeepPeak() {
    if (!peak_open_) return;
    peak_open_ = false;
    peak_parts_ = parts_;
    for (const std::uint32_t module : moved_modules_) {
      peak_modules_[module] = module_bytes_[module];
      moved_[module] = false;
    }
    moved_modules_.clear();
  }

  void RecordOom(const Event& event, const CallPlace& place) {
    if (out_.oom) return;
    const AllocatorStats& stats = allocator_.stats();
    out_.oom_place = place;
    out_.oom = OutOfMemory{.requested = allocator_.Round(event.bytes),
                           .allocated = stats.allocated,
                           .reserved = stats.reserved,
                           .device_free = allocator_.capacity() - stats.reserved,
                           .largest_cached = allocator_.LargestFree()};
  }

  void RunIteration(const std::vector<RepeatedRun>& runs) {
    std::size_t at = 0;
    for (const RepeatedRun& run : runs) {
      for (; at < run.begin; ++at) RunCall(program_.calls[at]);
      RunRepeats(run);
      at = run.begin + run.count * run.period;
    }
    for (; at < program_.calls.size(); ++at) RunCall(program_.calls[at]);
  }

  // Periods of a run, until the layout after one equals that after an earlier one. Layouts are only
  // hashed once the cached blocks have been seen before.
  void RunRepeats(const RepeatedRun& run) {
    std::vector<std::uint64_t> free_lists;
    std::vector<std::pair<std::uint64_t, std::size_t>> layouts;  // hash, period
    bool skipped = false;
    std::size_t quiet_since = 0;
    std::uint64_t live_before = 0;  // after the period before, if that was quiet
    bool was_quiet = false;
    AllocatorStats last = allocator_.stats();
    for (std::size_t k = 0; k < run.count; ++k) {
      for (std::size_t i = 0; i < run.period; ++i) {
        RunCall(program_.calls[run.begin + k * run.period + i]);
      }
      if (skipped || !options_.skip) continue;
      const AllocatorStats& stats = allocator_.stats();
      if (stats.peak_allocated != last.peak_allocated ||
          stats.driver_allocs != last.driver_allocs || stats.driver_frees != last.driver_frees) {
        quiet_since = k;
      }
      last = stats;
      if (k >= kMaxPeriods && k - quiet_since >= kMaxPeriods / 2) {
        // A run that only fills or only empties (GPipe's two halves) repeats nothing.
        const std::uint64_t live = LiveAt(k, run);
        if (was_quiet && live == live_before) {
          Skip(run, run.count - 1 - k, &k);
          out_.bounded = true;
        }
        skipped = std::exchange(was_quiet, true);
        live_before = live;
        continue;
      }
      was_quiet = false;
      if (layouts.empty()) {
        free_lists.push_back(allocator_.FreeListHash());
        const auto before = free_lists.end() - 1;
        if (std::find(free_lists.begin(), before, *before) == before) continue;
      }
      Layout(static_cast<std::int32_t>(k) * run.shift, &layout_);
      std::uint64_t hash = layout_.size();
      for (const std::uint64_t word : layout_) hash = HashCombine(hash, word);
      const auto seen = std::find_if(layouts.begin(), layouts.end(),
                                     [&](const auto& layout) { return layout.first == hash; });
      if (seen == layouts.end()) {
        layouts.emplace_back(hash, k);
        continue;
      }
      const std::size_t cycle = k - seen->second;
      Skip(run, (run.count - 1 - k) / cycle * cycle, &k);
      skipped = true;  // what is left is shorter than a cycle
    }
  }

  void Skip(const RepeatedRun& run, std::size_t periods, std::size_t* at) {
    MoveOn(static_cast<std::int32_t>(periods) * run.shift);
    out_.skipped_calls += static_cast<std::int64_t>(periods * run.period);
    *at += periods;
  }

  // Which buffers live after period k, with micro-batches counted from it.
  std::uint64_t LiveAt(std::size_t k, const RepeatedRun& run) const {
    const auto now = static_cast<std::uint64_t>(k) * static_cast<std::uint64_t>(run.shift);
    std::uint64_t sum = 0;
    live_.ForEach([&](const Key& key, Handle) {
      std::uint64_t buffer = key.buffer;
      if ((buffer >> 32) != 0) buffer -= now << 32;
      sum += Mix64(HashCombine(key.place, buffer));
    });
    return sum;
  }

  // All that decides what the allocator does next, with micro-batches counted from `now`.
  void Layout(std::int32_t now, std::vector<std::uint64_t>* layout) {
    tags_.resize(owners_.size());
    live_.ForEach([&](const Key& key, Handle h) {
      if (h == kEmpty) return;
      std::uint64_t buffer = key.buffer;
      if ((buffer >> 32) != 0) buffer -= static_cast<std::uint64_t>(now) << 32;
      tags_[h] = HashCombine(key.place, buffer);
    });
    layout->clear();
    allocator_.AppendLayout([this](Handle h) { return tags_[h]; }, layout);
  }

  // Micro-batches in use become later ones.
  void MoveOn(std::int32_t by) {
    if (by == 0) return;
    LiveMap moved;
    live_.ForEach([&](const Key& key, Handle h) {
      Key later = key;
      if ((key.buffer >> 32) != 0) later.buffer += static_cast<std::uint64_t>(by) << 32;
      moved.Insert(later, h);
    });
    live_ = std::move(moved);
  }

  static constexpr Handle kEmpty = 0xFFFFFFFEu;  // a buffer of no bytes
  struct Owner {
    std::uint32_t module = 0;
    graph::MemoryKind kind = graph::MemoryKind::kActivation;
  };

  const graph::Graph& graph_;
  const graph::Program& program_;
  const ReplayOptions& options_;
  const bool lingers_;  // whether any buffer does
  CachingAllocator allocator_;
  HostLead lead_;
  std::int64_t launches_ = 0;
  std::vector<BlockEvents> blocks_;
  LiveMap live_;
  std::vector<Handle> call_handles_;  // kCall buffers of the call in hand
  std::vector<Owner> owners_;         // by handle
  std::array<std::int64_t, kKinds> parts_{}, peak_parts_{};
  std::vector<std::int64_t> module_bytes_, peak_modules_;
  std::vector<bool> moved_;  // by module: whether it changed since the peak was kept
  std::vector<std::uint32_t> moved_modules_;
  std::int64_t peak_ = 0, peak_reserved_ = 0, call_peak_ = 0;
  bool peak_open_ = false;
  std::vector<std::uint64_t> tags_, layout_;
  ReplayResult out_;
};

}  // namespace

ReplayResult ReplayAllocator(const graph::Graph& graph, const graph::Program& program,
                             const ReplayOptions& options) {
  return Replayer(graph, program, options).Run();
}

}  // namespace orrery::memory
