// Counter-based random numbers: a value is a pure function of its keys, so no draw depends on the
// order of events or on the number of threads. Mixing is SplitMix64's finaliser (Steele et al.
// 2014).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "orrery/base/int128.h"

namespace orrery {

constexpr std::uint64_t Mix64(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// Order-dependent combination of two 64-bit values.
constexpr std::uint64_t HashCombine(std::uint64_t seed, std::uint64_t value) {
  return Mix64(seed * 0x9e3779b97f4a7c15ULL + value + 0x632be59bd9b4e019ULL);
}

// Uniform in [0, 1) with 53 bits.
constexpr double ToUnit(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1.0p-53; }

// A standard-normal-like value from one 64-bit draw: the sum of four 16-bit uniforms, centred and
// scaled to unit variance (each uniform has variance 1/12). Range ±2√3; no libm.
constexpr double SumOfFourUniforms(std::uint64_t bits) {
  const double sum = static_cast<double>((bits & 0xFFFF) + ((bits >> 16) & 0xFFFF) +
                                         ((bits >> 32) & 0xFFFF) + (bits >> 48)) +
                     2.0;
  return (sum * 0x1.0p-16 - 2.0) * 1.7320508075688772;
}

// A sequence of draws for placement and tests: counter under a key.
class CounterRng {
 public:
  constexpr explicit CounterRng(std::uint64_t key) : key_(key) {}
  constexpr std::uint64_t Next() { return HashCombine(key_, counter_++); }
  // Uniform in [0, n). REQUIRES: n > 0. Bias below n / 2^64.
  constexpr std::uint64_t Below(std::uint64_t n) {
    return static_cast<std::uint64_t>((static_cast<Uint128>(Next()) * n) >> 64);
  }
  constexpr double Unit() { return ToUnit(Next()); }
  // Fisher-Yates, from the last on.
  template <typename Value>
  constexpr void Shuffle(std::vector<Value>* values) {
    for (std::size_t i = values->size(); i > 1; --i) {
      std::swap((*values)[i - 1], (*values)[Below(i)]);
    }
  }

 private:
  std::uint64_t key_;
  std::uint64_t counter_ = 0;
};

}  // namespace orrery
