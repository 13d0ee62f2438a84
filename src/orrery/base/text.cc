#include "orrery/base/text.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace orrery {
namespace {

// Length of the UTF-8 sequence at text[at] and its code point; length 0 when it is not valid.
struct Sequence {
  std::size_t length = 0;
  std::uint32_t code = 0;
};

Sequence Decode(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  if (first < 0x80) return {1, first};
  std::size_t length = 0;
  std::uint32_t code = 0, lowest = 0;
  if ((first & 0xE0) == 0xC0) {
    length = 2, code = first & 0x1Fu, lowest = 0x80;
  } else if ((first & 0xF0) == 0xE0) {
    length = 3, code = first & 0x0Fu, lowest = 0x800;
  } else if ((first & 0xF8) == 0xF0) {
    length = 4, code = first & 0x07u, lowest = 0x10000;
  } else {
    return {};
  }
  if (at + length > text.size()) return {};
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return {};
    code = code << 6 | (byte(at + i) & 0x3Fu);
  }
  if (code < lowest || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return {};
  return {length, code};
}

// Characters that move the cursor or reorder what is shown.
bool Hidden(std::uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || (code >= 0x200B && code <= 0x200F) ||
         (code >= 0x2028 && code <= 0x202E) || (code >= 0x2060 && code <= 0x206F) || code == 0xFEFF;
}

}  // namespace

std::size_t FindInvalidUtf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const Sequence sequence = Decode(text, at);
    if (sequence.length == 0) return at;
    at += sequence.length;
  }
  return std::string_view::npos;
}

std::string Printable(std::string_view text, std::size_t limit) {
  std::string safe;
  for (std::size_t at = 0; at < text.size();) {
    if (safe.size() >= limit) return safe + "…";
    const Sequence sequence = Decode(text, at);
    if (sequence.length == 0) {
      safe += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[at]));
      ++at;
      continue;
    }
    if (!Hidden(sequence.code)) {
      safe += text.substr(at, sequence.length);
    } else if (sequence.code < 0x100) {
      safe += fmt::format("\\x{:02x}", sequence.code);
    } else {
      safe += fmt::format("\\u{:04x}", sequence.code);
    }
    at += sequence.length;
  }
  return safe;
}

std::string HumanSeconds(double seconds) {
  struct Step {
    double scale;
    std::string_view unit;
  };
  constexpr std::array<Step, 5> kSteps = {Step{1, "s"}, Step{1e-3, "ms"}, Step{1e-6, "us"},
                                          Step{1e-9, "ns"}, Step{1e-12, "ps"}};
  if (seconds == 0) return "0 s";
  for (const Step& step : kSteps) {
    const double value = seconds / step.scale;
    if (std::abs(value) < 0.9995 && step.scale > 1e-12) continue;
    const int digits = std::abs(value) >= 99.95 ? 1 : std::abs(value) >= 9.995 ? 2 : 3;
    return fmt::format("{:.{}f} {}", value, digits, step.unit);
  }
  return "0 s";
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

std::string_view Trimmed(std::string_view text, std::string_view blank) {
  const std::size_t first = text.find_first_not_of(blank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blank) - first + 1);
}

std::string HumanTime(SimTime ps) { return HumanSeconds(ToSeconds(ps)); }

std::string HumanBytes(std::int64_t bytes) {
  constexpr std::array<std::string_view, 6> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (std::abs(value) >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  if (unit == 0) return fmt::format("{} B", bytes);
  return fmt::format("{:.{}f} {}", value, std::abs(value) >= 99.95 ? 0 : 1, kUnits[unit]);
}

std::string HumanCount(std::int64_t count) {
  const std::string digits = std::to_string(count);
  const std::size_t sign = count < 0 ? 1 : 0;
  std::string grouped;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > sign && (digits.size() - i) % 3 == 0) grouped += ',';
    grouped += digits[i];
  }
  return grouped;
}

std::string HumanParameters(std::int64_t count) {
  const auto value = static_cast<double>(count);
  if (value >= 0.95e9) return fmt::format("{:.1f}B", value / 1e9);
  if (value >= 0.95e6) return fmt::format("{:.1f}M", value / 1e6);
  return fmt::format("{:.1f}K", value / 1e3);
}

std::size_t DisplayWidth(std::string_view text) {
  std::size_t width = 0;
  for (const char c : text) {
    if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) ++width;
  }
  return width;
}

}  // namespace orrery
