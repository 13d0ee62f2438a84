#include "orrery/job/inspect_snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <vector>

#include "orrery/base/text.h"
#include "orrery/formats/memory_snapshot.h"
#include "orrery/memory/storage_replay.h"

namespace orrery::job {
namespace {

using formats::MemorySnapshot;
using memory::StorageEvent;
using Action = MemorySnapshot::Action;

constexpr std::size_t kPlacesShown = 12;
constexpr std::int64_t kAnyDevice = std::int64_t{1} << 50;

// One device's events as the allocator's model takes them.
class History {
 public:
  explicit History(const MemorySnapshot::Device& device) : device_(device) {
    FindEarlier();
    for (std::size_t i = 0; i < device_.events.size(); ++i) {
      Add(device_.events[i], static_cast<std::uint32_t>(i + 1));
    }
    FindReserved();
  }

  std::span<const StorageEvent> events() const { return events_; }
  std::size_t measured() const { return earlier_; }
  std::int64_t earlier_bytes() const { return earlier_bytes_; }
  std::int64_t peak_reserved() const { return peak_reserved_; }
  std::int64_t failures() const { return failures_; }

  // Bytes by place, of what lived at an event.
  std::map<std::uint32_t, std::int64_t> LiveAt(std::uint32_t place) const {
    std::unordered_map<std::int64_t, std::int64_t> live;
    std::map<std::uint32_t, std::int64_t> by_place;
    for (const StorageEvent& e : events_) {
      if (e.place > place) break;
      const std::int64_t bytes = e.kind == StorageEvent::Kind::kAlloc ? e.bytes : -live[e.storage];
      live[e.storage] += bytes;
      by_place[where_[static_cast<std::size_t>(e.storage)]] += bytes;
    }
    return by_place;
  }

 private:
  // What is freed without having been allocated here, and what is left of what was not.
  void FindEarlier() {
    std::unordered_map<std::uint64_t, bool> seen;
    std::map<std::uint64_t, MemorySnapshot::Block> earlier;  // by address
    for (const MemorySnapshot::Event& e : device_.events) {
      if (e.action != Action::kAlloc && e.action != Action::kFreeCompleted) continue;
      if (seen.emplace(e.address, true).second && e.action == Action::kFreeCompleted) {
        earlier[e.address] = {e.address, e.bytes, e.stream, 0};
      }
    }
    for (const MemorySnapshot::Block& b : device_.live) {
      if (!seen.contains(b.address)) earlier[b.address] = b;
    }
    for (const auto& [address, block] : earlier) {
      Take(address, block.bytes, block.stream, block.where, 0);
      earlier_bytes_ += block.bytes;
    }
    earlier_ = events_.size();
  }
  void Add(const MemorySnapshot::Event& e, std::uint32_t place) {
    if (e.action == Action::kAlloc) {
      Give(e.address, place);  // where the free before it was not recorded
      Take(e.address, e.bytes, e.stream, e.where, place);
    } else if (e.action == Action::kFreeCompleted) {
      Give(e.address, place);
    } else if (e.action == Action::kOutOfMemory) {
      ++failures_;
    }
  }
  void Take(std::uint64_t address, std::int64_t bytes, std::uint64_t stream, std::uint32_t where,
            std::uint32_t place) {
    const auto number = static_cast<std::int64_t>(where_.size());
    where_.push_back(where);
    live_[address] = number;
    events_.push_back({.kind = StorageEvent::Kind::kAlloc,
                       .stream = StreamOf(stream),
                       .place = place,
                       .storage = number,
                       .bytes = bytes});
  }
  void Give(std::uint64_t address, std::uint32_t place) {
    const auto found = live_.find(address);
    if (found == live_.end()) return;
    events_.push_back(
        {.kind = StorageEvent::Kind::kFree, .place = place, .storage = found->second});
    live_.erase(found);
  }
  std::uint16_t StreamOf(std::uint64_t stream) {
    return streams_.try_emplace(stream, static_cast<std::uint16_t>(streams_.size())).first->second;
  }
  // Segments from the end backwards: what was reserved when recording began is not in the file.
  void FindReserved() {
    std::int64_t reserved = device_.reserved_end;
    peak_reserved_ = reserved;
    for (auto e = device_.events.rbegin(); e != device_.events.rend(); ++e) {
      if (e->action == Action::kSegmentAlloc || e->action == Action::kSegmentMap) {
        reserved -= e->bytes;
      } else if (e->action == Action::kSegmentFree || e->action == Action::kSegmentUnmap) {
        reserved += e->bytes;
      }
      peak_reserved_ = std::max(peak_reserved_, reserved);
    }
  }

