#include "orrery/collective/choice/ring_order.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

namespace orrery::collective {

RingOrder::RingOrder(const cluster::Cluster& cluster, std::span<const DeviceId> members,
                     const Graphs* graphs)
    : graphs_(graphs) {
  for (const DeviceId d : members) local_.push_back(cluster.local_index(d));
  // Domains in the order of their first member, as NCCL numbers nodes.
  std::unordered_map<std::size_t, std::size_t> index;
  std::vector<std::vector<std::uint32_t>> of_domain;
  for (std::uint32_t m = 0; m < members.size(); ++m) {
    const auto [it, added] = index.try_emplace(cluster.nvlink_domain(members[m]), of_domain.size());
    if (added) of_domain.emplace_back();
    of_domain[it->second].push_back(m);
  }
  for (std::vector<std::uint32_t>& in : of_domain) {
    std::stable_sort(in.begin(), in.end(), [&](std::uint32_t a, std::uint32_t b) {
      return cluster.nic(members[a]) < cluster.nic(members[b]);
    });
    Domain domain;
    domain.members = std::move(in);
    for (std::uint32_t i = 0; i < domain.members.size(); ++i) {
      const auto nic = [&](std::uint32_t k) { return cluster.nic(members[domain.members[k]]); };
      if (i == 0 || nic(i) != nic(i - 1)) domain.first_of_nic.push_back(i);
    }
    domain.first_of_nic.push_back(static_cast<std::uint32_t>(domain.members.size()));
    AddRings(cluster.pcie_tree().nvlinks(), &domain);
    domains_.push_back(std::move(domain));
  }
}

void RingOrder::AddRings(const cluster::NvlinkMesh& mesh, Domain* domain) const {
  if (!mesh.any()) return;
  std::vector<std::uint32_t> gpus;
  for (const std::uint32_t m : domain->members) {
    gpus.push_back(static_cast<std::uint32_t>(local_[m]));
  }
  std::ranges::sort(gpus);
  domain->rings = mesh.Rings(gpus);
  for (std::vector<std::uint32_t>& ring : domain->rings) {
    for (std::uint32_t& gpu : ring) {
      gpu = *std::ranges::find(domain->members, static_cast<int>(gpu),
                               [&](std::uint32_t m) { return local_[m]; });
    }
  }
}

void RingOrder::AlongNvlinks(const Domain& domain, int channel,
                             std::vector<std::uint32_t>* order) const {
  std::vector<std::uint32_t> ring =
      domain.rings[static_cast<std::size_t>(channel) % domain.rings.size()];
  const std::size_t nic = static_cast<std::size_t>(channel) % domain.nics();
  const std::uint32_t first = domain.members[domain.first_of_nic[nic]];
  std::rotate(ring.begin(), std::ranges::find(ring, first), ring.end());
  order->insert(order->end(), ring.begin(), ring.end());
}

bool RingOrder::FromFile(const Graph& graph, const Domain& domain, int channel,
                         std::vector<std::uint32_t>* order) const {
  if (!graph.given) return false;
  const auto number = static_cast<std::size_t>(channel) % graph.channels.size();
  const std::size_t before = order->size();
  for (const int gpu : graph.channels[number].gpus) {
    const auto member =
        std::ranges::find_if(domain.members, [&](std::uint32_t m) { return local_[m] == gpu; });
    if (member != domain.members.end()) order->push_back(*member);
  }
  if (order->size() - before == domain.members.size()) return true;
  order->resize(before);  // the same number of GPUs, but others
  return false;
}

void RingOrder::ChainOf(std::size_t number, int channel, std::vector<std::uint32_t>* order) const {
  const Domain& domain = domains_[number];
  if (graphs_ != nullptr && FromFile(graphs_->tree, domain, channel, order)) return;
  if (!domain.rings.empty()) return AlongNvlinks(domain, channel, order);
  const std::size_t nic = static_cast<std::size_t>(channel) % domain.nics();
  const std::size_t size = domain.members.size();
  for (std::size_t i = 0; i < size; ++i) {
    order->push_back(domain.members[(domain.first_of_nic[nic] + i) % size]);
  }
}

void RingOrder::Ring(int channel, std::vector<std::uint32_t>* order) const {
  order->clear();
  for (std::size_t number = 0; number < domains_.size(); ++number) {
    const Domain& domain = domains_[number];
    if (graphs_ != nullptr && graphs_->ring.given) {
      // Where a ring leaves by another NIC than it comes in, the two of a pair change places on
      // every second host: each crossing stays on a rail.
      const auto& channels = graphs_->ring.channels;
      const auto at = static_cast<std::size_t>(channel) % channels.size();
      const auto& nets = channels[at].nets;
      const bool crosses = nets.size() == 2 && nets[0] != nets[1] && channels.size() % 2 == 0;
      const int one = crosses && number % 2 == 1 ? static_cast<int>(at ^ 1) : channel;
      if (FromFile(graphs_->ring, domain, one, order)) continue;
    }
    if (!domain.rings.empty()) {
      AlongNvlinks(domain, channel, order);
      continue;
    }
    const std::size_t size = domain.members.size();
    const std::size_t nic = static_cast<std::size_t>(channel) % domain.nics();
    std::size_t entry = domain.first_of_nic[nic];
    std::size_t exit = domain.first_of_nic[nic + 1] - 1;
    if (entry == exit && size > 1 && domains_.size() > 1) {
      exit = domain.first_of_nic[(nic + 1) % domain.nics()];
      if (number % 2 == 1) std::swap(entry, exit);
    }
    order->push_back(domain.members[entry]);
    for (std::size_t i = 1; i < size; ++i) {
      const std::size_t at = (entry + i) % size;
      if (at != exit) order->push_back(domain.members[at]);
    }
    if (exit != entry) order->push_back(domain.members[exit]);
  }
}

BinaryNode BinaryTree(int node, int count) {
  BinaryNode result;
  if (node == 0) {
    int top = 1;
    while (2 * top < count) top *= 2;
    if (count > 1) result.child[0] = top;
    return result;
  }
  const int bit = node & -node;
  const int up = (node ^ bit) | (2 * bit);
  result.parent = up < count ? up : node ^ bit;
  if (bit == 1) return result;
  result.child[0] = node - bit / 2;
  for (int half = bit / 2; half >= 1; half /= 2) {
    if (node + half < count) {
      result.child[1] = node + half;
      break;
    }
  }
  return result;
}

BinaryNode SecondBinaryTree(int node, int count) {
  const bool mirror = count % 2 == 0;
  const auto into = [&](int x) { return mirror ? count - 1 - x : (x - 1 + count) % count; };
  const auto back = [&](int x) { return x < 0 ? -1 : mirror ? count - 1 - x : (x + 1) % count; };
  BinaryNode result = BinaryTree(into(node), count);
  result.parent = back(result.parent);
  for (int& child : result.child) child = back(child);
  return result;
}

}  // namespace orrery::collective
