#include "orrery/astra/network.h"

#include <algorithm>

namespace orrery::astra {

Network::Network(const NetworkConfig& config) : dimensions_(config.dimensions) {
  if (!config.congestion_aware) return;
  const auto n = static_cast<std::size_t>(dimensions_[0].npus);
  links_.resize(dimensions_[0].shape == Shape::kFullyConnected ? n * n : 2 * n);
}

Tick Network::Delay(std::uint32_t from, std::uint32_t to, std::uint64_t bytes) const {
  std::uint32_t a = from, b = to;
  for (const Dimension& d : dimensions_) {
    const auto n = static_cast<std::uint32_t>(d.npus);
    const std::uint32_t x = a % n, y = b % n;
    if (x == y) {
      a /= n;
      b /= n;
      continue;
    }
    int hops = d.shape == Shape::kSwitch ? 2 : 1;
    if (d.shape == Shape::kRing) {
      const std::uint32_t way = (y + n - x) % n;
      hops = static_cast<int>(std::min(way, n - way));
    }
    const double latency = hops * d.latency;
    return static_cast<Tick>(latency + static_cast<double>(bytes) / d.bandwidth);
  }
  return 0;
}

Network::Step Network::NextStep(std::uint32_t device, std::uint32_t to) const {
  const auto n = static_cast<std::uint32_t>(dimensions_[0].npus);
  switch (dimensions_[0].shape) {
    case Shape::kFullyConnected:
      return {device * n + to, to};
    case Shape::kSwitch:
      return device < n ? Step{device, n} : Step{n + to, to};
    case Shape::kRing:
      break;
  }
  const std::uint32_t way = (to + n - device) % n;
  if (n - way < way) return {n + device, (device + n - 1) % n};
  return {device, (device + 1) % n};
}

Tick Network::Busy(std::uint64_t bytes) const {
  return static_cast<Tick>(static_cast<double>(bytes) / dimensions_[0].bandwidth);
}

Tick Network::Transit(std::uint64_t bytes) const {
  const Dimension& d = dimensions_[0];
  return static_cast<Tick>(d.latency + static_cast<double>(bytes) / d.bandwidth);
}

}  // namespace orrery::astra