  const MemorySnapshot::Device& device_;
  std::vector<StorageEvent> events_;
  std::vector<std::uint32_t> where_;  // by storage
  std::unordered_map<std::uint64_t, std::int64_t> live_;
  std::map<std::uint64_t, std::uint16_t> streams_;
  std::size_t earlier_ = 0;
  std::int64_t earlier_bytes_ = 0, peak_reserved_ = 0, failures_ = 0;
};

Result<memory::StorageReplay> Replayed(const History& history, bool expandable) {
  memory::ReplayOptions options;
  options.settings.expandable_segments = expandable;
  options.device_bytes = kAnyDevice;
  return memory::ReplayStorages(history.events(), history.measured(), options);
}

FactTable PlacesAt(const MemorySnapshot& snapshot, const History& history, std::uint32_t place,
                   const std::string& title) {
  std::vector<std::pair<std::int64_t, std::uint32_t>> order;
  for (const auto& [where, bytes] : history.LiveAt(place)) order.emplace_back(-bytes, where);
  std::ranges::sort(order);
  FactTable table{title, {"allocated at", "bytes"}, {}};
  for (const auto& [bytes, where] : order) {
    if (table.rows.size() == kPlacesShown || bytes == 0) break;
    const std::string& name = snapshot.places[where];
    table.rows.push_back({name.empty() ? "not recorded" : Printable(name), HumanBytes(-bytes)});
  }
  return table;
}

}  // namespace

Result<GraphFacts> SnapshotFacts(std::string_view bytes, const std::string& path) {
  ORRERY_ASSIGN_OR_RETURN(const MemorySnapshot snapshot, formats::ParseMemorySnapshot(bytes, path));
  GraphFacts out;
  for (std::size_t d = 0; d < snapshot.devices.size(); ++d) {
    const MemorySnapshot::Device& device = snapshot.devices[d];
    if (device.events.empty() && device.live.empty()) continue;
    const std::string name = fmt::format("device {}", d);
    const History history(device);
    Result<memory::StorageReplay> own = Replayed(history, device.expandable);
    if (!own.ok()) {
      return std::move(own).TakeStatus().In(fmt::format("{}, {}", Printable(path), name));
    }
    ORRERY_ASSIGN_OR_RETURN(const memory::StorageReplay other,
                            Replayed(history, !device.expandable));
    const auto add = [&](const char* what, std::string value) {
      out.facts.emplace_back(fmt::format("{} {}", name, what), std::move(value));
    };
    add("events", HumanCount(static_cast<std::int64_t>(device.events.size())));
    add("lived before",
        fmt::format("{} of {} storages", HumanBytes(history.earlier_bytes()), history.measured()));
    add("peak allocated", HumanBytes(own->peak_allocated));
    add("peak reserved", HumanBytes(history.peak_reserved()));
    add(device.expandable ? "replayed with expandable segments" : "replayed",
        HumanBytes(own->peak_reserved));
    add(device.expandable ? "replayed without them" : "with expandable segments",
        HumanBytes(other.peak_reserved));
    if (history.failures() > 0) add("out of memory", fmt::format("{} times", history.failures()));
    out.tables.push_back(PlacesAt(snapshot, history, own->peak_place, name + ", at the peak"));
  }
  if (out.facts.empty()) {
    return InvalidInput(
        "{}: nothing was recorded: call torch.cuda.memory._record_memory_history() before the "
        "step",
        Printable(path));
  }
  return out;
}

}  // namespace orrery::job
