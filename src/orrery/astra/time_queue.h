// Events in the order of (time, order of arrival), as ASTRA-sim's event queue has them: what is
// added to the present runs after all that stands there.
//
// Events of one time share a line; few times are distinct where ranks behave alike, so that most
// pushes and pops touch a line's end alone. Cost: O(1) a push to a time used of late, a hash of the
// time else, O(log distinct times) a new time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

#include "orrery/base/check.h"

namespace orrery::astra {

template <class Event>
class TimeQueue {
 public:
  std::uint64_t now() const { return now_; }

  // REQUIRES: time >= now().
  void Push(std::uint64_t time, const Event& event) {
    const Recent& recent = recent_[time % kRecent];
    if (recent.time != time || recent.line == kNone) Find(time);
    lines_[recent.line].push_back(event);
  }

  // The next event, by value, for lines may move while it runs. False: there is none.
  bool Pop(Event* event) {
    while (!times_.empty()) {
      const auto [time, line] = times_.top();
      now_ = time;
      if (head_ < lines_[line].size()) {
        *event = lines_[line][head_++];
        return true;
      }
      lines_[line].clear();
      free_.push_back(line);
      line_of_.erase(time);
      if (recent_[time % kRecent].line == line) recent_[time % kRecent].line = kNone;
      times_.pop();
      head_ = 0;
    }
    return false;
  }

 private:
  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;
  using Time = std::pair<std::uint64_t, std::uint32_t>;

  // Apart from Push, which stays short where it is called.
  [[gnu::noinline]] void Find(std::uint64_t time) {
    ORRERY_CHECK(time >= now_, "an event before the present");
    recent_[time % kRecent] = {time, LineOf(time)};
  }
  std::uint32_t LineOf(std::uint64_t time) {
    const auto [at, fresh] = line_of_.emplace(time, 0);
    if (fresh) {
      if (free_.empty()) {
        free_.push_back(static_cast<std::uint32_t>(lines_.size()));
        lines_.emplace_back();
      }
      at->second = free_.back();
      free_.pop_back();
      times_.emplace(time, at->second);
    }
    return at->second;
  }

  std::vector<std::vector<Event>> lines_;
  std::vector<std::uint32_t> free_;
  std::unordered_map<std::uint64_t, std::uint32_t> line_of_;
  std::priority_queue<Time, std::vector<Time>, std::greater<>> times_;
  std::size_t head_ = 0;  // of the first time's line
  std::uint64_t now_ = 0;
  struct Recent {
    std::uint64_t time = 0;
    std::uint32_t line = kNone;
  };
  static constexpr std::size_t kRecent = 64;
  std::array<Recent, kRecent> recent_;  // lines by time, for pushes to few times
};

}  // namespace orrery::astra
