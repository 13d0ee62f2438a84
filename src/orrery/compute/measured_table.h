// The table of measured kernels: built from CSV files into one SQLite database, read back into
// samples.
//
// The CSV files under data/measured are the source; the database is made from them by the build or
// by a user and never committed. Tables `gemm`, `attention` and `memory_bound` have the columns of
// the CSV behind `gpu` and `source`; `source` lists the files with their headers as text; `meta`
// the version.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/compute/measured_lookup.h"

namespace orrery::compute {

inline constexpr int kDatabaseVersion = 1;

struct BuildReport {
  int files = 0, skipped = 0;  // skipped: tables that compute does not use
  std::int64_t rows = 0;
};
// Writes `out` anew, through a temporary file beside it. The same measurement of the same GPU in
// two files is an error that names both. Order of the paths does not matter.
Result<BuildReport> BuildDatabase(std::vector<std::string> csv_paths, const std::string& out);

// All samples of one GPU (DeviceSpec::table), unsorted; none if the database does not know it.
Result<std::vector<Sample>> ReadSamples(const std::string& database, std::string_view gpu);

// What CSV files hold, GPU by GPU, without a database on disk. A GPU whose rows are of kernels that
// the graph does not have comes with no sample. Errors as BuildDatabase's.
struct GpuSamples {
  std::string gpu, path;  // the first file of that GPU
  std::vector<Sample> samples;
};
Result<std::vector<GpuSamples>> ReadSamples(std::vector<std::string> csv_paths);

}  // namespace orrery::compute
