#include "orrery/network/owners.h"

#include <algorithm>

namespace orrery::network {
namespace {

constexpr std::uint32_t kNobody = 0xFFFFFFFFu;

// `to` goes with the lowest partition among those it takes from; kNobody gives nothing.
void Inherit(std::vector<std::uint32_t>* owner, std::uint32_t to, std::uint32_t from) {
  (*owner)[to] = std::min((*owner)[to], (*owner)[from]);
}

}  // namespace

Result<Owners> FindOwners(const cluster::Cluster& cluster,
                          std::span<const std::uint32_t> partition_of_domain) {
  using cluster::LinkKind;
  const std::span<const cluster::Link> links = cluster.links();
  std::uint32_t vertices = 0, partitions = 1;
  for (const cluster::Link& l : links) vertices = std::max({vertices, l.from + 1, l.to + 1});
  for (const std::uint32_t p : partition_of_domain) partitions = std::max(partitions, p + 1);

  std::vector<std::uint32_t> owner(vertices, kNobody);  // by vertex
  std::vector<LinkId> path;
  const std::size_t devices = cluster.devices();
  for (std::size_t d = 0; d < devices && devices > 1; ++d) {
    const std::size_t domain = cluster.nvlink_domain(DeviceId(d));
    if (domain >= partition_of_domain.size()) {
      return InvalidInput("NVLink domain {} has no partition; {} domains have one", domain,
                          partition_of_domain.size());
    }
    cluster.Route(DeviceId(d), DeviceId((d + 1) % devices), 0, &path);
    if (!path.empty()) owner[links[path.front().index()].from] = partition_of_domain[domain];
  }
  // From GPUs to their NVLink switches, through PCIe to NICs, from NICs to leaves. Every pass
  // climbs or descends one PCIe switch; eight stand in each other at most.
  std::vector<LinkKind> order = {LinkKind::kNvlink, LinkKind::kPcie};
  if (cluster.pcie_tree().any()) {
    order.insert(order.end(), 9, LinkKind::kPcieUp);
    order.push_back(LinkKind::kSocket);
    order.insert(order.end(), 8, LinkKind::kPcieUp);
    order.push_back(LinkKind::kPcie);
  }
  order.push_back(LinkKind::kNicUp);
  for (const LinkKind kind : order) {
    const std::vector<std::uint32_t> before = owner;
    for (const cluster::Link& l : links) {
      if (l.kind == kind && before[l.to] == kNobody) Inherit(&owner, l.to, l.from);
    }
  }
  std::uint32_t dealt = 0;
  for (std::uint32_t& o : owner) {
    if (o == kNobody) o = dealt++ % partitions;
  }
  Owners owners;
  for (const cluster::Link& l : links) {
    owners.link.push_back(owner[l.from]);
    if (owner[l.from] == owner[l.to]) continue;
    if (l.latency <= 0) {
      return InvalidInput("the link {} to {} has no latency and cannot cross partitions",
                          cluster.vertex_name(l.from), cluster.vertex_name(l.to));
    }
    owners.lookahead = std::min(owners.lookahead, l.latency);
  }
  return owners;
}

}  // namespace orrery::network
