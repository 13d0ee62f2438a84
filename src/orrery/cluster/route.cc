// Ways through a cluster (cluster.h: Route).
#include <algorithm>
#include <variant>

#include "orrery/base/rng.h"
#include "orrery/cluster/cluster.h"
#include "orrery/cluster/salts.h"

namespace orrery::cluster {

int Cluster::switches_between(NicId a, NicId b) const {
  if (const auto* clos = std::get_if<Clos>(&fabric_)) {
    return clos->switches_between(a.index(), b.index());  // planning asks often
  }
  std::vector<LinkId> path;
  std::visit([&](const auto& f) { f.Route(origin_, a.index(), b.index(), {}, &path); }, fabric_);
  int switches = 0;
  for (const LinkId id : path) {
    if (links_[id.index()].to >= origin_.first_switch) ++switches;
  }
  return switches;
}

// The GPU of from's host and NVLink domain whose NIC is on to's rail; `from` where there is none.
DeviceId Cluster::RailPeer(DeviceId from, DeviceId to) const {
  const auto per_node = static_cast<std::size_t>(spec_.nics_per_node);
  const std::size_t rail = nic(to).index() % per_node;
  if (nic(from).index() % per_node == rail) return from;
  const auto gpus = static_cast<std::size_t>(spec_.gpus_per_node);
  const DeviceId peer(from.index() / gpus * gpus + rail * (gpus / per_node));
  const bool joined = spec_.gpus_per_nvlink_domain > 1 && !peers_over_pcie() &&
                      nvlink_domain(peer) == nvlink_domain(from);
  return joined ? peer : from;
}

// Up: PCIe, NIC, and of the fabric's way the first half or only its first link. Down: the same
// backwards. A cable is two links, the one up before the one down (Clos::AddLinks).
void Cluster::RoutePart(DeviceId from, DeviceId to, std::uint64_t salt,
                        std::vector<LinkId>* path) const {
  const bool down = salt == kOutOfLeaf || salt == kOutOfTop;
  const DeviceId member = down ? to : from;
  const std::size_t own = nic(member).index(), other = nic(down ? from : to).index();
  path->push_back(pcie_out(member));
  path->push_back(LinkId(origin_.first_link + 2 * own));
  if ((salt == kIntoTop || salt == kOutOfTop) && own != other) {
    path->pop_back();
    const std::size_t begin = path->size();
    std::get<Clos>(fabric_).Route(origin_, own, other, {.fixed = true}, path);
    path->resize(begin + (path->size() - begin) / 2);
  }
  if (!down) return;
  std::reverse(path->begin(), path->end());
  for (LinkId& link : *path) link = LinkId(link.index() + 1);
}

void Cluster::Route(DeviceId from, DeviceId to, std::uint64_t salt,
                    std::vector<LinkId>* path) const {
  path->clear();
  if (InFabric(salt)) return RoutePart(from, to, salt, path);
  if (salt >= kThroughSwitch) {
    if (salt != kOutOfSwitch) path->push_back(nvlink_out(from));
    if (salt != kIntoSwitch) path->push_back(nvlink_in(to));
    return;
  }
  if (from == to) return;
  const Choice choice{.hash = HashCombine(HashCombine(salt, from.value), to.value),
                      .fixed = spec_.topology.routing == Routing::kStatic};
  if (direct()) {
    std::visit([&](const auto& f) { f.Route(origin_, from.index(), to.index(), choice, path); },
               fabric_);
    return;
  }
  const auto local = [this](DeviceId d) { return static_cast<std::size_t>(local_index(d)); };
  if (spec_.gpus_per_nvlink_domain > 1 && nvlink_domain(from) == nvlink_domain(to)) {
    if (nvlinks_between(from, to) > 0) {
      path->push_back(pcie_tree_.Nvlink(local(from), local(to), tree_link(node(from))));
      return;
    }
    if (peers_over_pcie()) {
      path->push_back(pcie_out(from));
      pcie_tree_.Between(local(from), local(to), tree_link(node(from)), path);
      path->push_back(pcie_in(to));
      return;
    }
    path->push_back(nvlink_out(from));
    path->push_back(nvlink_in(to));
    return;
  }
  if (spec_.topology.routing == Routing::kRailLocal || salt == kByRail) {
    const DeviceId peer = RailPeer(from, to);
    if (peer != from) {
      path->push_back(nvlink_out(from));
      path->push_back(nvlink_in(peer));
      from = peer;
    }
  }
  const NicId out = nic(from);
  const NicId in = nic(to);
  const auto per_node = static_cast<std::size_t>(spec_.nics_per_node);
  path->push_back(pcie_out(from));
  if (pcie_tree_.any()) {
    pcie_tree_.ToNic(local(from), out.index() % per_node, tree_link(node(from)), path);
  }
  if (out != in) {
    std::visit([&](const auto& f) { f.Route(origin_, out.index(), in.index(), choice, path); },
               fabric_);
  }
  if (pcie_tree_.any()) {
    pcie_tree_.FromNic(in.index() % per_node, local(to), tree_link(node(to)), path);
  }
  path->push_back(pcie_in(to));
}

}  // namespace orrery::cluster
