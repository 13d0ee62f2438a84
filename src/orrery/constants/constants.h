// Every constant that a fit may move, in one table: data/constants/constants.csv.
//
// A row has a name, a unit, an a-priori value with its source, a range that a fit never leaves, an
// a-priori spread (one standard deviation), and what the fit of docs/validation.md made of both.
// A constant keys on what it physically belongs to (architecture, fabric, framework and time),
// never on a source or a model. Facts of the hardware, and values that no measurement moved, stand
// beside the code that reads them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "orrery/base/status.h"
#include "orrery/constants/set.h"

namespace orrery::constants {

enum Id : std::uint8_t {
#include "orrery_constants_ids.inc"
  kCount
};
static_assert(kCount <= kMost, "a Set holds kMost values");

struct Definition {
  std::string_view name;
  double prior, low, high, spread;  // in `unit`; spread: one standard deviation
  double fitted, fitted_spread;     // what the fit made of prior and spread
  std::string_view unit;
  // What a run must have for the constant to matter, words of Scope; empty: any run.
  std::string_view scope;
  std::string_view explains, source;
};
std::span<const Definition> Definitions();  // kCount of them, in order of Id
// kCount when there is none.
std::size_t Find(std::string_view name);

// "prior", or a CSV of name,value whose other constants are the fitted ones. Errors name line, name
// and value; a value outside its range is refused.
Result<Set> Read(const std::string& path);

// Covariance of the fitted constants in units of their a-priori spreads, kCount x kCount.
std::span<const double> Covariance();

// sqrt(2 ln n): how many standard deviations the slowest of n equal ranks lies above the mean. ln
// by its exponent and a chord, within 0.06 of it. 0 for n <= 1.
double SlowestOf(std::size_t n);

}  // namespace orrery::constants
