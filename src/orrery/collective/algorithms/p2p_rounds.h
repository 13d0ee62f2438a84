// In which order NCCL runs the sends and receives of an all-to-all, and on which channels.
//
// Ranks stand in groups of at most 8 (Plan::p2p_group) of one NVLink domain (of all its ranks where
// there is but one domain). A round is a group's distance d and a place's distance l: rank x of
// group i sends to rank x + l of group i + d and receives from rank x - l of group i - d, so that
// each round is a permutation; d runs through 0, 1, 3, 6, 10 … modulo the next power of two. A
// round's message is cut over `parts` neighbouring channels, the first of which is the round's (of
// several domains: the group's) number with its bits reversed. A channel runs up to 8 messages, a
// batch, at a time. Source: NVIDIA/nccl src/init.cc, src/include/channel.h, src/enqueue.cc.
#pragma once

#include <bit>
#include <numeric>
#include <vector>

#include "orrery/collective/collective.h"

namespace orrery::collective::p2p {

inline constexpr int kBatch = 8;

struct Rounds {
  int ranks = 1;
  int group = 1;     // ranks of one
  int channels = 1;  // of the pool; a power of two
  int parts = 1;     // of a message
  bool spans = false;

  // REQUIRES: model::IsExchange(plan.collective).
  explicit Rounds(const Plan& plan)
      : ranks(plan.shape.ranks),
        channels(std::max(1, plan.lanes)),
        parts(std::min(std::max(1, plan.channels), channels)),
        spans(plan.shape.domains > 1) {
    // An uneven group's common divisor is not in its shape: of what every domain may hold.
    const int p = plan.shape.ranks_per_domain;
    group = !spans ? ranks : plan.shape.uniform ? std::gcd(plan.p2p_group, p) : 1;
  }
  int groups() const { return ranks / group; }
  // Rounds that begin on one channel one after the other.
  int per_base() const { return spans ? group : 1; }
  int bases() const { return ranks / per_base(); }
  int Base(int round) const { return Reversed(round / per_base() % channels); }
  // Bases that fall on a channel.
  int BasesOn(int channel) const {
    const int first = Reversed(channel);
    return first < bases() ? (bases() - 1 - first) / channels + 1 : 0;
  }
  // Distances between groups, in the order of rounds.
  std::vector<int> GroupDistances() const {
    std::vector<int> distances;
    const int n = groups();
    const int mask = static_cast<int>(std::bit_ceil(static_cast<unsigned>(n))) - 1;
    for (int k = 0, d = 0; k <= mask; ++k, d = (d + k) & mask) {
      if (d < n) distances.push_back(d);
    }
    return distances;
  }

 private:
  int Reversed(int value) const {
    int out = 0;
    for (int bit = 1; bit < channels; bit *= 2) out = 2 * out + (value & bit ? 1 : 0);
    return out;
  }
};

}  // namespace orrery::collective::p2p
