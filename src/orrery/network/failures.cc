#include "orrery/network/failures.h"

#include <fmt/format.h>

#include <algorithm>

#include "orrery/base/text.h"

namespace orrery::network {

Failures::Failures(const cluster::Cluster& cluster) : cluster_(&cluster) {
  const LinkSchedule schedule(cluster);
  std::vector<bool> down(cluster.links().size(), false);
  for (const LinkSchedule::Change& change : schedule.changes()) {
    const bool now = change.capacity_Bps == 0;
    if (now == down[change.link.index()]) continue;
    down[change.link.index()] = now;
    schedule_.push_back({change.time, change.link, now});
  }
  if (schedule_.empty()) return;
  down_.assign(cluster.links().size(), false);
  returns_.assign(cluster.links().size(), false);
  detours_ = cluster::Detours(cluster);
  Advance(0);
}

bool Failures::Advance(SimTime now) {
  now_ = std::max(now_, now);
  const std::size_t before = next_;
  for (; next_ < schedule_.size() && schedule_[next_].time <= now; ++next_) {
    down_[schedule_[next_].link.index()] = schedule_[next_].down;
  }
  if (next_ == before) return false;
  returns_.assign(returns_.size(), false);
  for (std::size_t i = next_; i < schedule_.size(); ++i) {
    if (!schedule_[i].down) returns_[schedule_[i].link.index()] = true;
  }
  found_.clear();
  return true;
}

bool Failures::blocked(std::span<const LinkId> path) const {
  return any() && std::ranges::any_of(path, [&](LinkId id) { return down_[id.index()]; });
}

// Every link of the path that is down must return.
Status Failures::Wait(std::span<const LinkId> path, DeviceId from, DeviceId to) const {
  for (const LinkId id : path) {
    if (!down_[id.index()] || returns_[id.index()]) continue;
    return Infeasible(
        "no path is left from {} to {} {} after the start: the link {} is down and "
        "does not return (perturb.links)",
        cluster_->vertex_name(from.value), cluster_->vertex_name(to.value), HumanTime(now_),
        cluster_->link_name(id));
  }
  return {};
}

Status Failures::Route(DeviceId from, DeviceId to, std::uint64_t salt, std::vector<LinkId>* path) {
  cluster_->Route(from, to, salt, path);
  if (!blocked(*path)) return {};
  const auto [at, fresh] = found_.try_emplace({from.value, to.value, salt});
  if (fresh && !detours_.Find(from, to, salt, down_, &at->second)) at->second.clear();
  if (at->second.empty()) return Wait(*path, from, to);
  *path = at->second;
  return {};
}

Status Failures::RouteFrom(std::uint32_t vertex, std::span<const LinkId> rest, DeviceId from,
                           DeviceId to, std::uint64_t salt, std::vector<LinkId>* path) {
  path->clear();
  if (detours_.FindFrom(vertex, to, salt, down_, path)) return {};
  path->assign(rest.begin(), rest.end());
  return Wait(rest, from, to);
}

bool Failures::MustWait(SimTime time, std::uint32_t vertex, std::span<const LinkId> rest,
                        DeviceId to, std::uint64_t salt) {
  then_ = down_;
  std::size_t i = next_;
  for (; i < schedule_.size() && schedule_[i].time <= time; ++i) {
    then_[schedule_[i].link.index()] = schedule_[i].down;
  }
  path_.clear();
  if (detours_.FindFrom(vertex, to, salt, then_, &path_)) return false;
  return std::ranges::all_of(rest, [&](LinkId id) {
    return !then_[id.index()] ||
           std::any_of(schedule_.begin() + static_cast<std::ptrdiff_t>(i), schedule_.end(),
                       [&](const Change& c) { return c.link == id && !c.down; });
  });
}

}  // namespace orrery::network
