// Clos: leaves, spines, cores. See fabric.h.
#include <fmt/format.h>

#include <algorithm>

#include "orrery/cluster/fabric.h"

namespace orrery::cluster {
namespace {

std::uint32_t CeilDiv(int a, int b) { return static_cast<std::uint32_t>((a + b - 1) / b); }

// Adds a cable: up, then down.
void AddPair(Link link, std::uint32_t low, std::uint32_t high, std::vector<Link>* links) {
  link.from = low, link.to = high;
  links->push_back(link);
  link.from = high, link.to = low;
  links->push_back(link);
}

}  // namespace

Clos::Clos(const Shape& shape) : s_(shape) {
  segments_ = CeilDiv(s_.nodes, s_.nodes_per_leaf);
  if (s_.segments_per_pod == 0) s_.segments_per_pod = static_cast<int>(segments_);
  pods_ = CeilDiv(static_cast<int>(segments_), s_.segments_per_pod);
  leaves_ = segments_ * static_cast<std::uint32_t>(s_.rails * s_.ports);
  spines_ = pods_ * static_cast<std::uint32_t>(s_.planes * s_.spines);
}

std::uint32_t Clos::cores() const {
  return static_cast<std::uint32_t>(s_.planes * s_.spines * s_.cores);
}

std::int64_t Clos::links() const {
  const std::int64_t nics = std::int64_t{s_.nodes} * s_.nics_per_node;
  return 2 *
         (nics * s_.ports + std::int64_t{leaves_} * s_.spines + std::int64_t{spines_} * s_.cores);
}

std::size_t Clos::segment(std::size_t nic) const {
  return nic / static_cast<std::size_t>(s_.nics_per_node) /
         static_cast<std::size_t>(s_.nodes_per_leaf);
}

std::size_t Clos::rail(std::size_t nic) const {
  return s_.rails > 1 ? nic % static_cast<std::size_t>(s_.nics_per_node) : 0;
}

std::size_t Clos::leaf(std::size_t nic) const {
  return (segment(nic) * static_cast<std::size_t>(s_.rails) + rail(nic)) *
         static_cast<std::size_t>(s_.ports);
}

int Clos::switches_between(std::size_t from, std::size_t to) const {
  if (leaf(from) == leaf(to)) return 1;
  const auto per_pod = static_cast<std::size_t>(s_.segments_per_pod);
  return segment(from) / per_pod == segment(to) / per_pod ? 3 : 5;
}

void Clos::AddLinks(const Origin& origin, std::vector<Link>* links) const {
  const auto nics = static_cast<std::uint32_t>(s_.nodes * s_.nics_per_node);
  const auto ports = static_cast<std::uint32_t>(s_.ports);
  Link link{.bandwidth_Bps = s_.port_Bps, .latency = s_.latency, .mtu_bytes = s_.mtu_bytes};
  for (std::uint32_t n = 0; n < nics; ++n) {
    for (std::uint32_t k = 0; k < ports; ++k) {
      const auto above = origin.first_switch + static_cast<std::uint32_t>(leaf(n)) + k;
      link.kind = LinkKind::kNicUp, link.from = origin.first_end + n, link.to = above;
      links->push_back(link);
      link.kind = LinkKind::kNicDown, link.from = above, link.to = origin.first_end + n;
      links->push_back(link);
    }
  }
  const std::uint32_t first_spine = origin.first_switch + leaves_;
  const auto spines = static_cast<std::uint32_t>(s_.spines);
  const std::uint32_t leaves_per_pod =
      static_cast<std::uint32_t>(s_.segments_per_pod * s_.rails * s_.ports);
  link.kind = LinkKind::kLeafSpine;
  link.bandwidth_Bps = s_.spine_Bps;
  link.latency = s_.spine_latency;
  for (std::uint32_t l = 0; l < leaves_; ++l) {
    const std::uint32_t plane = s_.planes > 1 ? l % ports : 0;
    const std::uint32_t group = l / leaves_per_pod * static_cast<std::uint32_t>(s_.planes) + plane;
    for (std::uint32_t s = 0; s < spines; ++s) {
      AddPair(link, origin.first_switch + l, first_spine + group * spines + s, links);
    }
  }
  const std::uint32_t first_core = first_spine + spines_;
  const auto cores = static_cast<std::uint32_t>(s_.cores);
  link.kind = LinkKind::kSpineCore;
  link.bandwidth_Bps = s_.core_Bps;
  link.latency = s_.core_latency;
  for (std::uint32_t s = 0; s < spines_; ++s) {
    const std::uint32_t index = s % (static_cast<std::uint32_t>(s_.planes) * spines);
    for (std::uint32_t c = 0; c < cores; ++c) {
      AddPair(link, first_spine + s, first_core + index * cores + c, links);
    }
  }
}

void Clos::Route(const Origin& origin, std::size_t from, std::size_t to, Choice choice,
                 std::vector<LinkId>* path) const {
  const auto ports = static_cast<std::size_t>(s_.ports);
  const auto spines = static_cast<std::size_t>(s_.spines);
  // A rail's own hosts are every nics_per_node-th NIC: their host's number spreads over all spines.
  std::uint64_t h = choice.hash;
  if (choice.fixed) h = s_.rails > 1 ? to / static_cast<std::size_t>(s_.nics_per_node) : to;
  const auto take = [&h](std::size_t options) {
    const std::size_t taken = h % options;
    h /= options;
    return taken;
  };
  const std::size_t first_up = origin.first_link + 2 * ports * static_cast<std::size_t>(s_.nodes) *
                                                       static_cast<std::size_t>(s_.nics_per_node);
  const std::size_t a = leaf(from);
  const std::size_t b = leaf(to);
  if (a == b) {
    const std::size_t port = take(ports);
    path->push_back(LinkId(origin.first_link + 2 * (from * ports + port)));
    path->push_back(LinkId(origin.first_link + 2 * (to * ports + port) + 1));
    return;
  }
  const std::size_t spine = take(spines);
  const std::size_t out = take(ports);
  const std::size_t in = s_.planes > 1 ? out : take(ports);
  path->push_back(LinkId(origin.first_link + 2 * (from * ports + out)));
  path->push_back(LinkId(first_up + 2 * ((a + out) * spines + spine)));
  const std::size_t pod_a = segment(from) / static_cast<std::size_t>(s_.segments_per_pod);
  const std::size_t pod_b = segment(to) / static_cast<std::size_t>(s_.segments_per_pod);
  if (pod_a != pod_b) {
    const auto cores = static_cast<std::size_t>(s_.cores);
    const std::size_t core = take(cores);
    const std::size_t plane = s_.planes > 1 ? out : 0;
    const std::size_t per_pod = static_cast<std::size_t>(s_.planes) * spines;
    const std::size_t first_core = first_up + 2 * leaves_ * spines;
    const std::size_t index = plane * spines + spine;
    path->push_back(LinkId(first_core + 2 * ((pod_a * per_pod + index) * cores + core)));
    path->push_back(LinkId(first_core + 2 * ((pod_b * per_pod + index) * cores + core) + 1));
  }
  path->push_back(LinkId(first_up + 2 * ((b + in) * spines + spine) + 1));
  path->push_back(LinkId(origin.first_link + 2 * (to * ports + in) + 1));
}

std::string Clos::SwitchName(std::uint32_t number) const {
  if (number < leaves_) return fmt::format("leaf{}", number);
  if (number < leaves_ + spines_) return fmt::format("spine{}", number - leaves_);
  return fmt::format("core{}", number - leaves_ - spines_);
}

}  // namespace orrery::cluster
