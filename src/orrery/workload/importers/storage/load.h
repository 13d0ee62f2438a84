// Block storage requests, from a trace or drawn.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/base/time.h"
#include "orrery/formats/spc.h"
#include "orrery/workload/importers/storage/settings.h"

namespace orrery::workload {

struct StorageRequest {
  SimTime at = 0;  // of an open loop, since the first request
  std::int64_t offset = 0, bytes = 0;
  std::uint32_t client = 0, disk = 0;
  bool write = false;
};

struct StorageLoad {
  std::vector<StorageRequest> requests;  // in the order of their times
  std::uint32_t clients = 1;
  std::vector<std::string> warnings;
};

// Disks are numbered by ASU from 0, without those that have no request; disk d belongs to client
// d mod clients. Requests out of order of time are put into it, with a warning.
Result<StorageLoad> LoadOfTrace(const std::vector<formats::SpcRequest>& trace,
                                const StorageLoadSettings& settings);

// Clients take turns in a closed loop and are drawn in an open one; each has a disk. Addresses are
// multiples of the request's size, as far as the disk's end lets them. `slice`: what zipf ranks.
StorageLoad DrawLoad(const StorageLoadSettings& settings, std::int64_t slice);

}  // namespace orrery::workload
