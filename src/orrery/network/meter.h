// What a bottleneck has served to a flow of weight 1 since the run began, and the classes of flows
// that it holds back, ordered by what it will have served when their first flow ends.
//
// That order does not change with the bottleneck's level, so a change of level costs one product,
// whatever the number of classes. Amounts are in byte · 10⁻¹² / 256 (rate · ps), exactly.
//
// Cost: a binary heap; Place and Remove O(log classes). 32 bytes a class.
#pragma once

#include <cstdint>
#include <vector>

#include "orrery/base/int128.h"
#include "orrery/base/time.h"

namespace orrery::network {

class Meter {
 public:
  static constexpr std::uint32_t kAbsent = 0xFFFFFFFFu;

  // Where classes stand in the meter that they are in: by class, kAbsent for none.
  using Places = std::vector<std::uint32_t>;

  std::int64_t level() const { return level_; }
  SimTime at() const { return at_; }
  const Uint128& served() const { return served_; }  // until at()
  void Serve(SimTime now) {
    served_ += static_cast<Uint128>(level_) * static_cast<Uint128>(now - at_);
    at_ = now;
  }
  // REQUIRES: served until now.
  void set_level(std::int64_t level) { level_ = level; }

  bool empty() const { return heap_.empty(); }
  std::uint32_t first() const { return heap_.front().id; }
  const Uint128& first_end() const { return heap_.front().end; }
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (const Entry& entry : heap_) visit(entry.id);
  }

  // Adds the class, or moves it where it is in this meter.
  void Place(std::uint32_t id, const Uint128& end, Places* places) {
    std::size_t i = (*places)[id];
    if (i == kAbsent) {
      i = heap_.size();
      heap_.push_back({end, id});
    }
    Settle(i, {end, id}, places);
  }
  // REQUIRES: the class is in this meter.
  void Remove(std::uint32_t id, Places* places) {
    const std::size_t i = (*places)[id];
    (*places)[id] = kAbsent;
    const Entry last = heap_.back();
    heap_.pop_back();
    if (i < heap_.size()) Settle(i, last, places);
  }

 private:
  struct Entry {
    Uint128 end = 0;
    std::uint32_t id = 0;
    friend bool operator<(const Entry& a, const Entry& b) {
      return a.end != b.end ? a.end < b.end : a.id < b.id;
    }
  };

  // Puts `entry` at the hole `i`, above or below it.
  void Settle(std::size_t i, const Entry entry, Places* places) {
    for (; i > 0 && entry < heap_[(i - 1) / 2]; i = (i - 1) / 2) {
      heap_[i] = heap_[(i - 1) / 2];
      (*places)[heap_[i].id] = static_cast<std::uint32_t>(i);
    }
    for (std::size_t child = 2 * i + 1; child < heap_.size(); child = 2 * i + 1) {
      if (child + 1 < heap_.size() && heap_[child + 1] < heap_[child]) ++child;
      if (!(heap_[child] < entry)) break;
      heap_[i] = heap_[child];
      (*places)[heap_[i].id] = static_cast<std::uint32_t>(i);
      i = child;
    }
    heap_[i] = entry;
    (*places)[entry.id] = static_cast<std::uint32_t>(i);
  }

  Uint128 served_ = 0;
  SimTime at_ = 0;
  std::int64_t level_ = 0;
  std::vector<Entry> heap_;
};

}  // namespace orrery::network
