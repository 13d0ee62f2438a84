// What each link carried over time, in steps of equal width, for back ends that see links.
//
// The run's length is not known ahead: the log begins with steps of 2^20 ps (about 1 us) and
// doubles their width whenever the time passes the last one, by adding them up in pairs. So it
// holds between half of its steps and all of them, whatever the run takes.
//
// Units: 1/1024 byte, because a fluid's share of a link is counted in 1024ths (max_min.h). What
// moves in an interval counts as if it moved evenly. AddBytes splits by rounding the sum up to each
// edge down, so nothing is lost and the width does not change what falls on which side of an edge;
// AddRate loses less than 1/1024 byte a step and call. Integers: the order of calls is immaterial,
// and logs of several partitions add up.
//
// Cost. An entry O(steps that it spans); a link's steps are allocated when it is first used: 8
// bytes each. A network that keeps no log pays one test a change of rate or message.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "orrery/base/time.h"

namespace orrery::network {

class UseLog {
 public:
  static constexpr SimTime kFirstWidth = SimTime{1} << 20;
  static constexpr std::int64_t kByte = 1024;

  UseLog() = default;
  // REQUIRES: steps even.
  UseLog(std::size_t links, std::size_t steps) : steps_(steps), by_link_(links) {}

  bool on() const { return steps_ > 0; }
  SimTime width() const { return width_; }
  // All of `bytes` between the two times; where these are equal, in the step that holds them.
  void AddBytes(std::size_t link, SimTime from, SimTime to, std::int64_t bytes);
  // rate · share / 1024 bytes a second between the two times.
  void AddRate(std::size_t link, SimTime from, SimTime to, std::int64_t rate_Bps,
               std::uint32_t share);
  // Adds the other's entries. REQUIRES: as many links and steps.
  void Merge(UseLog other);
  // A link's steps from time 0 on, in 1024ths of a byte; empty where it carried nothing.
  std::span<const std::int64_t> of(std::size_t link) const { return by_link_[link]; }
  std::size_t links() const { return by_link_.size(); }
  std::size_t steps() const { return steps_; }

 private:
  void Reach(SimTime time);
  void Double();
  std::vector<std::int64_t>& StepsOf(std::size_t link);

  std::size_t steps_ = 0;
  SimTime width_ = kFirstWidth;
  std::vector<std::vector<std::int64_t>> by_link_;
};

}  // namespace orrery::network
