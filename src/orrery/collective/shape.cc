#include <algorithm>

#include "orrery/collective/collective.h"

namespace orrery::collective {
namespace {

// The NICs of a group, domain by domain: a domain's stand from its `first` to the next one's,
// sorted and distinct.
struct Domain {
  std::uint32_t first = 0;
  int ranks = 0;
};
struct Domains {
  std::vector<NicId> nics;
  std::vector<Domain> list;  // and one more, that ends the last
  bool in_order = true;      // members come domain by domain, NIC by NIC

  std::size_t size() const { return list.size() - 1; }
  std::span<const NicId> NicsOf(std::size_t i) const {
    return {nics.data() + list[i].first, nics.data() + list[i + 1].first};
  }
};

Domains DomainsOf(const cluster::Cluster& cluster, std::span<const DeviceId> members) {
  std::vector<std::pair<std::size_t, NicId>> places;
  places.reserve(members.size());
  for (DeviceId d : members) places.emplace_back(cluster.nvlink_domain(d), cluster.nic(d));
  Domains domains;
  domains.in_order = std::is_sorted(places.begin(), places.end());
  if (!domains.in_order) std::sort(places.begin(), places.end());
  domains.nics.reserve(members.size());
  domains.list.reserve(members.size() + 1);
  for (std::size_t i = 0; i < places.size(); ++i) {
    const bool begins = i == 0 || places[i].first != places[i - 1].first;
    if (begins) domains.list.push_back({static_cast<std::uint32_t>(domains.nics.size()), 0});
    ++domains.list.back().ranks;
    if (begins || places[i].second != places[i - 1].second) {
      domains.nics.push_back(places[i].second);
    }
  }
  domains.list.push_back({static_cast<std::uint32_t>(domains.nics.size()), 0});
  return domains;
}

// Most switches between NICs of one rail, from the first domain to the others.
int NetworkHops(const cluster::Cluster& cluster, const Domains& domains) {
  int hops = 1;
  const std::span<const NicId> rails = domains.NicsOf(0);
  for (std::size_t i = 0; i < rails.size(); ++i) {
    std::size_t seen = cluster.leaf(rails[i]);  // NICs under one leaf have one way
    for (std::size_t d = 1; d < domains.size(); ++d) {
      const std::span<const NicId> nics = domains.NicsOf(d);
      if (i >= nics.size() || nics[i] == rails[i]) continue;
      const std::size_t leaf = cluster.leaf(nics[i]);
      if (leaf == seen) continue;
      seen = leaf;
      hops = std::max(hops, cluster.switches_between(rails[i], nics[i]));
    }
  }
  return hops;
}

// Most switches on the edge that closes a channel's ring, where it goes from a NIC of the last
// domain to its neighbour's rail in the first one: domains of an even number pair off
// (ring_order.h).
int WrapHops(const cluster::Cluster& cluster, const Domains& domains) {
  const std::span<const NicId> last = domains.NicsOf(domains.size() - 1);
  const std::span<const NicId> first = domains.NicsOf(0);
  const auto alone = [&](std::size_t d) {
    return domains.list[d].ranks == static_cast<int>(domains.NicsOf(d).size());
  };
  if (domains.size() % 2 == 0 || last.size() < 2 || !alone(domains.size() - 1)) return 0;
  int hops = 0;
  for (std::size_t i = 0; i < std::min(last.size(), first.size()); ++i) {
    hops = std::max(hops, cluster.switches_between(last[(i + 1) % last.size()], first[i]));
  }
  return hops;
}

// What of the hosts' PCIe trees the group feels: neighbours in the order of their numbers, which is
// that of the tree, and the way round from the last to the first.
void SetHostPaths(const cluster::Cluster& cluster, std::span<const DeviceId> members,
                  GroupShape* shape) {
  if (!cluster.pcie_tree().any()) return;
  if (shape->domains > 1) {
    for (const DeviceId d : members) {
      const auto distance = static_cast<std::uint8_t>(cluster.nic_distance(d));
      shape->nic_path = std::max<std::uint8_t>(shape->nic_path, distance + 1);
    }
  }
  if (!cluster.peers_over_pcie()) return;
  std::vector<DeviceId> sorted(members.begin(), members.end());
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::uint32_t> gpus;
  const cluster::NvlinkMesh& mesh = cluster.pcie_tree().nvlinks();
  bool alone = true;  // no domain so far has two members
  for (std::size_t first = 0, i = 0; i <= sorted.size(); ++i) {
    const bool ends = i == sorted.size() ||
                      cluster.nvlink_domain(sorted[i]) != cluster.nvlink_domain(sorted[first]);
    if (!ends) {
      gpus.push_back(static_cast<std::uint32_t>(cluster.local_index(sorted[i])));
      continue;
    }
    const auto over_pcie = [&](DeviceId a, DeviceId b) {
      const auto distance = static_cast<std::uint8_t>(cluster.peer_distance(a, b));
      shape->peer_path = std::max<std::uint8_t>(shape->peer_path, distance + 1);
      std::uint16_t& pairs = shape->peers[distance];
      if (pairs < 0xFFFF) ++pairs;
    };
    for (std::size_t k = first; k < i && i - first > 1 && !mesh.any(); ++k) {
      over_pcie(sorted[k], sorted[k + 1 < i ? k + 1 : first]);
    }
    if (mesh.any() && gpus.size() > 1) {
      const auto rings = static_cast<std::uint16_t>(mesh.Rings(gpus).size());
      std::uint16_t least = 0xFFFF;
      for (std::size_t a = 0; a < gpus.size(); ++a) {
        for (std::size_t b = a + 1; b < gpus.size(); ++b) {
          const int links = mesh.links(gpus[a], gpus[b]);
          if (links == 0) over_pcie(sorted[first + a], sorted[first + b]);
          least = std::min(least, static_cast<std::uint16_t>(links));
        }
      }
      shape->ring_nvlinks = alone ? rings : std::min(shape->ring_nvlinks, rings);
      shape->pair_nvlinks = alone ? least : std::min(shape->pair_nvlinks, least);
      alone = false;
    }
    shape->exchange =
        std::max(shape->exchange, cluster.pcie_tree().ExchangeStretch(cluster.spec(), gpus));
    if (i == sorted.size()) break;
    first = i--;
    gpus.clear();
  }
}

}  // namespace

bool OverPcie(const cluster::Spec& spec, const GroupShape& shape, Ways ways) {
  const int nvlinks = ways == Ways::kRings ? shape.ring_nvlinks : shape.pair_nvlinks;
  return spec.peers_over_pcie() && nvlinks == 0;
}

GroupShape ShapeOf(const cluster::Cluster& cluster, std::span<const DeviceId> members) {
  GroupShape shape;
  shape.ranks = static_cast<int>(members.size());
  const Domains domains = DomainsOf(cluster, members);
  shape.domains = static_cast<int>(domains.size());
  shape.in_order = domains.in_order;
  shape.ranks_per_domain = 0;
  shape.nics = members.empty() ? 1 : static_cast<int>(domains.NicsOf(0).size());
  for (std::size_t d = 0; d < domains.size(); ++d) {
    shape.ranks_per_domain = std::max(shape.ranks_per_domain, domains.list[d].ranks);
    shape.nics = std::min(shape.nics, static_cast<int>(domains.NicsOf(d).size()));
    if (domains.list[d].ranks != domains.list[0].ranks) shape.uniform = false;
  }
  if (shape.domains > 1) shape.network_hops = NetworkHops(cluster, domains);
  if (shape.domains > 1) shape.wrap_hops = WrapHops(cluster, domains);
  SetHostPaths(cluster, members, &shape);
  return shape;
}

}  // namespace orrery::collective
