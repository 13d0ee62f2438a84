// Reports of Nsight Systems exported to SQLite (`nsys export --type sqlite`), as profiles: one for
// each process that used a GPU.
//
// Read: kernels, copies, settings and synchronisation of CUPTI, calls of the CUDA runtime, NVTX
// ranges (as annotations), names, processes. Tables and columns that an export lacks are passed
// over where something can be said without them: the schema changes from release to release.
// Times are ns. What NCCL communicates is not in a plain report: the names of kernels say which
// collective, the texts of a patched NCCL (ATLAHS') or a log beside it (formats/nccl_calls.h) how
// much.
//
// Files come from strangers: opened read-only and immutable, schema untrusted, defensive, every
// statement a SELECT on a listed table that is no view, bounded in time and rows. Errors name file
// and table.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/formats/profile_trace.h"

namespace orrery::formats {

constexpr bool IsSqlite(std::string_view start) {
  return start.starts_with(std::string_view("SQLite format 3\0", 16));
}

struct NsysLimits {
  std::int64_t rows = 200'000'000;       // of all tables
  std::int64_t steps = 100'000'000'000;  // of SQLite's machine
  std::int64_t file_bytes = std::int64_t{64} << 30;
};

// In the order of their processes' numbers; at least one.
Result<std::vector<ProfileTrace>> ReadNsys(const std::string& path, const NsysLimits& limits = {});

}  // namespace orrery::formats
