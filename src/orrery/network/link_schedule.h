// The capacities of links that change during a run: slow for a while, down, back.
//
// Between two changes of a link its capacity is constant: its own rate times the least share of the
// changes in force (cluster::LinkChange), rounded down; 0 is down: who may go round it does
// (failures.h), the others wait until it returns. Changes from time 0 on hold from the start.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "orrery/base/ids.h"
#include "orrery/base/time.h"
#include "orrery/cluster/cluster.h"

namespace orrery::network {

class LinkSchedule {
 public:
  struct Change {
    SimTime time = 0;
    LinkId link;
    std::int64_t capacity_Bps = 0;  // from `time` on
  };

  LinkSchedule() = default;
  explicit LinkSchedule(const cluster::Cluster& cluster);

  bool empty() const { return changes_.empty(); }
  // In order of time, then of link.
  std::span<const Change> changes() const { return changes_; }
  // Of one link, in order of time; empty for a link that does not change.
  std::span<const Change> of(LinkId link) const;

 private:
  std::vector<Change> changes_;
  std::vector<Change> by_link_;
};

// When `bytes` have passed a link that serves them from `start` on alone; kNever where it stays
// down. The first whole ps at which nothing is left. REQUIRES: `changes` of one link. O(changes).
SimTime ServedBy(std::span<const LinkSchedule::Change> changes, std::int64_t own_Bps, SimTime start,
                 std::int64_t bytes);

}  // namespace orrery::network
