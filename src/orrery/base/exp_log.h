// Exponential and logarithm without libm, whose last bits differ between libraries: draws made of
// these are the same everywhere. For workloads' random numbers. ExpMinus has a relative error below
// 1e-12, MinusLog an absolute one below 1e-15 + 1e-15 times its value: near u = 1 ln 2 is taken
// from a series that is almost as large.
#pragma once

#include "orrery/base/check.h"

namespace orrery {

inline constexpr double kLn2 = 0.69314718055994530942;

// -ln(u). REQUIRES: 0 < u <= 1. u = m·2^-e with m in [1, 2), and ln(m) by the series of atanh.
inline double MinusLog(double u) {
  ORRERY_CHECK(u > 0 && u <= 1, "a logarithm needs a number in (0, 1]");
  int exponent = 0;
  while (u < 1) {
    u *= 2;
    ++exponent;
  }
  const double z = (u - 1) / (u + 1);
  double term = z, sum = 0;
  for (int k = 1; k < 60; k += 2) {
    sum += term / k;
    term *= z * z;
  }
  return exponent * kLn2 - 2 * sum;
}

// e^-x. REQUIRES: x >= 0. x = n·ln 2 + r, and e^-r by its series; 0 from 700 on.
inline double ExpMinus(double x) {
  ORRERY_CHECK(x >= 0, "an exponential needs a number from 0 on");
  if (x >= 700) return 0;
  const auto halvings = static_cast<int>(x / kLn2);
  const double r = x - halvings * kLn2;
  double term = 1, sum = 1;
  for (int k = 1; k < 24; ++k) {
    term *= -r / k;
    sum += term;
  }
  for (int i = 0; i < halvings; ++i) sum /= 2;
  return sum;
}

}  // namespace orrery
