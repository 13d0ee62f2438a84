#include "orrery/base/units.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "orrery/base/int128.h"
#include "orrery/base/text.h"

namespace orrery {
namespace {

// One unit is numerator / denominator base units.
struct Unit {
  Dimension dimension;
  std::string_view name;
  std::int64_t numerator;
  std::int64_t denominator = 1;
  bool alias = false;  // understood, not listed
};

constexpr std::int64_t kKi = 1024, kMi = kKi * kKi, kGi = kMi * kKi, kTi = kGi * kKi;
constexpr std::int64_t kK = 1000, kM = kK * kK, kG = kM * kK, kT = kG * kK, kP = kT * kK;

constexpr auto kUnits = std::to_array<Unit>({
    {Dimension::kTime, "ps", 1},
    {Dimension::kTime, "ns", kK},
    {Dimension::kTime, "us", kM},
    {Dimension::kTime, "µs", kM, 1, true},
    {Dimension::kTime, "ms", kG},
    {Dimension::kTime, "s", kT},
    {Dimension::kTime, "min", 60 * kT},
    {Dimension::kTime, "h", 3600 * kT},
    {Dimension::kBytes, "B", 1},
    {Dimension::kBytes, "kB", kK},
    {Dimension::kBytes, "KB", kK, 1, true},
    {Dimension::kBytes, "MB", kM},
    {Dimension::kBytes, "GB", kG},
    {Dimension::kBytes, "TB", kT},
    {Dimension::kBytes, "KiB", kKi},
    {Dimension::kBytes, "MiB", kMi},
    {Dimension::kBytes, "GiB", kGi},
    {Dimension::kBytes, "TiB", kTi},
    {Dimension::kBandwidth, "b/s", 1, 8},
    {Dimension::kBandwidth, "kb/s", kK, 8},
    {Dimension::kBandwidth, "Mb/s", kM, 8},
    {Dimension::kBandwidth, "Gb/s", kG, 8},
    {Dimension::kBandwidth, "Tb/s", kT, 8},
    {Dimension::kBandwidth, "Mbps", kM, 8, true},
    {Dimension::kBandwidth, "Gbps", kG, 8, true},
    {Dimension::kBandwidth, "Tbps", kT, 8, true},
    {Dimension::kBandwidth, "B/s", 1},
    {Dimension::kBandwidth, "kB/s", kK},
    {Dimension::kBandwidth, "MB/s", kM},
    {Dimension::kBandwidth, "GB/s", kG},
    {Dimension::kBandwidth, "TB/s", kT},
    {Dimension::kBandwidth, "KiB/s", kKi},
    {Dimension::kBandwidth, "MiB/s", kMi},
    {Dimension::kBandwidth, "GiB/s", kGi},
    {Dimension::kBandwidth, "TiB/s", kTi},
    {Dimension::kFraction, "%", 1, 100},
    {Dimension::kFraction, "", 1, 1, true},
    {Dimension::kFlops, "FLOP/s", 1},
    {Dimension::kFlops, "GFLOP/s", kG},
    {Dimension::kFlops, "TFLOP/s", kT},
    {Dimension::kFlops, "PFLOP/s", kP},
    {Dimension::kFlops, "TFLOPS", kT, 1, true},
    {Dimension::kFlops, "PFLOPS", kP, 1, true},
});

const Unit* FindUnit(Dimension dimension, std::string_view name) {
  for (const Unit& unit : kUnits) {
    if (unit.dimension == dimension && unit.name == name) return &unit;
  }
  return nullptr;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// digits · 10^exponent, exactly as written.
struct Decimal {
  bool negative = false;
  Uint128 digits = 0;
  int exponent = 0;
  std::string_view number;  // the part of the text that is the number
  std::string_view unit;    // and what follows it
};

constexpr int kMaxDigits = 30;

// Reads the exponent "e-3" at text[at], if there is one; returns where it ends.
std::size_t ReadExponent(std::string_view text, std::size_t at, int* exponent) {
  if (at >= text.size() || (text[at] != 'e' && text[at] != 'E')) return at;
  std::size_t i = at + 1;
  bool negative = false;
  if (i < text.size() && (text[i] == '+' || text[i] == '-')) negative = text[i++] == '-';
  if (i >= text.size() || !IsDigit(text[i])) return at;
  int value = 0;
  for (; i < text.size() && IsDigit(text[i]); ++i)
    value = std::min(value * 10 + (text[i] - '0'), 9999);
  *exponent += negative ? -value : value;
  return i;
}

std::optional<Decimal> ReadDecimal(std::string_view text) {
  text = Trimmed(text, " ");
  Decimal result;
  std::size_t i = 0;
  if (i < text.size() && (text[i] == '+' || text[i] == '-')) result.negative = text[i++] == '-';
  bool any = false, point = false;
  int kept = 0;
  for (; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '.' && !point) {
      point = true;
    } else if (c == '_' && any && i + 1 < text.size() && IsDigit(text[i + 1])) {
      continue;
    } else if (IsDigit(c)) {
      any = true;
      if (kept >= kMaxDigits) return std::nullopt;
      result.digits = result.digits * 10 + static_cast<unsigned>(c - '0');
      if (result.digits != 0) ++kept;
      if (point) --result.exponent;
    } else {
      break;
    }
  }
  if (!any) return std::nullopt;
  i = ReadExponent(text, i, &result.exponent);
  result.number = text.substr(0, i);
  result.unit = Trimmed(text.substr(i), " ");
  return result;
}

// Why `unit` does not fit: another dimension's unit is named as such.
Status WrongUnit(std::string_view text, std::string_view unit, Dimension wanted) {
  for (const Unit& other : kUnits) {
    if (other.name == unit && other.dimension != wanted && !unit.empty()) {
      return InvalidInput("'{}' is {}, but this key takes {}; units: {}", Printable(text),
                          Name(other.dimension), Name(wanted), UnitsOf(wanted));
    }
  }
  return InvalidInput("'{}' has the unknown unit '{}'; units of {}: {}", Printable(text),
                      Printable(unit), Name(wanted), UnitsOf(wanted));
}

Status NotANumber(std::string_view text, Dimension dimension) {
  if (dimension == Dimension::kNone) return InvalidInput("'{}' is not a number", Printable(text));
  return InvalidInput("'{}' is not {}; write a number and a unit: {}", Printable(text),
                      Name(dimension), UnitsOf(dimension));
}

constexpr Uint128 kLargest = static_cast<Uint128>(1) << 62;

enum class WholeError { kNone, kFraction, kTooLarge };
// digits · 10^exponent · numerator / denominator as a whole number.
WholeError ToWhole(Decimal value, std::int64_t numerator, std::int64_t denominator,
                   std::int64_t* whole) {
  while (value.digits != 0 && value.exponent < 0 && value.digits % 10 == 0) {
    value.digits /= 10;
    ++value.exponent;
  }
  if (value.digits == 0) {
    *whole = 0;
    return WholeError::kNone;
  }
  // Powers of ten below are taken from the numerator, which has many.
  Uint128 up = static_cast<Uint128>(numerator);
  Uint128 down = static_cast<Uint128>(denominator);
  for (; value.exponent < 0; ++value.exponent) {
    if (up % 10 == 0) {
      up /= 10;
    } else if (down > kLargest) {
      return WholeError::kFraction;
    } else {
      down *= 10;
    }
  }
  Uint128 product = value.digits;
  for (; value.exponent > 0; --value.exponent) {
    if (product > kLargest) return WholeError::kTooLarge;
    product *= 10;
  }
  if (product > (~static_cast<Uint128>(0)) / up) return WholeError::kTooLarge;
  product *= up;
  if (product % down != 0) return WholeError::kFraction;
  product /= down;
  if (product > kLargest) return WholeError::kTooLarge;
  *whole = static_cast<std::int64_t>(product);
  return WholeError::kNone;
}

}  // namespace

std::string_view Name(Dimension dimension) {
  switch (dimension) {
    case Dimension::kNone:
      return "a number";
    case Dimension::kTime:
      return "a time";
    case Dimension::kBytes:
      return "a size in bytes";
    case Dimension::kBandwidth:
      return "a bandwidth";
    case Dimension::kFraction:
      return "a fraction";
    case Dimension::kFlops:
      return "a compute rate";
  }
  return "a number";
}

std::string UnitsOf(Dimension dimension) {
  if (dimension == Dimension::kFraction) return "% (or a bare number: 0.01 is 1%)";
  std::string list;
  for (const Unit& unit : kUnits) {
    if (unit.dimension != dimension || unit.alias) continue;
    if (!list.empty()) list += ", ";
    list += unit.name;
  }
  return list;
}

double ScaleOf(Dimension dimension, std::string_view unit) {
  if (dimension == Dimension::kNone) return 1;
  const Unit* found = FindUnit(dimension, unit);
  ORRERY_CHECK(found != nullptr, "a schema names a unit that base/units knows");
  return static_cast<double>(found->numerator) / static_cast<double>(found->denominator);
}

Result<std::int64_t> ParseWhole(std::string_view text, Dimension dimension,
                                std::string_view bare_unit) {
  const std::optional<Decimal> value = ReadDecimal(text);
  if (!value) return NotANumber(text, dimension);
  std::string_view name = value->unit;
  if (name.empty()) {
    if (bare_unit.empty()) return NotANumber(text, dimension);
    name = bare_unit;
  }
  const Unit* unit = FindUnit(dimension, name);
  if (unit == nullptr) return WrongUnit(text, name, dimension);
  if (value->negative && value->digits != 0) {
    return InvalidInput("'{}' is negative", Printable(text));
  }
  std::int64_t whole = 0;
  switch (ToWhole(*value, unit->numerator, unit->denominator, &whole)) {
    case WholeError::kNone:
      return whole;
    case WholeError::kTooLarge:
      return InvalidInput("'{}' is too large", Printable(text));
    case WholeError::kFraction:
      break;
  }
  constexpr std::string_view kBase[] = {"", "picoseconds", "bytes", "bytes per second"};
  return InvalidInput("'{}' is not a whole number of {}", Printable(text),
                      kBase[static_cast<std::size_t>(dimension)]);
}

Result<double> ParseReal(std::string_view text, Dimension dimension, std::string_view bare_unit) {
  const std::optional<Decimal> value = ReadDecimal(text);
  if (!value) return NotANumber(text, dimension);
  std::string_view name = value->unit.empty() ? bare_unit : value->unit;
  double scale = 1;
  if (dimension != Dimension::kNone || !name.empty()) {
    const Unit* unit = FindUnit(dimension, name);
    if (unit == nullptr) {
      if (dimension == Dimension::kNone) {
        return InvalidInput("'{}' has the unit '{}', but this key takes a plain number",
                            Printable(text), Printable(name));
      }
      return WrongUnit(text, name, dimension);
    }
    scale = static_cast<double>(unit->numerator) / static_cast<double>(unit->denominator);
  }
  if (value->negative && value->digits != 0) {
    return InvalidInput("'{}' is negative", Printable(text));
  }
  std::string digits;
  for (char c : value->number) {
    if (c != '_' && c != '+') digits += c;
  }
  double parsed = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), parsed);
  if (error != std::errc() || !std::isfinite(parsed * scale)) {
    return InvalidInput("'{}' is out of range", Printable(text));
  }
  // 1% is 0.01 to the last bit: divide where the unit is a fraction.
  return scale < 1 ? parsed / std::round(1 / scale) : parsed * scale;
}

Result<std::int64_t> ParseInteger(std::string_view text) {
  const std::optional<Decimal> value = ReadDecimal(text);
  if (!value || !value->unit.empty()) {
    return InvalidInput("'{}' is not a whole number", Printable(text));
  }
  std::int64_t whole = 0;
  switch (ToWhole(*value, 1, 1, &whole)) {
    case WholeError::kNone:
      return value->negative ? -whole : whole;
    case WholeError::kTooLarge:
      return InvalidInput("'{}' is too large", Printable(text));
    case WholeError::kFraction:
      break;
  }
  return InvalidInput("'{}' is not a whole number", Printable(text));
}

}  // namespace orrery
