#include <algorithm>

#include "orrery/collective/collective.h"

namespace orrery::collective {
namespace {

// What one NVLink domain of a group looks like; members of a domain usually stand together, so that
// a linear look from the last domain back finds it at once.
struct Domain {
  std::size_t number = 0;
  int ranks = 0;
  std::vector<std::uint32_t> nics;  // global, sorted, distinct
};

std::vector<Domain> DomainsOf(const cluster::Cluster& cluster, std::span<const DeviceId> members) {
  std::vector<std::pair<std::size_t, std::uint32_t>> places;
  places.reserve(members.size());
  for (DeviceId d : members) places.emplace_back(cluster.nvlink_domain(d), cluster.nic(d).value);
  std::sort(places.begin(), places.end());
  std::vector<Domain> domains;
  for (const auto& [number, nic] : places) {
    if (domains.empty() || domains.back().number != number) domains.push_back({number, 0, {}});
    Domain& domain = domains.back();
    ++domain.ranks;
    if (domain.nics.empty() || domain.nics.back() != nic) domain.nics.push_back(nic);
  }
  return domains;
}

}  // namespace

GroupShape ShapeOf(const cluster::Cluster& cluster, std::span<const DeviceId> members) {
  GroupShape shape;
  shape.ranks = static_cast<int>(members.size());
  const std::vector<Domain> domains = DomainsOf(cluster, members);
  shape.domains = static_cast<int>(domains.size());
  shape.ranks_per_domain = 0;
  shape.nics = domains.empty() ? 1 : static_cast<int>(domains[0].nics.size());
  for (const Domain& domain : domains) {
    shape.ranks_per_domain = std::max(shape.ranks_per_domain, domain.ranks);
    shape.nics = std::min(shape.nics, static_cast<int>(domain.nics.size()));
    if (domain.ranks != domains[0].ranks) shape.uniform = false;
  }
  if (shape.domains < 2) return shape;
  // Rail by rail from the first domain. NICs under one leaf have one way, which is looked up once.
  shape.network_hops = 1;
  for (std::size_t i = 0; i < domains[0].nics.size(); ++i) {
    const NicId first(domains[0].nics[i]);
    std::size_t seen = cluster.leaf(first);
    for (const Domain& domain : domains) {
      if (i >= domain.nics.size() || domain.nics[i] == first.value) continue;
      const NicId other(domain.nics[i]);
      const std::size_t leaf = cluster.leaf(other);
      if (leaf == seen) continue;
      seen = leaf;
      shape.network_hops = std::max(shape.network_hops, cluster.switches_between(first, other));
    }
  }
  return shape;
}

}  // namespace orrery::collective
