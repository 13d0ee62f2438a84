// A monotone priority queue of events: a radix heap (Ahuja, Mehlhorn, Orlin, Tarjan 1990).
//
// Events leave in the order of (time, operator<); pushes never lie before the last time popped or
// shown by Top: Top moves the present to the first event. NextTime moves nothing; ask it when
// earlier events may still come (another source's, or a network's). An event sits in the bucket of
// the highest bit in which its time differs from the last time popped, so it moves at most 63
// times, in practice two or three. Cost: amortised O(1) a push, no allocation once the buckets have
// grown; one event is copied per move.
//
// REQUIRES of Event: a member `time` of type SimTime (>= 0); operator< that orders events of equal
// time.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "orrery/base/check.h"
#include "orrery/base/time.h"

namespace orrery::des {

template <class Event>
class EventQueue {
 public:
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  SimTime last() const { return last_; }

  // REQUIRES: event.time >= last().
  void Push(const Event& event) {
    ORRERY_CHECK(event.time >= last_, "an event before the present");
    ++size_;
    const std::size_t b = Bucket(event.time);
    buckets_[b].push_back(event);
    if (b == 0) {
      std::push_heap(buckets_[0].begin(), buckets_[0].end(), After);
    } else {
      Occupy(b, event.time);
    }
  }

  // Time of the earliest event, kNever if there is none. O(1).
  SimTime NextTime() const {
    if (size_ == 0) return kNever;
    if (!buckets_[0].empty()) return last_;
    return earliest_[static_cast<std::size_t>(std::countr_zero(occupied_)) + 1];
  }

  // The earliest event. Nothing may be pushed before it from now on. REQUIRES: !empty().
  const Event& Top() {
    if (buckets_[0].empty()) Refill();
    return buckets_[0].front();
  }

  void Pop() {
    if (buckets_[0].empty()) Refill();
    std::vector<Event>& now = buckets_[0];
    if (now.size() > 1) std::pop_heap(now.begin(), now.end(), After);
    now.pop_back();
    --size_;
  }

  void Clear() {
    for (auto& bucket : buckets_) bucket.clear();
    size_ = 0;
    last_ = 0;
    occupied_ = 0;
  }

 private:
  static bool After(const Event& a, const Event& b) { return b < a; }

  std::size_t Bucket(SimTime time) const {
    return static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(time ^ last_)));
  }

  // Notes an event of bucket b > 0. A bucket loses events only as a whole, so its earliest is
  // exact.
  void Occupy(std::size_t b, SimTime time) {
    const std::uint64_t bit = std::uint64_t{1} << (b - 1);
    earliest_[b] = (occupied_ & bit) != 0 ? std::min(earliest_[b], time) : time;
    occupied_ |= bit;
  }

  // Moves the lowest bucket's events down, around its earliest time.
  void Refill() {
    ORRERY_CHECK(size_ > 0, "an empty queue has no first event");
    const std::size_t b = static_cast<std::size_t>(std::countr_zero(occupied_)) + 1;
    occupied_ &= ~(std::uint64_t{1} << (b - 1));
    std::vector<Event>& from = buckets_[b];
    last_ = earliest_[b];
    for (const Event& e : from) {
      const std::size_t to = Bucket(e.time);
      buckets_[to].push_back(e);
      if (to > 0) Occupy(to, e.time);
    }
    from.clear();
    if (buckets_[0].size() > 1) std::make_heap(buckets_[0].begin(), buckets_[0].end(), After);
  }

  std::array<std::vector<Event>, 65> buckets_;
  std::array<SimTime, 65> earliest_{};  // of the events in an occupied bucket above 0
  std::size_t size_ = 0;
  SimTime last_ = 0;
  std::uint64_t occupied_ = 0;  // bit b - 1: bucket b holds events
};

}  // namespace orrery::des
