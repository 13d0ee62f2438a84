// What orrery-trace writes: a directory with an index and one training step of each distinct rank
// (docs/formats/trace.md, version 1).
//
// Read as they stand: nothing is left out, nothing is added. Names (of operators, types, kinds)
// stay text; what they mean is the importer's. Errors name file, line and key.
//
// Cost: some 60 MB of JSON lines a second; memory 72 bytes an event beside the file's text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"

namespace orrery::formats {

inline constexpr int kRankTraceVersion = 1;
inline constexpr const char* kTraceIndex = "trace.json";

struct TraceTensor {
  std::string type;  // "bfloat16"
  std::vector<std::int64_t> shape, strides;
  bool on_device = true;
};

// A distinct operator.
struct TraceSignature {
  std::string name, overload;  // "aten::mm"
  std::vector<TraceTensor> in, out;
  bool causal = false;  // its argument is_causal
  bool kernel = true;
  std::int64_t read = 0, written = 0;  // bytes
  std::int64_t flops = 0;
};

struct TraceGroup {
  std::string name, description;
  std::vector<std::uint32_t> ranks;
};

struct TraceComm {
  std::string kind, op, dtype, reduce;
  std::size_t group = 0;
  std::int64_t send = 0, recv = 0;  // bytes of this rank's call, in and out
  std::vector<std::int64_t> send_each, recv_each;
  bool coalesced = false;
  bool blocking = false;  // the program waits by the call itself
  std::int64_t peer = -1;
  std::int64_t tag = 0;
};

// What a storage holds. kLibrary: a workspace of cuBLAS, which it keeps.
enum class TraceStorage : std::uint8_t {
  kOther,
  kParameter,
  kGradient,
  kOptimizer,
  kBuffer,
  kLibrary
};

struct TraceEvent {
  enum class Kind : std::uint8_t {
    kOp,
    kComm,
    kCallBegin,
    kCallEnd,
    kWait,
    kRecord,
    kAwait,
    kSync,
    kResident,
    kAlloc,
    kResize,
    kFree,
    kUse,
    kRouting,
    kMark,
  };
  enum class Pass : std::uint8_t {
    kNone,
    kForward,
    kBackward,
    kBackwardInput,
    kBackwardWeight,
    kRecompute,
    kOptimizer
  };
  static constexpr std::int32_t kHost = -1;    // in place of a stream: the host waits
  static constexpr std::int32_t kDevice = -2;  // of kSync: for every stream

  Kind kind = Kind::kOp;
  Pass pass = Pass::kNone;
  TraceStorage what = TraceStorage::kOther;  // kResident, kAlloc
  bool on_device = true;                     // of storages: of the GPU, not of the host
  std::int32_t stream = 0;
  std::int32_t module = -1, micro_batch = -1;
  std::uint32_t line = 0;   // of the file
  std::int32_t comm = -1;   // kComm: in comms
  std::int64_t number = 0;  // kOp: signature; a comm's, call's, event's or storage's number;
                            // kCallEnd: of the work, or -1
  std::int64_t bytes = 0;   // of storages
  // kOp: measured time of its kernels on RankTrace::gpu; -1: not measured.
  std::int64_t nanoseconds = -1;
};

struct RankTrace {
  std::string file;
  std::uint32_t rank = 0, world_size = 0;
  std::string torch;   // its version
  std::string device;  // whose memory is counted
  std::string gpu;     // that operators were measured on, as its driver names it; may be empty
  std::vector<TraceSignature> signatures;
  std::vector<TraceGroup> groups;
  std::vector<std::string> modules;  // paths
  std::vector<TraceComm> comms;      // of the step
  std::vector<TraceEvent> setup;     // before the step: storages only
  std::vector<TraceEvent> step;
  std::vector<std::string> assumed;  // all different
  std::int64_t peak_bytes = 0;       // most bytes live at once in the step
};

// A file of the index and the ranks that it stands for.
struct TraceProgram {
  std::uint32_t rank = 0;
  std::string file;
  std::vector<std::uint32_t> ranks;
  // By the file's groups: dimensions of the mesh that each spans. Empty: no mesh, or not told.
  std::vector<std::vector<std::string>> groups;
  RankTrace trace;
};

struct TraceDirectory {
  struct Dimension {
    std::string name;
    std::uint32_t size = 1;
  };
  std::uint32_t world_size = 0;
  std::vector<Dimension> mesh;  // outermost first; empty: not told
  std::vector<TraceProgram> programs;
  std::vector<std::string> assumed;  // of ranks that stand for others
};

// Reads trace.json and every file that it names, each of at most `limit_bytes` unpacked.
Result<TraceDirectory> ReadTraceDirectory(const std::string& folder, std::int64_t limit_bytes);

// One rank's lines, unpacked.
Result<RankTrace> ParseRankTrace(std::string_view text, const std::string& file);

}  // namespace orrery::formats
