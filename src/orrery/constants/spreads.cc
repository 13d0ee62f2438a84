#include "orrery/constants/spreads.h"

#include <cmath>

namespace orrery::constants {
namespace {

constexpr Spreads kFitted = {
#include "orrery_constants_spreads.inc"
};

double Square(double x) { return x * x; }

// Of a Laplace distribution of this scale.
double Width80(double scale) { return std::exp(scale * std::log(5.0)) - 1; }

}  // namespace

Spreads FittedSpreads() { return kFitted; }

double StepWidth(const StepShares& shares) {
  return Width80(std::sqrt(Square(shares.kernels * kFitted.kernels) +
                           Square(shares.host * kFitted.host) +
                           Square(shares.communication * kFitted.communication) +
                           Square(shares.waiting * kFitted.waiting) +
                           Square(shares.experts ? kFitted.experts : 0) + Square(kFitted.base)));
}

double CollectiveWidth(double fixed_share) {
  return Width80(std::sqrt(Square(fixed_share * kFitted.collective_fixed) +
                           Square((1 - fixed_share) * kFitted.collective_transfer)));
}

double MemoryWidth(const MemoryShares& shares) {
  return Width80(std::sqrt(Square(kFitted.memory_tensors) +
                           Square(shares.allocator ? kFitted.memory_allocator : 0) +
                           Square(shares.outside ? kFitted.memory_outside : 0)));
}

}  // namespace orrery::constants
