// Memory snapshots of PyTorch (torch.cuda.memory._dump_snapshot): what its allocator did since
// recording began, and what it held in the end.
//
// The file is a pickle, read as data (pickle.h). Sizes of allocations are those that the program
// asked for, of segments those that the driver gave.
// Source: torch/cuda/memory.py and _memory_viz.py of PyTorch 2.1 to 2.13, read for the format.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"

namespace orrery::formats {

struct MemorySnapshot {
  enum class Action : std::uint8_t {
    kAlloc,
    kFreeRequested,
    kFreeCompleted,
    kSegmentAlloc,
    kSegmentFree,
    kSegmentMap,
    kSegmentUnmap,
    kOutOfMemory,
    kOther,  // marks without an effect
  };
  struct Event {
    Action action = Action::kOther;
    std::uint32_t where = 0;  // into `places`
    std::uint64_t address = 0;
    std::int64_t bytes = 0;
    std::uint64_t stream = 0;
  };
  struct Block {
    std::uint64_t address = 0;
    std::int64_t bytes = 0;  // as asked for
    std::uint64_t stream = 0;
    std::uint32_t where = 0;
  };
  struct Device {
    std::vector<Event> events;
    std::vector<Block> live;        // in the end
    std::int64_t reserved_end = 0;  // segments, in the end
    bool expandable = false;        // some segment can grow
  };

  std::vector<Device> devices;
  std::vector<std::string> places;  // "train.py:12 forward"; the first is "" (not recorded)
};

Result<MemorySnapshot> ParseMemorySnapshot(std::string_view bytes, const std::string& file);

}  // namespace orrery::formats
