// How much longer kernels take beside communication, learned from measured overlaps.
//
// The model's inputs are the features of data/slowdown/features.csv, products of base quantities of
// a kernel, its time alone, the GPU and the communication beside it; tools/slowdown makes the same
// ones from the same table when it trains. The model gives ln(together / alone). What a
// communication takes of the GPU is the constant model's (interference.h): channels, and HBM bytes
// a byte sent. Kernels that a trace timed have no shape, and stay with the constant model.
//
// Cost of Factor: a microsecond or two, once a kernel and class.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/base/time.h"
#include "orrery/cluster/cluster.h"
#include "orrery/graph/kernel.h"
#include "orrery/interference/interference.h"
#include "orrery/interference/trees.h"

namespace orrery::interference {

// What runs beside a kernel.
struct Companion {
  double ctas = 0;         // SMs that hold a block of it
  double bytes_per_s = 0;  // of the GPU's memory that it moves
};
Companion CompanionOf(Class concurrent, const cluster::DeviceSpec& device);

// Names of the features, in the table's order.
const std::vector<std::string>& FeatureNames();
// REQUIRES: alone_s > 0; not graph::Timed.
std::vector<float> Features(const graph::Kernel& kernel, double alone_s, const Companion& beside,
                            const cluster::DeviceSpec& device);

class Learned {
 public:
  // Fails where the trees are damaged or their features are not FeatureNames(). `content`: of what
  // they were read from; equal where two learned slowdowns are.
  static Result<Learned> Create(Trees trees, std::uint64_t content = 0);
  std::uint64_t content() const { return content_; }
  // together / alone, at least 1.
  double Factor(const graph::Kernel& kernel, double alone_s, Class concurrent,
                const cluster::DeviceSpec& device) const;
  double Factor(std::span<const float> features) const;

 private:
  Learned(Trees trees, std::uint64_t content) : trees_(std::move(trees)), content_(content) {}
  Trees trees_;
  std::uint64_t content_;
};

// A kernel's time beside each class of communication, as learned, or by the constant model where
// `learned` is null. `alone_ps`: its time alone.
std::array<SimTime, kClasses> KernelTimes(const graph::Kernel& kernel, double alone_ps,
                                          const cluster::DeviceSpec& device,
                                          const Learned* learned);

}  // namespace orrery::interference
