// Where a rank's time goes in a run of the general machine: parts that tile it.
//
// At any time a rank computes, or else communicates, or else waits. Compute is the union of its
// kernels, whatever their streams; known intervals may lie in the future. Time that no kernel
// covers belongs to the communication posted first among those under way (exposed, by its group's
// role), else to waiting for the partners of one that has been posted (a message's: bubble), else
// to the host if it works, else to waiting.
//
// REQUIRES: times of Post, Begin, End and Close do not decrease; an interval of kernels begins no
// earlier than the last of them. Cost: amortised O(1) a call; 24 bytes an interval in the future.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "orrery/engine/engine.h"

namespace orrery::engine::general {

class Account {
 public:
  // The rank's kernels cover [begin, end), as `part`.
  void Cover(SimTime begin, SimTime end, Part part) {
    if (begin >= end) return;
    std::size_t i = ahead_.size();
    while (i > first_ && ahead_[i - 1].begin >= end) --i;
    // Only what no interval covers yet is new.
    while (i > first_ && ahead_[i - 1].end > begin) {
      const Interval other = ahead_[i - 1];
      if (other.end < end) Insert(i, {other.end, end, part});
      end = std::min(end, other.begin);
      if (begin >= end) return;
      --i;
    }
    Insert(i, {begin, end, part});
  }
  // The host works until `end`: counted where nothing else is under way.
  void HostWorks(SimTime end) { host_until_ = std::max(host_until_, end); }

  // A communication is posted, its partners are there, it ends. `role`: of its group.
  void Post(SimTime now, bool message) {
    Advance(now);
    ++(message ? posted_messages_ : posted_);
  }
  void Begin(SimTime now, std::size_t role, bool message) {
    Advance(now);
    --(message ? posted_messages_ : posted_);
    ++under_way_[role];
  }
  void End(SimTime now, std::size_t role) {
    Advance(now);
    --under_way_[role];
  }

  // A raw receive is posted, and has its message; raw messages to or from the rank begin and end.
  void PostReceive(SimTime now) { Post(now, true); }
  void Receive(SimTime now) {
    Advance(now);
    --posted_messages_;
  }
  void Fly(SimTime now, std::size_t role, int messages) {
    Advance(now);
    under_way_[role] = static_cast<std::uint32_t>(static_cast<int>(under_way_[role]) + messages);
  }

  // The parts up to `now`.
  const Breakdown& Close(SimTime now) {
    Advance(now);
    return parts_;
  }

 private:
  struct Interval {
    SimTime begin = 0, end = 0;
    Part part = Part::kCompute;
  };

  void Insert(std::size_t at, const Interval& interval) {
    if (at > first_ && ahead_[at - 1].end == interval.begin &&
        ahead_[at - 1].part == interval.part) {
      ahead_[at - 1].end = interval.end;
      return;
    }
    ahead_.insert(ahead_.begin() + static_cast<std::ptrdiff_t>(at), interval);
  }
  void Spend(Part part, SimTime time) { parts_[static_cast<std::size_t>(part)] += time; }

  // Gives the time from the last call until `now` to its parts.
  void Advance(SimTime now) {
    while (first_ < ahead_.size() && ahead_[first_].begin < now) {
      Interval& next = ahead_[first_];
      if (next.begin > last_) Idle(next.begin);
      const SimTime until = std::min(now, next.end);
      if (until > last_) Spend(next.part, until - last_);
      last_ = std::max(last_, until);
      if (next.end > now) {
        next.begin = now;
        break;
      }
      ++first_;
    }
    if (first_ == ahead_.size()) {
      ahead_.clear();
      first_ = 0;
    } else if (first_ > 64 && first_ * 2 > ahead_.size()) {
      ahead_.erase(ahead_.begin(), ahead_.begin() + static_cast<std::ptrdiff_t>(first_));
      first_ = 0;
    }
    if (now > last_) Idle(now);
  }
  // No kernel runs from last_ to `until`.
  void Idle(SimTime until) {
    const SimTime time = until - last_;
    for (std::size_t role = 0; role < graph::kGroupSlots; ++role) {
      if (under_way_[role] == 0) continue;
      parts_[static_cast<std::size_t>(Part::kExposed) + role] += time;
      last_ = until;
      return;
    }
    if (posted_messages_ > 0) {
      Spend(Part::kBubble, time);
    } else if (posted_ == 0 && host_until_ > last_) {
      const SimTime host = std::min(host_until_, until) - last_;
      Spend(Part::kHost, host);
      Spend(Part::kWaiting, time - host);
    } else {
      Spend(Part::kWaiting, time);
    }
    last_ = until;
  }

  Breakdown parts_{};
  SimTime last_ = 0, host_until_ = 0;
  std::array<std::uint32_t, graph::kGroupSlots> under_way_{};
  std::uint32_t posted_ = 0, posted_messages_ = 0;
  std::vector<Interval> ahead_;  // disjoint, in order; those before first_ are spent
  std::size_t first_ = 0;
};

}  // namespace orrery::engine::general
