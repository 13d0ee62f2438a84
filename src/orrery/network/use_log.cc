#include "orrery/network/use_log.h"

#include <algorithm>

#include "orrery/base/check.h"
#include "orrery/base/int128.h"

namespace orrery::network {

void UseLog::Double() {
  for (std::vector<std::int64_t>& steps : by_link_) {
    if (steps.empty()) continue;
    for (std::size_t i = 0; i < steps_ / 2; ++i) steps[i] = steps[2 * i] + steps[2 * i + 1];
    std::fill(steps.begin() + static_cast<std::ptrdiff_t>(steps_ / 2), steps.end(), 0);
  }
  width_ *= 2;
}

// Widens the steps until `time` lies in one of them.
void UseLog::Reach(SimTime time) {
  while (time / width_ >= static_cast<SimTime>(steps_)) Double();
}

std::vector<std::int64_t>& UseLog::StepsOf(std::size_t link) {
  std::vector<std::int64_t>& steps = by_link_[link];
  if (steps.empty()) steps.assign(steps_, 0);
  return steps;
}

void UseLog::AddBytes(std::size_t link, SimTime from, SimTime to, std::int64_t bytes) {
  ORRERY_CHECK(0 <= from && from <= to, "an interval runs forward");
  if (bytes == 0) return;
  Reach(to);
  std::vector<std::int64_t>& steps = StepsOf(link);
  const auto all = static_cast<Uint128>(bytes);
  const auto length = static_cast<Uint128>(to - from);
  std::int64_t before = 0;
  for (SimTime step = from / width_;; ++step) {
    const SimTime edge = (step + 1) * width_;
    const bool last = edge >= to;
    const std::int64_t sum =
        last ? bytes : static_cast<std::int64_t>(all * static_cast<Uint128>(edge - from) / length);
    steps[static_cast<std::size_t>(step)] += (sum - before) * kByte;
    before = sum;
    if (last) return;
  }
}

void UseLog::AddRate(std::size_t link, SimTime from, SimTime to, std::int64_t rate_Bps,
                     std::uint32_t share) {
  ORRERY_CHECK(0 <= from && from <= to, "an interval runs forward");
  if (rate_Bps == 0 || from == to) return;
  Reach(to);
  std::vector<std::int64_t>& steps = StepsOf(link);
  const Uint128 per_ps = static_cast<Uint128>(rate_Bps) * share;
  for (SimTime at = from; at < to;) {
    const SimTime step = at / width_;
    const SimTime end = std::min(to, (step + 1) * width_);
    steps[static_cast<std::size_t>(step)] += static_cast<std::int64_t>(
        per_ps * static_cast<Uint128>(end - at) / static_cast<std::uint64_t>(kSecond));
    at = end;
  }
}

void UseLog::Merge(UseLog other) {
  ORRERY_CHECK(steps_ == other.steps_ && links() == other.links(), "logs of one network");
  while (width_ < other.width_) Double();
  while (other.width_ < width_) other.Double();
  for (std::size_t l = 0; l < by_link_.size(); ++l) {
    if (other.by_link_[l].empty()) continue;
    std::vector<std::int64_t>& steps = StepsOf(l);
    for (std::size_t i = 0; i < steps_; ++i) steps[i] += other.by_link_[l][i];
  }
}

}  // namespace orrery::network
