#include "orrery/astra/greedy.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace orrery::astra {
namespace {

constexpr double kMiB = 1048576;

}  // namespace

GreedyScheduler::GreedyScheduler(const NetworkConfig& network, std::size_t ranks)
    : dimensions_(network.dimensions), ranks_(ranks), loads_(dimensions_.size()) {
  Forget();
}

void GreedyScheduler::Forget() {
  for (std::size_t i = 0; i < loads_.size(); ++i) loads_[i] = {static_cast<int>(i), 0};
}

GreedyScheduler::Chunk GreedyScheduler::Next(std::uint64_t chunk, std::uint64_t left,
                                             std::uint64_t wanted, unsigned involved, bool flexible,
                                             Collective collective) {
  const auto [at, fresh] = kept_.try_emplace(chunk);
  if (fresh) {
    at->second.chunk =
        Decide(left, wanted, involved, flexible, collective == Collective::kAllGather);
  }
  Chunk result = at->second.chunk;
  if (++at->second.asked == ranks_) kept_.erase(at);
  return result;
}

// What 1 MiB costs a dimension of n NPUs: (n - 1)/n of it is sent, of a gathered share n - 1.
double GreedyScheduler::Share(int d, bool gather) const {
  const Dimension& dimension = dimensions_[static_cast<std::size_t>(d)];
  const double others = dimension.npus - 1;
  return gather ? others : others / dimension.npus;
}

std::uint64_t GreedyScheduler::BytesFor(double elapsed, int d, bool gather) const {
  const double speed =
      dimensions_[static_cast<std::size_t>(d)].bandwidth_gb / dimensions_[0].bandwidth_gb;
  return static_cast<std::uint64_t>((elapsed * speed) / Share(d, gather) * kMiB);
}

void GreedyScheduler::Spend(int d, bool gather, Load* load, std::uint64_t* bytes) const {
  const Dimension& dimension = dimensions_[static_cast<std::size_t>(d)];
  load->elapsed += (static_cast<double>(*bytes) / kMiB * Share(d, gather)) /
                   (dimension.bandwidth_gb / dimensions_[0].bandwidth_gb);
  const auto n = static_cast<std::uint64_t>(dimension.npus);
  *bytes = gather ? *bytes * n : *bytes / n;
}

// How many bytes the first dimension in line could take before the last has as much to do.
std::uint64_t GreedyScheduler::Slack(std::size_t at, unsigned involved, bool gather) const {
  if (!gather) {
    const double gap = std::fabs(loads_.back().elapsed - loads_[at].elapsed);
    return BytesFor(gap, loads_[at].dimension, false);
  }
  std::size_t last = loads_.size() - 1;
  while (!Used(loads_[last].dimension, involved)) --last;
  const double gap = std::fabs(loads_[last].elapsed - loads_[at].elapsed);
  std::uint64_t bytes = BytesFor(gap, loads_[last].dimension, true);
  for (std::size_t i = at; i < last; ++i) {
    if (!Used(loads_[i].dimension, involved)) continue;
    bytes /=
        static_cast<std::uint64_t>(dimensions_[static_cast<std::size_t>(loads_[i].dimension)].npus);
  }
  return bytes;
}

GreedyScheduler::Chunk GreedyScheduler::Decide(std::uint64_t left, std::uint64_t wanted,
                                               unsigned involved, bool flexible, bool gather) {
  std::sort(loads_.begin(), loads_.end(),
            [](const Load& a, const Load& b) { return a.elapsed < b.elapsed; });
  if (gather) std::reverse(loads_.begin(), loads_.end());
  std::size_t first = 0;
  while (first < loads_.size() && !Used(loads_[first].dimension, involved)) ++first;
  std::uint64_t bytes = wanted;
  if (first < loads_.size()) {
    const std::uint64_t slack = Slack(first, involved, gather);
    if (flexible) bytes = slack;
    if (flexible ? slack < wanted : slack < wanted / 16) {
      const std::uint64_t next = std::min(left, wanted);
      return InOrder(next, flexible ? next : wanted, involved, gather);
    }
  }
  Chunk chunk;
  chunk.bytes = std::min(left, bytes);
  for (Load& load : loads_) {
    chunk.order.push_back(load.dimension);
    if (Used(load.dimension, involved)) Spend(load.dimension, gather, &load, &bytes);
  }
  return chunk;
}

// Loads are even: dimensions as they come. A gather's time is counted, as in ASTRA-sim, for the
// dimension at the other end.
GreedyScheduler::Chunk GreedyScheduler::InOrder(std::uint64_t bytes, std::uint64_t counted,
                                                unsigned involved, bool gather) {
  Chunk chunk;
  chunk.bytes = bytes;
  chunk.order.resize(loads_.size());
  std::iota(chunk.order.begin(), chunk.order.end(), 0);
  std::sort(loads_.begin(), loads_.end(),
            [](const Load& a, const Load& b) { return a.dimension < b.dimension; });
  if (gather) std::reverse(loads_.begin(), loads_.end());
  for (std::size_t d = 0; d < loads_.size(); ++d) {
    const int dimension = static_cast<int>(d);
    if (Used(dimension, involved)) Spend(dimension, gather, &loads_[d], &counted);
  }
  return chunk;
}

}  // namespace orrery::astra
