// Variants of a job: the keys that differ, with their values.
//
// An axis has one key, or several that change together (zip, a list of runs); a space is the grid
// of its axes, the last one varying fastest. A point is a number from 0 to size() - 1. Values are
// texts, as `--set key.path=value` takes them; `job` gives them meaning.
//
// Values are written as a list with commas (commas in brackets, braces or quotes are part of a
// value), in which `1..8` stands for every whole number from 1 to 8, `0..64:16` for every 16th, and
// `1..64:*2` for 1, 2, 4, … 64.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"

namespace orrery::search {

struct Axis {
  std::vector<std::string> keys;                 // "parallel.tp"
  std::vector<std::vector<std::string>> points;  // as many values each as there are keys
};

class Space {
 public:
  // More points than anybody waits for; also what keeps sums in 64 bits.
  static constexpr std::uint64_t kMostPoints = std::uint64_t{1} << 40;

  // Refuses a key that stands twice, or below another, and too many points.
  Status Add(Axis axis);

  std::uint64_t size() const { return size_; }
  const std::vector<Axis>& axes() const { return axes_; }
  std::vector<std::string> Keys() const;  // of all axes, in order
  // By axis, the index of its point.
  std::vector<std::size_t> Digits(std::uint64_t point) const;
  std::vector<std::string> Values(std::uint64_t point) const;  // by Keys()
  // "parallel.tp=4", one for each key.
  std::vector<std::string> Assignments(std::uint64_t point) const;

 private:
  std::vector<Axis> axes_;
  std::uint64_t size_ = 1;
};

// "1,2,4", "1..8", "[3,4],[4,3]". Errors name the value and the remedy.
Result<std::vector<std::string>> ParseValues(std::string_view text);

// "key.path=values" as an axis of its own.
Result<Axis> ParseVary(std::string_view text);
// Axes of one key and of equal length that change together.
Result<Axis> Zip(std::span<const std::string> texts);
// A CSV of runs: a header of keys, a row a run; an empty cell leaves the job as it is.
Result<Axis> ReadList(const std::string& path);

}  // namespace orrery::search
