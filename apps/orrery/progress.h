// How far a long verb is, on stderr where that is a terminal: done, total and the time left. For
// one thread at a time.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "orrery/base/text.h"

namespace orrery::app {

class Progress {
 public:
  explicit Progress(std::string_view what) : what_(what) {}

  void Show(std::size_t done, std::size_t total) {
    const Clock::time_point now = Clock::now();
    if (!shown_ || done == 0) return;
    if (now - last_ < std::chrono::milliseconds(200) && done < total) return;
    last_ = now;
    const double spent_s = std::chrono::duration<double>(now - began_).count();
    const double left_s = spent_s / static_cast<double>(done) * static_cast<double>(total - done);
    fmt::print(stderr, "\r{} of {} {}, {} left   ", HumanCount(static_cast<std::int64_t>(done)),
               HumanCount(static_cast<std::int64_t>(total)), what_, HumanSeconds(left_s));
    dirty_ = true;
  }
  void End() const {
    if (dirty_) fmt::print(stderr, "\r{:60}\r", "");
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::string_view what_;
  Clock::time_point began_ = Clock::now(), last_ = began_;
  bool shown_ = isatty(STDERR_FILENO) == 1;
  bool dirty_ = false;
};

}  // namespace orrery::app
