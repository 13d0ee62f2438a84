#include "orrery/cluster/detour.h"

#include <algorithm>

#include "orrery/base/rng.h"
#include "orrery/cluster/salts.h"

namespace orrery::cluster {
namespace {

constexpr std::uint32_t kFar = 0xFFFFFFFFu;

bool Clean(const std::vector<LinkId>& path, const std::vector<bool>& down) {
  return std::ranges::none_of(path, [&](LinkId id) { return down[id.index()]; });
}

// Link numbers in order of one of their ends.
void IndexBy(std::span<const Link> links, std::size_t vertices, std::uint32_t Link::*end,
             std::vector<std::uint32_t>* first, std::vector<std::uint32_t>* order) {
  first->assign(vertices + 1, 0);
  order->resize(links.size());
  for (const Link& link : links) ++(*first)[link.*end + 1];
  for (std::size_t v = 0; v < vertices; ++v) (*first)[v + 1] += (*first)[v];
  std::vector<std::uint32_t> next(first->begin(), first->end() - 1);
  for (std::uint32_t l = 0; l < links.size(); ++l) (*order)[next[links[l].*end]++] = l;
}

}  // namespace

Detours::Detours(const Cluster& cluster) : cluster_(&cluster) {
  IndexBy(cluster.links(), cluster.vertices(), &Link::to, &first_in_, &in_);
  IndexBy(cluster.links(), cluster.vertices(), &Link::from, &first_out_, &out_);
}

bool Detours::Passes(std::uint32_t vertex) const {
  return cluster_->direct() || vertex >= cluster_->vertices() - cluster_->switches();
}

// With a PCIe tree: of what stands between GPUs and the fabric, trees pass everything on, a NIC
// what goes to its own GPUs or comes from them.
bool Detours::OwnHost(std::uint32_t v, std::uint32_t from, DeviceId to) const {
  const std::size_t first_nic = cluster_->devices() + cluster_->nvlink_domains();
  if (v < first_nic) return false;
  if (v >= first_nic + cluster_->nics()) return true;
  const NicId nic(v - first_nic);
  return nic == cluster_->nic(to) ||
         (from < cluster_->devices() && nic == cluster_->nic(DeviceId(from)));
}

bool Detours::Find(DeviceId from, DeviceId to, std::uint64_t salt, const std::vector<bool>& down,
                   std::vector<LinkId>* path) {
  cluster_->Route(from, to, salt, path);
  if (Clean(*path, down)) return true;
  if (HasOneWay(salt)) return false;  // multicast and reduction know one switch
  for (std::uint64_t k = 1; k < kTries; ++k) {
    cluster_->Route(from, to, HashCombine(salt, k) >> 1, path);
    if (Clean(*path, down)) return true;
  }
  path->clear();
  if (FindFrom(from.value, to, salt, down, path)) return true;
  cluster_->Route(from, to, salt, path);
  return false;
}

bool Detours::FindFrom(std::uint32_t vertex, DeviceId to, std::uint64_t salt,
                       const std::vector<bool>& down, std::vector<LinkId>* path) {
  if (HasOneWay(salt)) return false;
  const auto links = cluster_->links();
  // What stands between a GPU and the fabric passes on that GPU's traffic alone.
  const auto may_pass = [&](std::uint32_t v) {
    if (v == vertex || Passes(v)) return true;
    if (v < cluster_->devices()) return false;
    if (cluster_->pcie_tree().any()) return OwnHost(v, vertex, to);
    for (std::uint32_t i = first_out_[v]; i < first_out_[v + 1]; ++i) {
      const std::uint32_t next = links[out_[i]].to;
      if (next < cluster_->devices() && (next == to.value || next == vertex)) return true;
    }
    return false;
  };
  distance_.assign(cluster_->vertices(), kFar);
  queue_.assign(1, to.value);
  distance_[to.value] = 0;
  for (std::size_t head = 0; head < queue_.size() && distance_[vertex] == kFar; ++head) {
    const std::uint32_t at = queue_[head];
    for (std::uint32_t i = first_in_[at]; i < first_in_[at + 1]; ++i) {
      const std::uint32_t l = in_[i];
      const std::uint32_t before = links[l].from;
      if (down[l] || distance_[before] != kFar || !may_pass(before)) continue;
      distance_[before] = distance_[at] + 1;
      queue_.push_back(before);
    }
  }
  if (distance_[vertex] == kFar) return false;
  std::vector<std::uint32_t> nearer;
  for (std::uint32_t at = vertex; at != to.value; at = links[path->back().index()].to) {
    nearer.clear();
    for (std::uint32_t i = first_out_[at]; i < first_out_[at + 1]; ++i) {
      const std::uint32_t l = out_[i];
      if (!down[l] && distance_[links[l].to] == distance_[at] - 1) nearer.push_back(l);
    }
    path->push_back(LinkId(nearer[HashCombine(HashCombine(salt, at), to.value) % nearer.size()]));
  }
  return true;
}

}  // namespace orrery::cluster
