// What a storage run may be told: keys below `storage` (docs/formats/storage.md, with the source of
// each default).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orrery/base/schema.h"
#include "orrery/base/status.h"
#include "orrery/base/time.h"
#include "orrery/formats/section.h"

namespace orrery::workload {

inline constexpr std::int64_t kMostStorageRequests = 20'000'000;

const OptionTable& StorageOptions();

// Requests, before it is known who serves them.
struct StorageLoadSettings {
  enum class Addresses : std::uint8_t { kUniform, kZipf, kSequential };
  std::int64_t requests = 0;  // of a trace: at most; 0: all
  int clients = 0;            // 0: as many as a trace has disks
  std::int64_t block = 512;   // bytes of a trace's LBA
  double time_scale = 1;
  // Synthetic loads.
  double reads = 0;
  std::vector<std::pair<std::int64_t, double>> sizes;  // bytes and cumulative share, up to 1
  Addresses addresses = Addresses::kUniform;
  double zipf = 0;
  std::int64_t disk = 0;
  bool open = true, poisson = true;
  double rate = 0;  // requests a second, of all clients
  std::uint64_t seed = 1;
};

// The service and how it is used.
struct DirectDriveSettings {
  enum class Lookup : std::uint8_t { kAlways, kFirst, kNever };
  bool open = true, mount = false, spread = false;
  int depth = 1;
  SimTime think = 0;
  int coordinators = 1, stores = 1, replicas = 1, metadata = 1, gateways = 1, balancers = 1;
  Lookup lookup = Lookup::kAlways;
  std::int64_t slice = 1, request_size = 0, reply_size = 0, collect_after = 0;
  std::int64_t read_Bps = 1, write_Bps = 1, journal_Bps = 1;
  SimTime lookup_time = 0, read_latency = 0, write_latency = 0, collect_time = 0;
};

struct StorageSettings {
  StorageLoadSettings load;
  DirectDriveSettings service;
};
// `trace`: requests come from one. Keys that would have no effect are errors, with their place.
Result<StorageSettings> ReadStorageSettings(const formats::Section& section, bool trace);

// A file of these keys: YAML whose only key is `storage`. `name`: of the file, for errors.
Result<formats::Section> ParseStorage(std::string_view text, const std::string& name);

}  // namespace orrery::workload
