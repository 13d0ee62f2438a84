// Dragonfly. See fabric.h; the rule from a Spec stands at the end.
#include <fmt/format.h>

#include "orrery/cluster/fabric.h"
#include "orrery/cluster/topologies/topologies.h"

namespace orrery::cluster {

// Global port P of a group (router P / global_per_router) leads to the group d = P mod (groups - 1)
// steps further on (0: the next one), as copy P / (groups - 1) of the links between the two.
Dragonfly::Dragonfly(const Shape& shape) : s_(shape) {
  const std::size_t per_group =
      static_cast<std::size_t>(s_.nics_per_router) * static_cast<std::size_t>(s_.routers_per_group);
  groups_ = (s_.nics + per_group - 1) / per_group;
  if (groups_ > 1) {
    copies_ = static_cast<std::size_t>(s_.routers_per_group) *
              static_cast<std::size_t>(s_.global_per_router) / (groups_ - 1);
  }
}

std::uint32_t Dragonfly::switches() const {
  return static_cast<std::uint32_t>(groups_ * static_cast<std::size_t>(s_.routers_per_group));
}

std::int64_t Dragonfly::links() const {
  const auto a = static_cast<std::int64_t>(s_.routers_per_group);
  const auto groups = static_cast<std::int64_t>(groups_);
  return 2 * static_cast<std::int64_t>(s_.nics) + groups * a * (a - 1) +
         groups * (groups - 1) * static_cast<std::int64_t>(copies_);
}

std::size_t Dragonfly::leaf(std::size_t nic) const {
  return nic / static_cast<std::size_t>(s_.nics_per_router);
}

Dragonfly::Crossing Dragonfly::CrossingOf(std::size_t from_group, std::size_t to_group,
                                          std::size_t copy) const {
  const std::size_t others = groups_ - 1;
  const auto h = static_cast<std::size_t>(s_.global_per_router);
  const std::size_t port = (to_group + groups_ - from_group - 1) % groups_ + copy * others;
  const std::size_t peer = (from_group + groups_ - to_group - 1) % groups_ + copy * others;
  return {port / h, peer / h, port};
}

std::uint32_t Dragonfly::LocalLink(std::size_t router, std::size_t to) const {
  const auto a = static_cast<std::size_t>(s_.routers_per_group);
  const std::size_t own = router % a;
  return static_cast<std::uint32_t>(2 * s_.nics + router * (a - 1) + (to < own ? to : to - 1));
}

void Dragonfly::AddLinks(const Origin& origin, std::vector<Link>* links) const {
  Link link{.bandwidth_Bps = s_.nic_Bps, .latency = s_.latency, .mtu_bytes = s_.mtu_bytes};
  AddEndLinks(*this, origin, s_.nics, link, links);
  const auto a = static_cast<std::uint32_t>(s_.routers_per_group);
  link.kind = LinkKind::kRouter;
  link.bandwidth_Bps = s_.local_Bps;
  for (std::uint32_t r = 0; r < switches(); ++r) {
    for (std::uint32_t other = 0; other < a; ++other) {
      if (other == r % a) continue;
      link.from = origin.first_switch + r, link.to = origin.first_switch + r / a * a + other;
      links->push_back(link);
    }
  }
  link.kind = LinkKind::kGlobal;
  link.bandwidth_Bps = s_.global_Bps;
  link.latency = s_.global_latency;
  for (std::size_t g = 0; g < groups_ && groups_ > 1; ++g) {
    for (std::size_t port = 0; port < copies_ * (groups_ - 1); ++port) {
      const std::size_t to = (g + 1 + port % (groups_ - 1)) % groups_;
      const Crossing c = CrossingOf(g, to, port / (groups_ - 1));
      link.from = origin.first_switch + static_cast<std::uint32_t>(g * a + c.out_router);
      link.to = origin.first_switch + static_cast<std::uint32_t>(to * a + c.in_router);
      links->push_back(link);
    }
  }
}

void Dragonfly::Route(const Origin& origin, std::size_t from, std::size_t to, Choice choice,
                      std::vector<LinkId>* path) const {
  const auto a = static_cast<std::size_t>(s_.routers_per_group);
  const std::size_t first = leaf(from), last = leaf(to);
  const std::uint64_t h = choice.fixed ? to : choice.hash;
  path->push_back(LinkId(origin.first_link + 2 * from));
  if (first / a == last / a) {
    if (first != last) path->push_back(LinkId(origin.first_link + LocalLink(first, last % a)));
  } else {
    // Of the parallel links between the groups those that need the fewest local ones.
    const std::size_t g = first / a, k = last / a;
    int best = 3;
    std::size_t equal = 0;
    const auto cost = [&](const Crossing& c) {
      return (c.out_router != first % a ? 1 : 0) + (c.in_router != last % a ? 1 : 0);
    };
    for (std::size_t copy = 0; copy < copies_; ++copy) {
      const int hops = cost(CrossingOf(g, k, copy));
      if (hops < best) best = hops, equal = 0;
      if (hops == best) ++equal;
    }
    std::size_t left = h % equal;
    for (std::size_t copy = 0; copy < copies_; ++copy) {
      const Crossing c = CrossingOf(g, k, copy);
      if (cost(c) != best || left-- > 0) continue;
      if (c.out_router != first % a) {
        path->push_back(LinkId(origin.first_link + LocalLink(first, c.out_router)));
      }
      const std::size_t first_global =
          origin.first_link + 2 * s_.nics + groups_ * a * (a - 1) + g * copies_ * (groups_ - 1);
      path->push_back(LinkId(first_global + c.port));
      if (c.in_router != last % a) {
        path->push_back(LinkId(origin.first_link + LocalLink(k * a + c.in_router, last % a)));
      }
      break;
    }
  }
  path->push_back(LinkId(origin.first_link + 2 * to + 1));
}

std::string Dragonfly::SwitchName(std::uint32_t number) const {
  const auto a = static_cast<std::uint32_t>(s_.routers_per_group);
  return fmt::format("group{}.router{}", number / a, number % a);
}

// Alps (HPE Slingshot, 64-port Rosetta): 16 ports to NICs, 31 to the 31 others of a group of 32, 17
// to other groups. Global cables are optical and longer: twice the latency of a hop.
Result<AnyFabric> MakeDragonfly(const Spec& spec) {
  const TopologySpec& t = spec.topology;
  Dragonfly::Shape s;
  s.nics = static_cast<std::size_t>(spec.nodes) * static_cast<std::size_t>(spec.nics_per_node);
  s.nics_per_router = t.nics_per_router > 0 ? t.nics_per_router : 16;
  s.routers_per_group = t.routers_per_group > 0 ? t.routers_per_group : 32;
  s.global_per_router = t.global_links > 0 ? t.global_links : 17;
  s.nic_Bps = s.local_Bps = s.global_Bps = spec.nic_Bps;
  if (t.uplink_Bps > 0) s.local_Bps = s.global_Bps = t.uplink_Bps;
  s.latency = spec.nic_latency;
  s.global_latency = 2 * spec.nic_latency;
  s.mtu_bytes = spec.nic_mtu_bytes + spec.nic_header_bytes;
  const Dragonfly dragonfly(s);
  const std::size_t ports =
      static_cast<std::size_t>(s.routers_per_group) * static_cast<std::size_t>(s.global_per_router);
  if (dragonfly.groups() > ports + 1) {
    return InvalidInput(
        "topology.global_links = {}: a group of {} routers reaches {} others, but there are {} "
        "groups; raise it, routers_per_group or nics_per_router",
        s.global_per_router, s.routers_per_group, ports, dragonfly.groups());
  }
  return AnyFabric(dragonfly);
}

}  // namespace orrery::cluster
