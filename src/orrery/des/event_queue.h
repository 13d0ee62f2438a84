// A monotone priority queue of events: a radix heap (Ahuja, Mehlhorn, Orlin, Tarjan 1990).
//
// Events leave in the order of (time, operator<); pushes never lie before the last time popped or
// shown by Top: Top moves the present to the first event. NextTime moves nothing; ask it when
// earlier events may still come (another source's, or a network's). An event sits in the bucket of
// the highest bit in which its time differs from the last time popped, so it moves at most 63
// times, in practice two or three. The events of the present stand in a sorted line; one that must
// go between them waits in a heap beside it. Cost: amortised O(1) a push in the events' order,
// O(log n) of the present's otherwise; no allocation once the buckets have grown; one event is
// copied per move.
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
    if (b > 0) {
      buckets_[b].push_back(event);
      Occupy(b, event.time);
    } else if (head_ == line_.size() || !(event < line_.back())) {
      line_.push_back(event);
    } else {
      between_.push_back(event);
      std::push_heap(between_.begin(), between_.end(), After);
    }
  }

  // Time of the earliest event, kNever if there is none. O(1).
  SimTime NextTime() const {
    if (size_ == 0) return kNever;
    if (present()) return last_;
    return earliest_[static_cast<std::size_t>(std::countr_zero(occupied_)) + 1];
  }

  // The earliest event. Nothing may be pushed before it from now on. REQUIRES: !empty().
  const Event& Top() {
    if (!present()) Refill();
    return from_between() ? between_.front() : line_[head_];
  }

  void Pop() {
    if (!present()) Refill();
    --size_;
    if (from_between()) {
      std::pop_heap(between_.begin(), between_.end(), After);
      between_.pop_back();
      return;
    }
    if (++head_ == line_.size()) {
      line_.clear();
      head_ = 0;
    } else if (head_ >= 1024 && head_ * 2 >= line_.size()) {
      line_.erase(line_.begin(), line_.begin() + static_cast<std::ptrdiff_t>(head_));
      head_ = 0;
    }
  }

  // All events, in no particular order.
  template <typename Visit>
  void ForEach(Visit&& visit) const {
    for (const auto& bucket : buckets_) std::for_each(bucket.begin(), bucket.end(), visit);
    for (std::size_t i = head_; i < line_.size(); ++i) visit(line_[i]);
    std::for_each(between_.begin(), between_.end(), visit);
  }

  void Clear() {
    for (auto& bucket : buckets_) bucket.clear();
    line_.clear();
    between_.clear();
    head_ = size_ = 0;
    last_ = 0;
    occupied_ = 0;
  }

 private:
  static bool After(const Event& a, const Event& b) { return b < a; }
  bool present() const { return head_ < line_.size() || !between_.empty(); }
  bool from_between() const {
    return !between_.empty() && (head_ == line_.size() || between_.front() < line_[head_]);
  }

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
    bool sorted = true;
    for (const Event& e : from) {
      const std::size_t to = Bucket(e.time);
      if (to > 0) {
        buckets_[to].push_back(e);
        Occupy(to, e.time);
        continue;
      }
      sorted = sorted && (line_.empty() || !(e < line_.back()));
      line_.push_back(e);
    }
    from.clear();
    if (!sorted) std::sort(line_.begin(), line_.end());
  }

  std::array<std::vector<Event>, 65> buckets_;  // the first is not used
  std::vector<Event> line_;                     // of the present, sorted, from head_ on
  std::vector<Event> between_;                  // of the present, a heap
  std::size_t head_ = 0;
  std::array<SimTime, 65> earliest_{};  // of the events in an occupied bucket above 0
  std::size_t size_ = 0;
  SimTime last_ = 0;
  std::uint64_t occupied_ = 0;  // bit b - 1: bucket b holds events
};

}  // namespace orrery::des
