#include "orrery/formats/memory_snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>

#include "orrery/base/text.h"
#include "orrery/formats/pickle.h"

namespace orrery::formats {
namespace {

using Action = MemorySnapshot::Action;
using Device = MemorySnapshot::Device;

constexpr std::size_t kMostDevices = 1024;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;

Action ActionOf(std::string_view name) {
  constexpr std::array<std::string_view, 8> kNames = {
      "alloc",        "free_requested", "free_completed", "segment_alloc",
      "segment_free", "segment_map",    "segment_unmap",  "oom"};
  const auto found = std::ranges::find(kNames, name);
  return static_cast<Action>(found - kNames.begin());  // kOther behind the last
}

class SnapshotReader {
 public:
  explicit SnapshotReader(const Pickle& pickle) : p_(pickle) { out_.places.emplace_back(); }

  Result<MemorySnapshot> Read() {
    Pickle::Id traces = 0, segments = 0;
    if (!p_.Find(p_.root(), "device_traces", &traces) ||
        !p_.Find(p_.root(), "segments", &segments)) {
      return InvalidInput(
          "no memory snapshot: it lacks 'device_traces' or 'segments' "
          "(torch.cuda.memory._dump_snapshot writes both)");
    }
    const auto& devices = p_.items(traces);
    if (devices.size() > kMostDevices) return InvalidInput("{} devices", devices.size());
    out_.devices.resize(devices.size());
    for (std::size_t d = 0; d < devices.size(); ++d) {
      for (const Pickle::Id event : p_.items(devices[d])) {
        ORRERY_RETURN_IF_ERROR(
            AddEvent(event, &out_.devices[d])
                .In(fmt::format("device {}, event {}", d, out_.devices[d].events.size())));
      }
    }
    for (const Pickle::Id segment : p_.items(segments)) {
      ORRERY_RETURN_IF_ERROR(AddSegment(segment).In("segments"));
    }
    return std::move(out_);
  }

 private:
  Result<std::int64_t> Number(Pickle::Id dict, const char* key) const {
    Pickle::Id value = 0;
    if (!p_.Find(dict, key, &value) || p_.kind(value) != Pickle::Kind::kInteger) {
      return InvalidInput("'{}' is missing, or no whole number", key);
    }
    return p_.integer(value);
  }
  Result<std::int64_t> Bytes(Pickle::Id dict, const char* key) const {
    ORRERY_ASSIGN_OR_RETURN(const std::int64_t bytes, Number(dict, key));
    if (bytes < 0 || bytes > kMostBytes) return InvalidInput("'{}' is {}", key, bytes);
    return bytes;
  }
  std::uint64_t Or0(Pickle::Id dict, const char* key) const {
    Pickle::Id value = 0;
    return p_.Find(dict, key, &value) ? static_cast<std::uint64_t>(p_.integer(value)) : 0;
  }

  Status AddEvent(Pickle::Id dict, Device* device) {
    Pickle::Id action = 0;
    if (!p_.Find(dict, "action", &action)) return InvalidInput("it has no 'action'");
    MemorySnapshot::Event event;
    event.action = ActionOf(p_.text(action));
    if (event.action == Action::kOther) return {};
    ORRERY_ASSIGN_OR_RETURN(event.bytes, Bytes(dict, "size"));
    if (event.action != Action::kOutOfMemory) {
      ORRERY_ASSIGN_OR_RETURN(const std::int64_t address, Number(dict, "addr"));
      event.address = static_cast<std::uint64_t>(address);
    }
    event.stream = Or0(dict, "stream");
    if (event.action == Action::kAlloc) event.where = Place(dict);
    device->events.push_back(event);
    return {};
  }

  Status AddSegment(Pickle::Id dict) {
    const std::uint64_t number = Or0(dict, "device");
    if (number >= kMostDevices) return InvalidInput("device {}", number);
    if (number >= out_.devices.size()) out_.devices.resize(number + 1);
    Device& device = out_.devices[number];
    ORRERY_ASSIGN_OR_RETURN(const std::int64_t total, Bytes(dict, "total_size"));
    device.reserved_end += total;
    if (device.reserved_end > kMostBytes)
      return InvalidInput("'total_size': {} in all", device.reserved_end);
    device.expandable |= Or0(dict, "is_expandable") != 0;
    std::uint64_t address = Or0(dict, "address");
    Pickle::Id blocks = 0;
    if (!p_.Find(dict, "blocks", &blocks)) return InvalidInput("a segment without 'blocks'");
    for (const Pickle::Id block : p_.items(blocks)) {
      ORRERY_ASSIGN_OR_RETURN(const std::int64_t size, Bytes(block, "size"));
      Pickle::Id state = 0;
      const bool live = p_.Find(block, "state", &state) && p_.text(state).starts_with("active");
      if (live) {
        MemorySnapshot::Block b;
        Pickle::Id value = 0;
        b.address = p_.Find(block, "address", &value)
                        ? static_cast<std::uint64_t>(p_.integer(value))
                        : address;
        b.bytes = size;
        if (p_.Find(block, "requested_size", &value)) b.bytes = p_.integer(value);
        if (b.bytes < 0 || b.bytes > size) return InvalidInput("'requested_size' is {}", b.bytes);
        b.stream = Or0(dict, "stream");
        b.where = Place(block);
        device.live.push_back(b);
      }
      address += static_cast<std::uint64_t>(size);
    }
    return {};
  }

  // The innermost frame of Python; of C++ where there is none. Lists of frames are shared.
  std::uint32_t Place(Pickle::Id dict) {
    Pickle::Id frames = 0;
    if (!p_.Find(dict, "frames", &frames)) return 0;
    const auto [known, fresh] = place_of_.try_emplace(frames, 0);
    if (!fresh) return known->second;
    std::string text;
    for (const Pickle::Id frame : p_.items(frames)) {
      Pickle::Id name = 0, file = 0;
      if (!p_.Find(frame, "name", &name) || !p_.Find(frame, "filename", &file)) continue;
      if (!text.empty() && !p_.text(file).ends_with(".py")) continue;
      text = fmt::format("{}:{} {}", p_.text(file), Or0(frame, "line"), p_.text(name));
      if (p_.text(file).ends_with(".py")) break;
    }
    if (text.empty()) return 0;
    const auto [at, added] =
        place_.try_emplace(std::move(text), static_cast<std::uint32_t>(out_.places.size()));
    if (added) out_.places.push_back(at->first);
    place_of_[frames] = at->second;
    return at->second;
  }

  const Pickle& p_;
  MemorySnapshot out_;
  std::unordered_map<Pickle::Id, std::uint32_t> place_of_;
  std::map<std::string, std::uint32_t> place_;
};

}  // namespace

Result<MemorySnapshot> ParseMemorySnapshot(std::string_view bytes, const std::string& file) {
  ORRERY_ASSIGN_OR_RETURN(const Pickle pickle, Pickle::Parse(bytes, file));
  Result<MemorySnapshot> snapshot = SnapshotReader(pickle).Read();
  if (!snapshot.ok()) return std::move(snapshot).TakeStatus().In(Printable(file));
  return snapshot;
}

}  // namespace orrery::formats
