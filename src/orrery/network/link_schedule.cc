#include "orrery/network/link_schedule.h"

#include <algorithm>

#include "orrery/base/int128.h"

namespace orrery::network {

LinkSchedule::LinkSchedule(const cluster::Cluster& cluster) {
  std::vector<cluster::LinkChange> given(cluster.link_changes().begin(),
                                         cluster.link_changes().end());
  std::stable_sort(given.begin(), given.end(),
                   [](const auto& a, const auto& b) { return a.link < b.link; });
  for (std::size_t i = 0; i < given.size();) {
    std::size_t end = i;
    std::vector<SimTime> times;
    for (; end < given.size() && given[end].link == given[i].link; ++end) {
      times.push_back(std::max<SimTime>(given[end].from, 0));
      if (given[end].until != kNever) times.push_back(given[end].until);
    }
    std::sort(times.begin(), times.end());
    times.erase(std::unique(times.begin(), times.end()), times.end());
    const std::int64_t own = cluster.links()[given[i].link.index()].bandwidth_Bps;
    std::int64_t before = own;
    for (const SimTime time : times) {
      double share = 1;
      for (std::size_t j = i; j < end; ++j) {
        if (given[j].from <= time && time < given[j].until) {
          share = std::min(share, given[j].bandwidth);
        }
      }
      const auto now = static_cast<std::int64_t>(static_cast<double>(own) * share);
      if (now != before) by_link_.push_back({time, given[i].link, now});
      before = now;
    }
    i = end;
  }
  changes_ = by_link_;
  std::stable_sort(changes_.begin(), changes_.end(),
                   [](const Change& a, const Change& b) { return a.time < b.time; });
}

std::span<const LinkSchedule::Change> LinkSchedule::of(LinkId link) const {
  const auto [first, last] =
      std::equal_range(by_link_.begin(), by_link_.end(), Change{0, link, 0},
                       [](const Change& a, const Change& b) { return a.link < b.link; });
  return {first, last};
}

SimTime ServedBy(std::span<const LinkSchedule::Change> changes, std::int64_t own_Bps, SimTime start,
                 std::int64_t bytes) {
  std::int64_t rate = own_Bps;
  std::size_t next = 0;
  while (next < changes.size() && changes[next].time <= start) rate = changes[next++].capacity_Bps;
  // In byte·10⁻¹²: rate · ps, exactly.
  Uint128 left = static_cast<Uint128>(bytes) * static_cast<Uint128>(kSecond);
  for (SimTime at = start;; rate = changes[next++].capacity_Bps) {
    const SimTime until = next < changes.size() ? changes[next].time : kNever;
    if (left == 0) return at;
    if (rate > 0) {
      const Uint128 time = (left + static_cast<Uint128>(rate) - 1) / static_cast<Uint128>(rate);
      if (until == kNever || time <= static_cast<Uint128>(until - at)) {
        return time > static_cast<Uint128>(kMaxDuration) ? kNever : at + static_cast<SimTime>(time);
      }
      left -= static_cast<Uint128>(rate) * static_cast<Uint128>(until - at);
    }
    if (until == kNever) return kNever;
    at = until;
  }
}

}  // namespace orrery::network
