// The ends of what is in flight: a 4-ary heap of (time, id) that knows where each id stands, so
// that an end can be moved or taken out, and the first one read without disturbing anything.
//
// Why no radix heap here: a monotone queue may not be asked for its first time and then be given an
// earlier one, which is what a caller does who asks next_time() and starts another fluid before it.
// Cost: Push O(1) expected where ends come in about the order of starts, Pop O(log4 n); 20 bytes
// each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "orrery/base/check.h"
#include "orrery/base/time.h"

namespace orrery::network {

class FinishHeap {
 public:
  struct Entry {
    SimTime time = 0;
    std::uint32_t id = 0;
  };

  bool empty() const { return heap_.empty(); }
  std::size_t size() const { return heap_.size(); }
  // REQUIRES: !empty(). Ties leave by id.
  const Entry& top() const { return heap_.front(); }
  bool contains(std::uint32_t id) const { return id < at_.size() && at_[id] != kAbsent; }

  // Adds `id`, or moves it to `time` if it is there.
  void Set(std::uint32_t id, SimTime time) {
    if (id >= at_.size()) at_.resize(static_cast<std::size_t>(id) + 1, kAbsent);
    if (at_[id] == kAbsent) {
      heap_.push_back({time, id});
      Up(heap_.size() - 1, {time, id});
      return;
    }
    const std::size_t i = at_[id];
    const Entry entry{time, id};
    if (Before(entry, heap_[i])) {
      Up(i, entry);
    } else {
      Down(i, entry);
    }
  }

  // REQUIRES: !empty().
  void Pop() {
    at_[heap_.front().id] = kAbsent;
    const Entry last = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) Down(0, last);
  }

  // Moves every end by as much.
  void Shift(SimTime by) {
    for (Entry& entry : heap_) entry.time += by;
  }

  // REQUIRES: contains(id); every time is positive or 0.
  void Remove(std::uint32_t id) {
    Set(id, -1);
    Pop();
  }

 private:
  static constexpr std::uint32_t kAbsent = 0xFFFFFFFFu;

  static bool Before(const Entry& a, const Entry& b) {
    return a.time < b.time || (a.time == b.time && a.id < b.id);
  }
  void Put(std::size_t i, const Entry& entry) {
    heap_[i] = entry;
    at_[entry.id] = static_cast<std::uint32_t>(i);
  }
  // Places `entry` at the hole `i` or above it.
  void Up(std::size_t i, const Entry entry) {
    while (i > 0) {
      const std::size_t parent = (i - 1) / 4;
      if (!Before(entry, heap_[parent])) break;
      Put(i, heap_[parent]);
      i = parent;
    }
    Put(i, entry);
  }
  // Places `entry` at the hole `i` or below it.
  void Down(std::size_t i, const Entry entry) {
    const std::size_t size = heap_.size();
    for (;;) {
      const std::size_t first = 4 * i + 1;
      if (first >= size) break;
      std::size_t least = first;
      const std::size_t end = first + 4 < size ? first + 4 : size;
      for (std::size_t c = first + 1; c < end; ++c) {
        if (Before(heap_[c], heap_[least])) least = c;
      }
      if (!Before(heap_[least], entry)) break;
      Put(i, heap_[least]);
      i = least;
    }
    Put(i, entry);
  }

  std::vector<Entry> heap_;
  std::vector<std::uint32_t> at_;  // by id
};

}  // namespace orrery::network
