// A streaming 64-bit content hash for cache keys and digests. Not for security.
// Platform-independent.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "orrery/base/rng.h"

namespace orrery {

class Hasher {
 public:
  template <class T>
  requires(std::is_integral_v<T> || std::is_enum_v<T>) constexpr Hasher& Add(T value) {
    state_ = HashCombine(state_, static_cast<std::uint64_t>(value));
    return *this;
  }
  constexpr Hasher& Add(double value) { return Add(std::bit_cast<std::uint64_t>(value)); }
  constexpr Hasher& Add(std::string_view text) {
    for (char c : text) Add(static_cast<unsigned char>(c));
    return Add(text.size());
  }
  constexpr std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0x243f6a8885a308d3ULL;
};

}  // namespace orrery
