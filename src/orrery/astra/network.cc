#include "orrery/astra/network.h"

#include <algorithm>
#include <cstddef>

namespace orrery::astra {
namespace {

constexpr std::size_t kMostLinks = std::size_t{1} << 26;

// Two from every NPU, or one to each other of its row.
std::size_t LinksOf(const Dimension& d, std::size_t npus) {
  return npus * (d.shape == Shape::kFullyConnected ? static_cast<std::size_t>(d.npus) : 2);
}

}  // namespace

Status Network::Check(const NetworkConfig& config) {
  if (!config.congestion_aware) return {};
  std::size_t links = 0;
  for (const Dimension& d : config.dimensions) links += LinksOf(d, config.npus());
  if (links <= kMostLinks) return {};
  return InvalidInput("the congestion-aware network has {} links, more than {}", links, kMostLinks);
}

Network::Network(const NetworkConfig& config)
    : dimensions_(config.dimensions), npus_(static_cast<std::uint32_t>(config.npus())) {
  if (!config.congestion_aware) return;
  for (std::size_t d = 0; d < dimensions_.size(); ++d) {
    first_link_.push_back(static_cast<std::uint32_t>(links_.size()));
    Link link;
    link.dimension = static_cast<std::uint8_t>(d);
    links_.resize(links_.size() + LinksOf(dimensions_[d], npus_), link);
  }
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
    return WholeTicks(latency + static_cast<double>(bytes) / d.bandwidth);
  }
  return 0;
}

Network::Step Network::NextStep(std::uint32_t device, std::uint32_t to) const {
  if (device >= npus_) {  // a switch
    const std::uint32_t dimension = device / npus_ - 1, npu = device % npus_;
    return {first_link_[dimension] + npus_ + npu, npu};
  }
  std::uint32_t stride = 1;
  for (std::uint32_t d = 0; d < dimensions_.size(); ++d) {
    const auto n = static_cast<std::uint32_t>(dimensions_[d].npus);
    const std::uint32_t x = device / stride % n, y = to / stride % n;
    if (x == y) {
      stride *= n;
      continue;
    }
    const std::uint32_t first = first_link_[d];
    const auto at = [&](std::uint32_t place) { return device - x * stride + place * stride; };
    switch (dimensions_[d].shape) {
      case Shape::kFullyConnected:
        return {first + device * n + y, at(y)};
      case Shape::kSwitch:
        return {first + device, (d + 1) * npus_ + at(y)};
      case Shape::kRing:
        break;
    }
    const std::uint32_t way = (y + n - x) % n;
    if (n - way < way) return {first + npus_ + device, at((x + n - 1) % n)};
    return {first + device, at((x + 1) % n)};
  }
  return {};
}

Tick Network::Busy(const Link& link, std::uint64_t bytes) const {
  return WholeTicks(static_cast<double>(bytes) / dimensions_[link.dimension].bandwidth);
}

Tick Network::Transit(const Link& link, std::uint64_t bytes) const {
  const Dimension& d = dimensions_[link.dimension];
  return WholeTicks(d.latency + static_cast<double>(bytes) / d.bandwidth);
}

}  // namespace orrery::astra
