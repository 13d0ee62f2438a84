// What nccl-tests prints: NCCL's version (its own line, or "nccl-library=22809"), a line a rank,
// the test's name where the output or a launch line says it, one row a size. All other lines
// (headers, warnings) are passed over, and so are prefixes of launchers such as "[1,0]<stdout>:" or
// "0: ".
//
// A row: size(B) count type [redop] [root] then time(us) algbw(GB/s) busbw(GB/s) #wrong, out of
// place and in place. The rows alone, as people paste them, are a log, too, with bars between the
// columns or without. Source: NVIDIA/nccl-tests, 2.10 and later.
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
    std::string type;   // "float"
    std::string redop;  // "sum"; "none" where nothing is reduced; empty: not said
    double time_us = 0, algbw_GBps = 0, busbw_GBps = 0;  // out of place; time_us > 0
    int line = 0;
  };
  struct Rank {
    std::string host, gpu;     // "A100-SXM4-80GB": without the maker, words joined by '-'
    std::int64_t number = -1;  // -1: none stands there
    int line = 0;
  };
  std::vector<Row> rows;
  std::vector<Rank> ranks;    // none: the log does not list them
  std::string version, test;  // "2.21.5", "all_reduce"; empty: not said
};
// Errors name the log and the line: a row whose time is no positive number, a rank without host or
// device, or listed twice (the output of two runs); or say that there is no row at all.
Result<NcclTestsLog> ParseNcclTestsLog(std::string_view text, const std::string& name);

// Whether the log may be of this test ("all_reduce") on so many ranks, as far as its rows tell:
// what they reduce by, and how many times the algorithm's bandwidth the bus bandwidth is
// (nccl-tests, PERFORMANCE.md). Errors name the row, what it is of, and the remedy.
Status CheckNcclTestsLog(const NcclTestsLog& log, std::string_view test, std::size_t ranks,
                         const std::string& name);

}  // namespace orrery::formats
