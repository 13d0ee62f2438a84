// A Set: one value for each constant of constants.h. It travels with the device
// (cluster::DeviceSpec), so two runs with different sets stand side by side. Knows no constant by
// name, so that a new one does not rebuild what only carries sets.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace orrery::constants {

inline constexpr std::size_t kMost = 64;  // constants; those of the table are fewer

class Set {
 public:
  Set();                // the a-priori values
  static Set Fitted();  // what job files and tables are predicted with
  // As Fitted, but refitted without that source of measurements, into `set`; false, and `set` as it
  // was: the source was not part of the fit.
  static bool LeftOut(std::string_view source, Set* set);

  double operator[](std::size_t id) const { return value_[id]; }
  double at(std::size_t i) const { return value_[i]; }
  void set(std::size_t i, double value) { value_[i] = value; }
  std::uint64_t hash() const;
  friend bool operator==(const Set&, const Set&) = default;

 private:
  std::array<double, kMost> value_{};
};

// What a run has, for Definition::scope.
struct Scope {
  std::vector<std::string_view> words;  // literals
  void Add(std::string_view word) { words.push_back(word); }
  bool Covers(std::string_view scope) const;  // every word of `scope` is there
};

}  // namespace orrery::constants
