// What nccl-tests prints: one row a size. Lines that are not rows (headers, warnings, prefixes of
// launchers such as "[1,0]<stdout>:" or "0: ") are passed over.
//
// A row: size(B) count type [redop] [root] then time(us) algbw(GB/s) busbw(GB/s) #wrong, out of
// place and in place. Source: NVIDIA/nccl-tests, 2.10 and later.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"

namespace orrery::formats {

struct NcclTestsLog {
  struct Row {
    std::int64_t bytes = 0;
    std::string type;                    // "float"
    double time_us = 0, busbw_GBps = 0;  // out of place
    int line = 0;
  };
  std::vector<Row> rows;
  std::int64_t ranks = 0;  // "# Rank" lines; 0: none in the log
};
Result<NcclTestsLog> ParseNcclTestsLog(std::string_view text, const std::string& name);

}  // namespace orrery::formats
