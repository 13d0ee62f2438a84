#include "orrery/cluster/cluster.h"

#include <algorithm>
#include <cmath>

#include "orrery/base/rng.h"

namespace orrery::cluster {
namespace {

// Beyond these a definition is a mistake, and vertex and link numbers would not fit their ids.
constexpr int kMaxNodes = 1 << 20;
constexpr std::int64_t kMaxDevices = 1 << 23;
constexpr std::int64_t kMaxLinks = 1 << 28;

template <class T>
Status Positive(const char* field, T value, const char* remedy) {
  if (value > 0) return {};
  return InvalidInput("{} = {}: must be above 0; {}", field, value, remedy);
}

Status ValidateShape(const Spec& spec) {
  if (spec.nodes < 1 || spec.nodes > kMaxNodes) {
    return InvalidInput("nodes = {}: must be 1 to {}", spec.nodes, kMaxNodes);
  }
  ORRERY_RETURN_IF_ERROR(
      Positive("gpus_per_node", spec.gpus_per_node, "count the GPUs of one host"));
  if (static_cast<std::int64_t>(spec.nodes) * spec.gpus_per_node > kMaxDevices) {
    return InvalidInput("nodes = {} with gpus_per_node = {}: more than {} GPUs; lower nodes",
                        spec.nodes, spec.gpus_per_node, kMaxDevices);
  }
  const int domain = spec.gpus_per_nvlink_domain;
  if (domain < 1) {
    return InvalidInput("gpus_per_nvlink_domain = {}: must be above 0; 1 means no NVLink", domain);
  }
  if (domain > 1 && domain % spec.gpus_per_node != 0 && spec.gpus_per_node % domain != 0) {
    return InvalidInput(
        "gpus_per_nvlink_domain = {}: must be a multiple or a divisor of gpus_per_node = {}",
        domain, spec.gpus_per_node);
  }
  const int nics = spec.nics_per_node;
  if (nics < 1 || nics > spec.gpus_per_node || spec.gpus_per_node % nics != 0) {
    return InvalidInput(
        "nics_per_node = {}: must divide gpus_per_node = {}; give several ports beside one GPU as "
        "one "
        "NIC with their summed rate",
        nics, spec.gpus_per_node);
  }
  return {};
}

Status ValidateFabric(const Spec& spec) {
  ORRERY_RETURN_IF_ERROR(Positive("nic_bandwidth", spec.nic_Bps, "give the line rate of one NIC"));
  ORRERY_RETURN_IF_ERROR(
      Positive("pcie_bandwidth", spec.pcie_Bps, "give the rate from GPU to NIC"));
  ORRERY_RETURN_IF_ERROR(
      Positive("nic_mtu_bytes", spec.nic_mtu_bytes, "give the payload of a packet"));
  ORRERY_RETURN_IF_ERROR(
      Positive("nodes_per_leaf", spec.nodes_per_leaf, "count the hosts under a leaf"));
  if (spec.nic_header_bytes < 0) {
    return InvalidInput("nic_header_bytes = {}: must not be negative", spec.nic_header_bytes);
  }
  if (!(spec.oversubscription >= 1 && spec.oversubscription <= 1024)) {
    return InvalidInput("oversubscription = {}: must be 1 to 1024 (leaf down / up bandwidth)",
                        spec.oversubscription);
  }
  return {};
}

}  // namespace

Status Validate(const Spec& spec) {
  ORRERY_RETURN_IF_ERROR(ValidateShape(spec));
  ORRERY_RETURN_IF_ERROR(ValidateFabric(spec));
  if (spec.gpus_per_nvlink_domain > 1) {
    ORRERY_RETURN_IF_ERROR(
        Positive("nvlink_bandwidth", spec.nvlink_Bps,
                 "or set gpus_per_nvlink_domain to 1 for a machine without NVLink"));
    ORRERY_RETURN_IF_ERROR(
        Positive("nvlink_packet_bytes", spec.nvlink_packet_bytes, "give the payload of a packet"));
    if (spec.nvlink_header_bytes < 0) {
      return InvalidInput("nvlink_header_bytes = {}: must not be negative",
                          spec.nvlink_header_bytes);
    }
  }
  for (const auto& [field, latency] :
       {std::pair{"nvlink_latency", spec.nvlink_latency},
        std::pair{"pcie_latency", spec.pcie_latency}, std::pair{"nic_latency", spec.nic_latency}}) {
    if (latency < 0 || latency > kSecond) {
      return InvalidInput("{} = {} ps: must be 0 to 1 s", field, latency);
    }
  }
  if (spec.device.sms <= 0 || spec.device.memory_bytes <= 0 ||
      spec.device.memory_bandwidth_Bps <= 0) {
    return InvalidInput("device '{}': sms, memory_bytes and memory_bandwidth must be above 0",
                        spec.device.name);
  }
  if (!(spec.cpu_relative_speed > 0)) {
    return InvalidInput("cpu_relative_speed = {}: must be above 0", spec.cpu_relative_speed);
  }
  return {};
}

std::string_view Name(LinkKind kind) {
  switch (kind) {
    case LinkKind::kNvlink:
      return "nvlink";
    case LinkKind::kPcie:
      return "pcie";
    case LinkKind::kNicUp:
      return "nic-up";
    case LinkKind::kNicDown:
      return "nic-down";
    case LinkKind::kLeafSpine:
      return "leaf-spine";
  }
  return "?";
}

std::string_view Name(Fabric fabric) {
  switch (fabric) {
    case Fabric::kNone:
      return "none";
    case Fabric::kInfiniBand:
      return "infiniband";
    case Fabric::kRoce:
      return "roce";
    case Fabric::kEfa:
      return "efa";
    case Fabric::kOmniPath:
      return "omnipath";
  }
  return "?";
}

std::size_t Cluster::nvlink_domains() const {
  const auto domain = static_cast<std::size_t>(spec_.gpus_per_nvlink_domain);
  return (devices() + domain - 1) / domain;
}

NicId Cluster::nic(DeviceId d) const {
  const int gpus_per_nic = spec_.gpus_per_node / spec_.nics_per_node;
  return NicId(node(d).index() * static_cast<std::size_t>(spec_.nics_per_node) +
               static_cast<std::size_t>(local_index(d) / gpus_per_nic));
}

std::size_t Cluster::leaf(NicId nic) const {
  const auto per_node = static_cast<std::size_t>(spec_.nics_per_node);
  const std::size_t group = nic.index() / per_node / static_cast<std::size_t>(spec_.nodes_per_leaf);
  return spec_.rail_optimised ? group * per_node + nic.index() % per_node : group;
}

void Cluster::AddDeviceLinks() {
  const auto gpus = static_cast<std::uint32_t>(devices());
  const auto domains = static_cast<std::uint32_t>(nvlink_domains());
  const bool nvlink = spec_.gpus_per_nvlink_domain > 1;
  Link link;
  for (std::uint32_t d = 0; d < gpus; ++d) {
    link.kind = LinkKind::kNvlink;
    link.bandwidth_Bps = nvlink ? spec_.nvlink_Bps : 1;  // without NVLink no route uses it
    link.mtu_bytes = nvlink ? spec_.nvlink_packet_bytes + spec_.nvlink_header_bytes : 1;
    const auto hub = gpus + static_cast<std::uint32_t>(nvlink_domain(DeviceId(d)));
    link.from = d, link.to = hub, link.latency = spec_.nvlink_latency / 2;
    links_.push_back(link);
    link.from = hub, link.to = d, link.latency = spec_.nvlink_latency - spec_.nvlink_latency / 2;
    links_.push_back(link);
  }
  link = {};
  link.kind = LinkKind::kPcie;
  link.bandwidth_Bps = spec_.pcie_Bps;
  link.latency = spec_.pcie_latency;
  link.mtu_bytes = spec_.nic_mtu_bytes + spec_.nic_header_bytes;
  for (std::uint32_t d = 0; d < gpus; ++d) {
    const std::uint32_t card = gpus + domains + nic(DeviceId(d)).value;
    link.from = d, link.to = card;
    links_.push_back(link);
    link.from = card, link.to = d;
    links_.push_back(link);
  }
}

void Cluster::AddFabricLinks() {
  const auto cards = static_cast<std::uint32_t>(nics());
  const auto first_nic = static_cast<std::uint32_t>(devices() + nvlink_domains());
  const std::uint32_t first_leaf = first_nic + cards;
  const std::uint32_t first_spine = first_leaf + static_cast<std::uint32_t>(leaves_);
  Link link;
  link.bandwidth_Bps = spec_.nic_Bps;
  link.latency = spec_.nic_latency;
  link.mtu_bytes = spec_.nic_mtu_bytes + spec_.nic_header_bytes;
  for (std::uint32_t n = 0; n < cards; ++n) {
    const auto above = first_leaf + static_cast<std::uint32_t>(leaf(NicId(n)));
    link.kind = LinkKind::kNicUp, link.from = first_nic + n, link.to = above;
    links_.push_back(link);
    link.kind = LinkKind::kNicDown, link.from = above, link.to = first_nic + n;
    links_.push_back(link);
  }
  // A leaf's uplinks together carry its downlinks' rate over the oversubscription, exactly.
  const double down = static_cast<double>(std::min(spec_.nodes, spec_.nodes_per_leaf)) *
                      (spec_.rail_optimised ? 1 : spec_.nics_per_node);
  if (spines_ > 0) {
    link.kind = LinkKind::kLeafSpine;
    link.bandwidth_Bps = std::max<std::int64_t>(
        1, static_cast<std::int64_t>(static_cast<double>(spec_.nic_Bps) * down /
                                     spec_.oversubscription / spines_));
  }
  for (std::uint32_t l = 0; l < static_cast<std::uint32_t>(leaves_); ++l) {
    for (std::uint32_t s = 0; s < static_cast<std::uint32_t>(spines_); ++s) {
      link.from = first_leaf + l, link.to = first_spine + s;
      links_.push_back(link);
      link.from = first_spine + s, link.to = first_leaf + l;
      links_.push_back(link);
    }
  }
}

Result<Cluster> Cluster::Build(const Spec& spec) {
  ORRERY_RETURN_IF_ERROR(Validate(spec));
  Cluster cluster;
  cluster.spec_ = spec;
  const int groups = (spec.nodes + spec.nodes_per_leaf - 1) / spec.nodes_per_leaf;
  const int rails = spec.rail_optimised ? spec.nics_per_node : 1;
  cluster.leaves_ = groups * rails;
  if (cluster.leaves_ > 1) {
    const double down = static_cast<double>(std::min(spec.nodes, spec.nodes_per_leaf)) *
                        (spec.rail_optimised ? 1 : spec.nics_per_node);
    cluster.spines_ = std::max(1, static_cast<int>(std::ceil(down / spec.oversubscription)));
  }
  const std::int64_t links = 4 * static_cast<std::int64_t>(cluster.devices()) +
                             2 * static_cast<std::int64_t>(cluster.nics()) +
                             2 * static_cast<std::int64_t>(cluster.leaves_) * cluster.spines_;
  if (links > kMaxLinks) {
    return InvalidInput(
        "nodes_per_leaf = {} with nodes = {}: {} links are more than {}; raise one or "
        "lower the other",
        spec.nodes_per_leaf, spec.nodes, links, kMaxLinks);
  }
  cluster.links_.reserve(static_cast<std::size_t>(links));
  cluster.AddDeviceLinks();
  cluster.AddFabricLinks();
  return cluster;
}

void Cluster::Route(DeviceId from, DeviceId to, std::uint64_t salt,
                    std::vector<LinkId>* path) const {
  path->clear();
  if (from == to) return;
  if (spec_.gpus_per_nvlink_domain > 1 && nvlink_domain(from) == nvlink_domain(to)) {
    path->push_back(nvlink_out(from));
    path->push_back(nvlink_in(to));
    return;
  }
  const NicId out = nic(from);
  const NicId in = nic(to);
  path->push_back(pcie_out(from));
  if (out != in) {
    path->push_back(nic_up(out));
    const std::size_t a = leaf(out);
    const std::size_t b = leaf(in);
    if (a != b) {
      const auto spine =
          static_cast<std::size_t>(HashCombine(HashCombine(salt, from.value), to.value) %
                                   static_cast<std::uint64_t>(spines_));
      path->push_back(leaf_up(a, spine));
      path->push_back(LinkId(leaf_up(b, spine).index() + 1));
    }
    path->push_back(nic_down(in));
  }
  path->push_back(pcie_in(to));
}

std::string Cluster::vertex_name(std::uint32_t vertex) const {
  std::size_t v = vertex;
  if (v < devices()) {
    const DeviceId d(v);
    return fmt::format("node{}/gpu{}", node(d).index(), local_index(d));
  }
  v -= devices();
  if (v < nvlink_domains()) return fmt::format("nvswitch{}", v);
  v -= nvlink_domains();
  const auto per_node = static_cast<std::size_t>(spec_.nics_per_node);
  if (v < nics()) return fmt::format("node{}/nic{}", v / per_node, v % per_node);
  v -= nics();
  if (v < static_cast<std::size_t>(leaves_)) return fmt::format("leaf{}", v);
  return fmt::format("spine{}", v - static_cast<std::size_t>(leaves_));
}

}  // namespace orrery::cluster
