// What lives on each layer, as runs of layers in the same state: a call over layers that have
// always been called together is one run, whatever their number.
#pragma once

#include <cstdint>
#include <vector>

namespace orrery::memory {

using StateId = std::uint32_t;
inline constexpr StateId kNothing = 0;

struct LayerRun {
  std::int32_t first = 0, last = 0;  // inclusive
  StateId state = kNothing;
  friend bool operator==(const LayerRun&, const LayerRun&) = default;
};

// Sorted, disjoint; layers in no run hold nothing. Equal contents reached by different splits may
// compare unequal.
class LayerStates {
 public:
  // Appends to `runs` what holds in [first, last], gaps included, in ascending order. O(runs).
  void Get(std::int32_t first, std::int32_t last, std::vector<LayerRun>* runs) const;
  void Set(const LayerRun& run);
  bool empty() const { return runs_.empty(); }
  friend bool operator==(const LayerStates&, const LayerStates&) = default;

 private:
  std::vector<LayerRun> runs_;
};

}  // namespace orrery::memory
