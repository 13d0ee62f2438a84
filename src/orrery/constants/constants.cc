#include "orrery/constants/constants.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <iterator>

#include "orrery/base/hash.h"

namespace orrery::constants {
namespace {

constexpr Definition kTable[] = {
#include "orrery_constants_rows.inc"
};
static_assert(std::size(kTable) == kCount);

struct WithoutSource {
  std::string_view source;
  std::array<double, kCount> value;
};
// The first entry keeps the list from being empty before anything was fitted.
constexpr WithoutSource kLeftOut[] = {
    {"", {}},
#include "orrery_constants_left_out.inc"
};

constexpr double kCovariance[] = {
#include "orrery_constants_covariance.inc"
};
static_assert(std::size(kCovariance) == std::size_t{kCount} * kCount,
              "data/constants/covariance.csv has a row and a column for every constant");

}  // namespace

std::span<const Definition> Definitions() { return kTable; }

std::size_t Find(std::string_view name) {
  for (std::size_t i = 0; i < kCount; ++i) {
    if (kTable[i].name == name) return i;
  }
  return kCount;
}

Set::Set() {
  for (std::size_t i = 0; i < kCount; ++i) value_[i] = kTable[i].prior;
}

Set Set::Fitted() {
  Set set;
  for (std::size_t i = 0; i < kCount; ++i) set.value_[i] = kTable[i].fitted;
  return set;
}

bool Set::LeftOut(std::string_view source, Set* set) {
  for (const WithoutSource& without : kLeftOut) {
    if (without.source.empty() || without.source != source) continue;
    for (std::size_t i = 0; i < kCount; ++i) set->value_[i] = without.value[i];
    return true;
  }
  return false;
}

std::uint64_t Set::hash() const {
  Hasher hasher;
  for (const double value : value_) hasher.Add(value);
  return hasher.value();
}

std::span<const double> Covariance() { return kCovariance; }

double SlowestOf(std::size_t n) {
  if (n <= 1) return 0;
  const int whole = static_cast<int>(std::bit_width(n)) - 1;
  const double rest = static_cast<double>(n) / static_cast<double>(std::size_t{1} << whole) - 1;
  constexpr double kLn2 = 0.6931471805599453;
  return std::sqrt(2 * kLn2 * (whole + rest));
}

bool Scope::Covers(std::string_view scope) const {
  while (!scope.empty()) {
    const std::string_view word = scope.substr(0, scope.find(' '));
    if (std::find(words.begin(), words.end(), word) == words.end()) return false;
    scope.remove_prefix(std::min(word.size() + 1, scope.size()));
  }
  return true;
}

}  // namespace orrery::constants
