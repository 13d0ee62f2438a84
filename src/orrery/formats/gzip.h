// gzip files (RFC 1952) through zlib, bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "orrery/base/status.h"

namespace orrery::formats {

constexpr bool IsGzip(std::string_view bytes) { return bytes.starts_with("\x1f\x8b"); }

// The content of all members. More than `limit_bytes` is refused after inflating that many; `name`
// stands for the file in errors.
Result<std::string> Gunzip(std::string_view bytes, std::int64_t limit_bytes,
                           const std::string& name);

// The first `most` bytes of the first member, at most 1 MiB, or as many as the beginning of a file
// holds; empty where it is none.
std::string GunzipStart(std::string_view start, std::size_t most);

}  // namespace orrery::formats
