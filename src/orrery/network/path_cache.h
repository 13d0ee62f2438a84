// Paths between GPUs, each computed once per (from, to, salt) and kept end to end in one array.
//
// Cost: a look-up is one probe of an open-addressed table; 32 bytes a connection and 4 a hop.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "orrery/cluster/cluster.h"
#include "orrery/cluster/salts.h"

namespace orrery::network {

class PathCache {
 public:
  // The number of the path; it stays valid. Computes the route at the first call.
  std::uint32_t Find(const cluster::Cluster& cluster, DeviceId from, DeviceId to,
                     std::uint64_t salt);
  // A path that no salt gives: a number of its own.
  std::uint32_t Add(std::span<const LinkId> path) {
    entries_.push_back({.first = static_cast<std::uint32_t>(links_.size()),
                        .count = static_cast<std::uint32_t>(path.size())});
    links_.insert(links_.end(), path.begin(), path.end());
    return static_cast<std::uint32_t>(entries_.size() - 1);
  }
  // Adaptive routing: of kCandidates paths, by as many salts, the one of least cost; the first of
  // equals, counted from the transfer's own. Half routes of the NVLink switch (cluster.h) have one
  // path; what goes by rail (salts.h) begins as its own route does, over NVLink to the GPU beside
  // the rail's NIC, and chooses from there. O(kCandidates · cost).
  static constexpr std::uint64_t kCandidates = 16;
  template <class Cost>
  std::uint32_t FindLeast(const cluster::Cluster& cluster, DeviceId from, DeviceId to,
                          std::uint64_t salt, Cost cost) {
    if (cluster::HasOneWay(salt)) return Find(cluster, from, to, salt);
    std::uint32_t best = Candidate(cluster, from, to, salt, 0);
    auto least = cost(path(best));
    for (std::uint64_t k = 1; k < kCandidates; ++k) {
      const std::uint32_t other = Candidate(cluster, from, to, salt, k);
      const auto c = cost(path(other));
      if (c < least) {
        least = c;
        best = other;
      }
    }
    return best;
  }
  std::span<const LinkId> path(std::uint32_t number) const {
    const Entry& entry = entries_[number];
    return {links_.data() + entry.first, entry.count};
  }
  std::size_t size() const { return entries_.size(); }

 private:
  static constexpr std::uint32_t kEmpty = 0xFFFFFFFFu;
  struct Entry {
    std::uint64_t salt = 0;
    DeviceId from, to;
    std::uint32_t first = 0, count = 0;  // in links_
  };
  std::uint32_t Candidate(const cluster::Cluster& cluster, DeviceId from, DeviceId to,
                          std::uint64_t salt, std::uint64_t k) {
    const std::uint64_t which = (salt + k) % kCandidates;
    if (salt != cluster::kByRail) return Find(cluster, from, to, which);
    return FindByRail(cluster, from, to, which);
  }
  std::uint32_t FindByRail(const cluster::Cluster& cluster, DeviceId from, DeviceId to,
                           std::uint64_t which);
  void Grow();
  std::size_t Slot(DeviceId from, DeviceId to, std::uint64_t salt) const;

  std::vector<Entry> entries_;
  std::vector<LinkId> links_;
  std::map<std::tuple<DeviceId, DeviceId, std::uint64_t>, std::uint32_t> by_rail_;
  std::vector<std::uint32_t> table_;  // numbers of entries, a power of two of them
  std::vector<LinkId> route_;         // scratch
};

}  // namespace orrery::network
