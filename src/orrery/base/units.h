// Quantities with units: `400Gb/s`, `2.5us`, `80GiB`, `1%`, or a bare number in the unit that the
// key's schema names.
//
// Times, bytes and bandwidths become whole picoseconds, bytes and bytes per second by exact decimal
// arithmetic, so that a value means the same under every compiler and locale; fractions and FLOP/s
// become doubles. Prefixes k, M, G, T, P are powers of 1,000; Ki, Mi, Gi, Ti powers of 1,024. A
// lower-case b is a bit, a capital B a byte. A space may stand before the unit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "orrery/base/status.h"

namespace orrery {

enum class Dimension : std::uint8_t { kNone, kTime, kBytes, kBandwidth, kFraction, kFlops };
std::string_view Name(Dimension dimension);
// "ps, ns, us, ms, s, min, h": what an error lists.
std::string UnitsOf(Dimension dimension);

// Time in ps, bytes in bytes, bandwidth in bytes/s. Refused: another dimension's unit, a value that
// is no whole number of these, beyond 2^62, or negative. REQUIRES: one of those three dimensions,
// and `bare_unit` one of its units, or empty when a bare number is refused too.
Result<std::int64_t> ParseWhole(std::string_view text, Dimension dimension,
                                std::string_view bare_unit);

// Fraction in 1, FLOP/s in FLOP/s. Finite, not negative. REQUIRES: kFraction, kFlops or kNone.
Result<double> ParseReal(std::string_view text, Dimension dimension, std::string_view bare_unit);

// A whole number without unit, exact in 64 bits: "8", "-3", "40_000_000" and "1e6" too.
Result<std::int64_t> ParseInteger(std::string_view text);

// How many base units (ps, bytes, bytes/s, 1, FLOP/s) one `unit` is. REQUIRES: a known unit.
double ScaleOf(Dimension dimension, std::string_view unit);

}  // namespace orrery
