#include "orrery/network/packet/paths.h"

#include <algorithm>

#include "orrery/base/check.h"
#include "orrery/base/rng.h"
#include "orrery/cluster/salts.h"

namespace orrery::network::packet {
namespace {

bool Local(const cluster::Cluster& cluster, LinkId link) {
  return !cluster.direct() && cluster::IsLocal(cluster.links()[link.index()].kind);
}

}  // namespace

Status Paths::Setup(const cluster::Cluster& cluster) {
  *this = Paths();
  cluster_ = &cluster;
  std::vector<std::uint32_t> degree(cluster.vertices(), 0);
  for (const cluster::Link& link : cluster.links()) {
    const std::uint32_t slot = degree[link.from]++;
    if (slot > 0xFFFF) {
      return InvalidInput(
          "network packet: more than 65,536 links leave {}; give the cluster smaller switches "
          "(cluster.nodes_per_leaf)",
          cluster.vertex_name(link.from));
    }
    slot_of_.push_back(static_cast<std::uint16_t>(slot));
  }
  return {};
}

Paths::Way Paths::AddFabricPart(std::span<const LinkId> route) {
  Way way;
  MakeRoom(&links_, route.size());
  way.first = static_cast<std::uint32_t>(links_.size());
  for (const LinkId link : route) {
    if (Local(*cluster_, link)) continue;
    if (way.hops == 0) way.link = link.value;
    if (way.hops < kSlots) way.slots[way.hops] = slot_of_[link.value];
    links_.push_back(link.value);
    ++way.hops;
  }
  return way;
}

std::uint32_t Paths::Add(DeviceId from, DeviceId to, std::uint64_t salt, int ways) {
  Flow flow{.from = from, .to = to, .salt = salt};
  cluster_->Route(from, to, salt, &route_);
  const auto fabric = [&](LinkId link) { return !Local(*cluster_, link); };
  const auto first = std::ranges::find_if(route_, fabric);
  const auto last = std::find_if(route_.rbegin(), route_.rend(), fabric).base();
  ORRERY_CHECK(first != route_.end(), "a flow of packets leaves the host");
  MakeRoom(&links_, route_.size());
  flow.before = static_cast<std::uint32_t>(links_.size());
  for (auto l = route_.begin(); l != first; ++l) links_.push_back(l->value), ++flow.befores;
  flow.after = static_cast<std::uint32_t>(links_.size());
  for (auto l = last; l != route_.end(); ++l) links_.push_back(l->value), ++flow.afters;
  // By rail the packets leave from another GPU's NIC than the sender's, and answers go there.
  for (auto l = route_.begin(); l != first; ++l) {
    if (cluster_->links()[l->index()].kind != cluster::LinkKind::kNvlink) continue;
    const std::uint32_t to_vertex = cluster_->links()[l->index()].to;
    if (to_vertex < cluster_->devices()) flow.from = DeviceId(to_vertex);
  }
  flow.ways = cluster::HasOneWay(salt) ? 1 : static_cast<std::uint32_t>(std::max(ways, 1));
  flow.first_way = static_cast<std::uint32_t>(ways_.size());
  MakeRoom(&ways_, flow.ways);
  ways_.resize(ways_.size() + flow.ways);
  ways_[flow.first_way] = AddFabricPart(route_);
  cluster_->Route(to, flow.from, salt < cluster::kFirstName ? salt : 0, &route_);
  flow.back = AddFabricPart(route_);
  for (std::uint32_t w = 1; at_once_ && w < flow.ways; ++w) {
    Compute(flow, w, &ways_[flow.first_way + w]);
  }
  MakeRoom(&flows_, 1);
  flows_.push_back(flow);
  return static_cast<std::uint32_t>(flows_.size() - 1);
}

void Paths::Compute(const Flow& flow, std::uint32_t entropy, Way* way) {
  const std::uint64_t salt = HashCombine(flow.salt, entropy) % cluster::kFirstName;
  cluster_->Route(flow.from, flow.to, salt, &route_);
  *way = AddFabricPart(route_);
}

}  // namespace orrery::network::packet
