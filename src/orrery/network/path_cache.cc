#include "orrery/network/path_cache.h"

#include "orrery/base/rng.h"

namespace orrery::network {
namespace {

constexpr std::size_t kFirstSize = 64;

}  // namespace

// The slot that holds the path, or the empty one where it belongs.
std::size_t PathCache::Slot(DeviceId from, DeviceId to, std::uint64_t salt) const {
  const std::uint64_t ends = std::uint64_t{from.value} << 32 | to.value;
  const std::size_t mask = table_.size() - 1;
  std::size_t slot = HashCombine(ends, salt) & mask;
  while (table_[slot] != kEmpty) {
    const Entry& entry = entries_[table_[slot]];
    if (entry.from == from && entry.to == to && entry.salt == salt) break;
    slot = (slot + 1) & mask;
  }
  return slot;
}

void PathCache::Grow() {
  table_.assign(table_.empty() ? kFirstSize : 2 * table_.size(), kEmpty);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (!entries_[i].from.valid()) continue;  // added
    table_[Slot(entries_[i].from, entries_[i].to, entries_[i].salt)] =
        static_cast<std::uint32_t>(i);
  }
}

// The route by rail with another hash of what follows its NVLink hop.
std::uint32_t PathCache::FindByRail(const cluster::Cluster& cluster, DeviceId from, DeviceId to,
                                    std::uint64_t which) {
  const auto [at, fresh] = by_rail_.try_emplace({from, to, which}, 0);
  if (!fresh) return at->second;
  cluster.Route(from, to, cluster::kByRail, &route_);
  const bool hops = !cluster.direct() && route_.size() > 2 && route_[0] == cluster.nvlink_out(from);
  if (!hops) return at->second = Find(cluster, from, to, which);
  const LinkId way[] = {route_[0], route_[1]};
  cluster.Route(DeviceId(way[1].index() / 2), to, which, &route_);
  route_.insert(route_.begin(), std::begin(way), std::end(way));
  return at->second = Add(route_);
}

std::uint32_t PathCache::Find(const cluster::Cluster& cluster, DeviceId from, DeviceId to,
                              std::uint64_t salt) {
  if (2 * (entries_.size() + 1) > table_.size()) Grow();
  const std::size_t slot = Slot(from, to, salt);
  if (table_[slot] != kEmpty) return table_[slot];
  cluster.Route(from, to, salt, &route_);
  Entry entry{salt, from, to, static_cast<std::uint32_t>(links_.size()),
              static_cast<std::uint32_t>(route_.size())};
  links_.insert(links_.end(), route_.begin(), route_.end());
  entries_.push_back(entry);
  table_[slot] = static_cast<std::uint32_t>(entries_.size() - 1);
  return table_[slot];
}

}  // namespace orrery::network
