// SPC traces: block storage requests, one a line, as the Storage Performance Council defines them
// and the UMass Trace Repository keeps them (Financial1.spc, WebSearch1.spc):
//     ASU,LBA,SIZE,OPCODE,TIMESTAMP[,more fields]
//     0,303567,3584,w,0.000000
// ASU: application storage unit, a number from 0; LBA: in blocks of the unit; SIZE: bytes; OPCODE:
// r or w, large or small; TIMESTAMP: seconds since the trace began, up to 12 digits behind the
// point. White space around fields, empty lines and further fields are passed over.
//
// Source: Storage Performance Council, "SPC Trace File Format Specification", revision 1.0.1.
//
// Cost: O(bytes); 32 bytes a request.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/base/time.h"

namespace orrery::formats {

struct SpcRequest {
  SimTime at = 0;        // since the trace began
  std::int64_t lba = 0;  // blocks
  std::int64_t bytes = 0;
  std::uint32_t asu = 0;
  bool write = false;
};

inline constexpr std::uint32_t kMostSpcUnits = 1 << 20;
inline constexpr std::int64_t kMostSpcBytes = std::int64_t{1} << 32;  // of a request
inline constexpr std::int64_t kMostSpcBlocks = std::int64_t{1} << 42;

// Whether a file may be one, by its first line that is not empty.
bool IsSpc(std::string_view start);

// The first `most` requests, in the file's order. Errors name file, line, field and value; a trace
// without a request is one.
Result<std::vector<SpcRequest>> ParseSpc(
    std::string_view text, const std::string& name,
    std::size_t most = std::numeric_limits<std::size_t>::max());

}  // namespace orrery::formats
