// How far predictions have been off, by what they are made of: the 80 % interval of each.
//
// Errors of ln(predicted / measured) are taken as Laplace distributed (peaked, with long tails:
// most rows are near, a few have something else wrong), with the scale
//   b = sqrt(sum over parts of (share · spread)²)
// so that 80 % of measurements lie within a factor 1 + w, w = e^(b·ln 5) - 1, of the prediction.
// The spreads are fitted to the errors of rows predicted with constants that were fitted without
// their source (data/constants/spreads.csv, docs/validation.md).
#pragma once

namespace orrery::constants {

struct Spreads {
  double kernels = 0, host = 0, communication = 0, waiting = 0, experts = 0, base = 0;
  double collective_fixed = 0, collective_transfer = 0;
  double memory_tensors = 0, memory_allocator = 0, memory_outside = 0;
};
Spreads FittedSpreads();

// Shares of a step, of its whole. Kernels' is multiplied by the spread of their cost model.
struct StepShares {
  double kernels = 0, host = 0, communication = 0, waiting = 0;
  bool experts = false;
};

// What a meter of memory sees beside tensors.
struct MemoryShares {
  bool allocator = false;  // what the allocator keeps unused
  bool outside = false;    // what lives outside it: contexts, libraries' buffers
};

// w: 80 % of measurements lie between prediction / (1 + w) and prediction · (1 + w).
double StepWidth(const StepShares& shares);
double CollectiveWidth(double fixed_share);  // the rest is transfer
double MemoryWidth(const MemoryShares& shares);

}  // namespace orrery::constants
