// Which device each rank gets: packed, random by whole nodes, explicit.
#include <algorithm>
#include <vector>

#include "orrery/base/rng.h"
#include "orrery/cluster/cluster.h"

namespace orrery::cluster {
namespace {

std::vector<char> Taken(const Cluster& cluster, const Placement& placement) {
  std::vector<char> taken(cluster.devices(), 0);
  for (DeviceId d : placement.device) {
    if (d.index() < taken.size()) taken[d.index()] = 1;
  }
  return taken;
}

// Free nodes in random order if they can hold all ranks (in order inside a node); else free devices
// in random order.
std::vector<std::size_t> RandomDevices(const Cluster& cluster, const std::vector<char>& taken,
                                       std::size_t ranks, std::uint64_t seed) {
  const auto per_node = static_cast<std::size_t>(cluster.spec().gpus_per_node);
  std::vector<std::size_t> nodes;
  for (std::size_t n = 0; n * per_node < taken.size(); ++n) {
    const auto first = taken.begin() + static_cast<std::ptrdiff_t>(n * per_node);
    if (std::all_of(first, first + static_cast<std::ptrdiff_t>(per_node),
                    [](char t) { return t == 0; })) {
      nodes.push_back(n);
    }
  }
  CounterRng rng(seed);
  std::vector<std::size_t> devices;
  if (ranks % per_node == 0 && nodes.size() * per_node >= ranks) {
    rng.Shuffle(&nodes);
    for (std::size_t n : nodes) {
      for (std::size_t i = 0; i < per_node; ++i) devices.push_back(n * per_node + i);
    }
  } else {
    for (std::size_t d = 0; d < taken.size(); ++d) {
      if (taken[d] == 0) devices.push_back(d);
    }
    rng.Shuffle(&devices);
  }
  devices.resize(ranks);
  return devices;
}

}  // namespace

Status Place(const Cluster& cluster, PlacementKind kind, std::size_t ranks, std::uint64_t seed,
             std::span<const DeviceId> devices, Placement* placement) {
  std::vector<char> taken = Taken(cluster, *placement);
  const auto free = static_cast<std::size_t>(std::count(taken.begin(), taken.end(), 0));
  if (ranks > free) {
    return InvalidInput("{} ranks need {} GPUs, but {} of the cluster's {} are free; raise nodes",
                        ranks, ranks, free, cluster.devices());
  }
  std::vector<std::size_t> chosen;
  switch (kind) {
    case PlacementKind::kPacked:
      for (std::size_t d = 0; chosen.size() < ranks; ++d) {
        if (taken[d] == 0) chosen.push_back(d);
      }
      break;
    case PlacementKind::kRandom:
      chosen = RandomDevices(cluster, taken, ranks, seed);
      break;
    case PlacementKind::kExplicit:
      if (devices.size() != ranks) {
        return InvalidInput("placement lists {} devices for {} ranks; list one a rank",
                            devices.size(), ranks);
      }
      for (DeviceId d : devices) {
        if (d.index() >= taken.size()) {
          return InvalidInput("placement: device {} does not exist; the cluster has 0 to {}",
                              d.index(), taken.size() - 1);
        }
        if (taken[d.index()] != 0) {
          return InvalidInput("placement: device {} is given to two ranks", d.index());
        }
        taken[d.index()] = 1;
        chosen.push_back(d.index());
      }
      break;
  }
  for (std::size_t d : chosen) placement->device.push_back(DeviceId(d));
  return {};
}

}  // namespace orrery::cluster
