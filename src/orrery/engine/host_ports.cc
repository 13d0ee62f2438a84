#include "orrery/engine/host_ports.h"

#include <algorithm>

#include "orrery/collective/lowering/flow_grain.h"

namespace orrery::engine {

void HostPorts::AddLoads(std::uint32_t meet, int plan, std::vector<network::PortLoad>* loads) {
  const std::uint64_t key = std::uint64_t{meet} << 32 | static_cast<std::uint32_t>(plan);
  const auto [it, fresh] = bound_.try_emplace(key);
  if (fresh) it->second = Bind(meet, plan);
  const Range range = it->second;
  loads->insert(loads->end(), loads_.begin() + range.first,
                loads_.begin() + range.first + range.count);
}

HostPorts::Range HostPorts::Bind(std::uint32_t meet, int plan) {
  const cluster::Cluster& cluster = *in_.inputs->cluster;
  const auto& device = in_.inputs->placement->device;
  const MeetInfo& info = in_.layout->meets[meet];
  std::vector<DeviceId> members;
  if (info.pair) {
    members = {device[info.from.index()], device[info.to.index()]};
  } else {
    for (const RankId r : in_.inputs->graph->groups.members(info.group)) {
      members.push_back(device[r.index()]);
    }
  }
  const collective::FlowGrain grain =
      collective::MakeFlowGrain(in_.prices->plan(plan), cluster, members);
  const std::size_t first = cluster.first_pcie_link(), end = first + cluster.pcie_links();
  bytes_.clear();
  for (std::size_t c = 0; c < grain.channels(); ++c) {
    for (const collective::ChannelEdge& edge : grain.channel(c)) {
      cluster.Route(members[edge.from], members[edge.to], edge.salt != 0 ? edge.salt : c, &route_);
      for (const LinkId link : route_) {
        if (link.index() >= first && link.index() < end) bytes_.emplace_back(link, edge.wire_bytes);
      }
    }
  }
  std::sort(bytes_.begin(), bytes_.end());
  Range range;
  range.first = static_cast<std::uint32_t>(loads_.size());
  for (std::size_t i = 0; i < bytes_.size();) {
    const LinkId link = bytes_[i].first;
    std::int64_t bytes = 0;
    for (; i < bytes_.size() && bytes_[i].first == link; ++i) bytes += bytes_[i].second;
    const auto port =
        in_.layout->first_pcie_port + static_cast<std::uint32_t>(link.index() - first);
    loads_.push_back({port, 1, bytes});
  }
  range.count = static_cast<std::uint32_t>(loads_.size()) - range.first;
  return range;
}

}  // namespace orrery::engine
