// Paths round links that are down.
//
// Rule. A connection whose own path crosses a link that is down takes another that its routing
// could have given it: the first without such a link of kTries, by as many hashes of its salt (ECMP
// over what remains). Where none is clean, a shortest path over what is up: switches pass traffic
// on, of a direct fabric GPUs too, NICs and other hosts' GPUs do not; of equal next hops the hash
// takes one.
//
// Cost: O(tries · path); a search O(links), kept by no one.
#pragma once

#include <cstdint>
#include <vector>

#include "orrery/cluster/cluster.h"

namespace orrery::cluster {

class Detours {
 public:
  static constexpr std::uint64_t kTries = 32;

  Detours() = default;
  explicit Detours(const Cluster& cluster);

  // Fills `path`; false (and the connection's own path) where none is left. `down` is by link.
  bool Find(DeviceId from, DeviceId to, std::uint64_t salt, const std::vector<bool>& down,
            std::vector<LinkId>* path);
  // The same from a vertex on the way; adds to `path`, and leaves it alone where none is left.
  bool FindFrom(std::uint32_t vertex, DeviceId to, std::uint64_t salt,
                const std::vector<bool>& down, std::vector<LinkId>* path);

 private:
  bool Passes(std::uint32_t vertex) const;
  bool OwnHost(std::uint32_t v, std::uint32_t from, DeviceId to) const;

  const Cluster* cluster_ = nullptr;
  std::vector<std::uint32_t> first_in_, in_;    // links by the vertex that they end at
  std::vector<std::uint32_t> first_out_, out_;  // by the vertex that they begin at
  // Scratch.
  std::vector<std::uint32_t> distance_, queue_;
};

}  // namespace orrery::cluster
