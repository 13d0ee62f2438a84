// Paths between GPUs, each computed once per (from, to, salt) and kept end to end in one array.
//
// Cost: a look-up is one probe of an open-addressed table; 32 bytes a connection and 4 a hop.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "orrery/cluster/cluster.h"

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
  // equals, counted from the transfer's own. O(kCandidates · cost).
  static constexpr std::uint64_t kCandidates = 16;
  template <class Cost>
  std::uint32_t FindLeast(const cluster::Cluster& cluster, DeviceId from, DeviceId to,
                          std::uint64_t salt, Cost cost) {
    std::uint32_t best = Find(cluster, from, to, salt % kCandidates);
    auto least = cost(path(best));
    for (std::uint64_t k = 1; k < kCandidates; ++k) {
      const std::uint32_t other = Find(cluster, from, to, (salt + k) % kCandidates);
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
  void Grow();
  std::size_t Slot(DeviceId from, DeviceId to, std::uint64_t salt) const;

  std::vector<Entry> entries_;
  std::vector<LinkId> links_;
  std::vector<std::uint32_t> table_;  // numbers of entries, a power of two of them
  std::vector<LinkId> route_;         // scratch
};

}  // namespace orrery::network
