// Simulated time. Integer picoseconds in 64 bits: a run of 10^6 s is 10^18 ps and does not wrap.
//
// Durations computed in double are rounded to whole picoseconds in exactly one place (RoundToPs),
// so that the same input gives the same answer under any compiler and build type.
#pragma once

#include <cstdint>
#include <limits>

#include "orrery/base/check.h"
#include "orrery/base/int128.h"

namespace orrery {

using SimTime = std::int64_t;  // picoseconds

inline constexpr SimTime kNanosecond = 1'000;
inline constexpr SimTime kMicrosecond = 1'000'000;
inline constexpr SimTime kMillisecond = 1'000'000'000;
inline constexpr SimTime kSecond = 1'000'000'000'000;
inline constexpr SimTime kNever = std::numeric_limits<SimTime>::max();
// Longest duration that arithmetic here accepts: sums of two stay far from the end of the type.
inline constexpr SimTime kMaxDuration = 4'000'000 * kSecond;

// Rounds to nearest, ties away from zero; at most kMaxDuration, so that a rate of next to nothing
// ends there, where whoever prices refuses it (engine/prices.h). REQUIRES: 0 <= ps.
constexpr SimTime RoundToPs(double ps) {
  ORRERY_CHECK(ps >= 0, "duration out of range");
  return ps < static_cast<double>(kMaxDuration) ? static_cast<SimTime>(ps + 0.5) : kMaxDuration;
}

constexpr SimTime FromSeconds(double seconds) { return RoundToPs(seconds * 1e12); }
constexpr double ToSeconds(SimTime ps) { return static_cast<double>(ps) * 1e-12; }

// Time to move `bytes` at `bandwidth_Bps`, rounded up to a whole picosecond; exact in 128 bits, at
// most kMaxDuration.
// REQUIRES: bytes >= 0, bandwidth_Bps > 0.
constexpr SimTime TransferTime(std::int64_t bytes, std::int64_t bandwidth_Bps) {
  ORRERY_CHECK(bytes >= 0 && bandwidth_Bps > 0, "transfer needs bytes >= 0 and a bandwidth > 0");
  const auto work = static_cast<Uint128>(bytes) * static_cast<Uint128>(kSecond);
  const auto rate = static_cast<Uint128>(bandwidth_Bps);
  const Uint128 time = (work + rate - 1) / rate;
  return time < static_cast<Uint128>(kMaxDuration) ? static_cast<SimTime>(time) : kMaxDuration;
}

}  // namespace orrery
