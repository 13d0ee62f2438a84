// What of a point is known before its graph is built: degrees, rules, bounds.
//
// Bound of the step time. A family's micro-batch needs `layers` + `ends` of work on one replica of
// the model (job::WorkFloor, of one member's graph), whichever stages do it. The busiest of pp
// stages has at least its pp-th part, m micro-batches a step:
//   step ≥ m · (layers + ends) / pp.
// Under gpipe, 1f1b and interleaved the last stage begins when the first micro-batch has come
// through the others' first chunks, and the others' backward passes of it follow its end: with even
// layers, t = layers / pp a stage,
//   step ≥ m · t + (pp - 1) · t / vpp.
// Both hold for the period of steady iterations, for a stage begins an iteration after it ended the
// one before. A thousandth is taken off for rounding. Bound of memory: parameters and gradients of
// 16 bits, without what shards or moves them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/job/work_floor.h"
#include "orrery/search/plan/open.h"

namespace orrery::search {

struct Degrees {
  std::int64_t tp = 1, pp = 1, vpp = 1, cp = 1, ep = 1;
  std::int64_t dp = 0;  // 0: what the GPUs leave
  std::int64_t nodes = 0, micro_batch = 1, global_batch = 0;
  std::int64_t gpus_per_node = 0;  // 0: not known
};

// Work of one micro-batch on one replica; of a family.
struct FamilyWork {
  double layers_ps = 0, ends_ps = 0;
  bool fills = false;  // stages fill one after the other, with as many layers each
};

// GPUs of a host by the point of the axis that decides the cluster; without one, one number. 0: not
// known.
struct HostSizes {
  std::optional<std::size_t> axis;
  std::vector<std::int64_t> gpus;
};
Result<HostSizes> HostSizesOf(const OpenJob& open);

class PointReader {
 public:
  PointReader(const OpenJob& open, HostSizes hosts, std::int64_t layers);

  Degrees At(const std::vector<std::size_t>& digits) const;
  // Why the point is left out unread; empty: it may be good, or a degree is outside its range,
  // which who reads it says better. `equal`: it says what another says.
  std::string_view Refuse(const Degrees& degrees, const std::vector<std::size_t>& digits,
                          bool* equal) const;
  // dp where it is said, else what the GPUs leave; 0: a degree is outside its range. REQUIRES: not
  // refused.
  std::int64_t DataParallel(const Degrees& degrees) const;
  std::int64_t Gpus(const Degrees& degrees) const;  // 0: not known
  // Equal keys: one family.
  std::uint64_t Family(const std::vector<std::size_t>& digits) const;
  // What the mean rank is busy for in a step at least, in ps: kernels and blocking collectives. 0:
  // nothing is known.
  double WorkBound(const FamilyWork& work, const Degrees& degrees) const;
  // Of a point of the family, in ps. 0: nothing is known.
  double StepBound(const FamilyWork& work, const Degrees& degrees) const;

 private:
  struct Field {
    std::size_t axis;
    std::int64_t Degrees::*member;
    std::vector<std::int64_t> values;  // by point of the axis
  };
  Degrees base_;
  std::vector<Field> fields_;
  std::vector<bool> of_family_;  // by axis
  std::vector<std::size_t> axis_points_;
  std::optional<std::size_t> sequence_axis_;  // of parallel.sequence_parallel
  std::vector<bool> sequence_on_;             // by its points
  bool any_off_ = false;
  bool sized_ = false;  // the job or the space says how many nodes
  HostSizes hosts_;
  std::int64_t layers_ = 0;
};

}  // namespace orrery::search
