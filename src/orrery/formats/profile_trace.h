// What a profiler saw on one rank: the events of its threads and of its GPUs' streams. Kineto's
// files (formats/kineto.h) and those of Nsight Systems (formats/nsys.h) are read into this; what
// the events mean is the importer's (workload/importers/pytorch).
//
// Times are nanoseconds on the rank's clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::formats {

// Bounds of what is read: a time, and the streams and threads of a rank.
inline constexpr std::int64_t kLongestNs = 4'000'000'000'000'000;  // 46 days
inline constexpr std::size_t kMostTracks = 4096;

struct ProfileTrace {
  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;

  enum class Kind : std::uint8_t {
    kOperator,    // cpu_op
    kAnnotation,  // user_annotation
    kRuntime,     // cuda_runtime, cuda_driver and their kind
    kKernel,
    kCopy,  // gpu_memcpy
    kSet,   // gpu_memset
    kSync,  // cuda_sync: what a stream or the host waited for
  };
  struct Event {
    std::int64_t start_ns = 0, duration_ns = 0;
    std::int64_t correlation = -1;  // between a call of the runtime and what it put on a GPU
    std::int64_t external = -1;     // the operator that made the call
    std::int64_t record = -1;       // "Record function id"
    std::uint64_t offset = 0;       // of the event in the JSON text
    std::uint32_t name = 0;
    std::uint32_t track = 0;
    std::uint32_t detail = kNone;  // of `comms` for communication, of `waits` for kSync
    Kind kind = Kind::kOperator;
    std::int64_t end_ns() const { return start_ns + duration_ns; }
  };
  // A thread, or a stream of a GPU.
  struct Track {
    std::int64_t process = 0, number = 0;  // pid and tid; the GPU and its stream
    bool gpu = false;
  };
  // The arguments of an event that has to do with communication, as far as they are there.
  struct Comm {
    std::string collective, dtype;
    std::string group, description, ranks;  // "Process Group Name", …; ranks as written
    std::int64_t in = -1, out = -1;         // elements
    std::int64_t group_size = -1;
    std::int64_t source = -1, destination = -1;
    std::int64_t sequence = -1;
    std::string in_split, out_split;     // as written
    std::vector<std::int64_t> elements;  // of the operator's arguments that are tensors
    std::vector<std::string> types;      // of all its arguments
    std::vector<std::string> values;     // the same, "" for tensors
    friend bool operator==(const Comm&, const Comm&) = default;
  };
  struct Wait {
    std::int64_t stream = -1;       // that was waited for, of the event's or another GPU stream
    std::int64_t correlation = -1;  // of the record of the event that was waited for
  };
  struct Group {
    std::string name, description;
    std::vector<std::uint32_t> ranks;
    std::int64_t size = -1;
  };

  std::vector<Event> events;  // in the order of their start, longer first
  std::vector<std::string> names;
  std::vector<Track> tracks;
  std::vector<Comm> comms;
  std::vector<Wait> waits;
  std::vector<Group> groups;  // from distributedInfo
  std::vector<std::string> gpus;
  std::string host, backend;
  std::int64_t process = -1;  // pid of the threads
  std::int64_t rank = -1, world = -1;
  std::int64_t base_ns = 0;

  const std::string& name(const Event& e) const { return names[e.name]; }
};

// PyTorch's names of operators and annotations that come with arguments of communication.
inline bool IsCommunication(std::string_view name) {
  return name.starts_with("c10d::") || name.starts_with("_c10d_functional::") ||
         name.starts_with("gloo:") || name.starts_with("nccl:") || name.starts_with("mpi:") ||
         name == "record_param_comms";
}

// By start, longer ones first, others as they stand: what encloses an event comes before it.
void SortEvents(std::vector<ProfileTrace::Event>* events);

}  // namespace orrery::formats
