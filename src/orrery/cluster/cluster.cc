#include "orrery/cluster/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>
#include <variant>

#include "orrery/base/text.h"
#include "orrery/cluster/topologies/topologies.h"
#include "orrery/constants/constants.h"

namespace orrery::cluster {
namespace {

// A link costs some 40 bytes, and 100 more where a back end queues on it: 2 GiB.
constexpr std::int64_t kMaxLinks = 1 << 24;
// What rates are shared out up to (network/max_min.h), 140 Tb/s.
constexpr std::int64_t kMaxLink_Bps = std::int64_t{1} << 44;

// Of the line rate, eight connections at once: 3.75 of 4 GB/s (NVIDIA/nccl issue 209, 32 Gb/s).
constexpr double kTcpRate = 0.94;

}  // namespace

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
    case LinkKind::kSpineCore:
      return "spine-core";
    case LinkKind::kRouter:
      return "router";
    case LinkKind::kGlobal:
      return "global";
    case LinkKind::kPcieUp:
      return "pcie-up";
    case LinkKind::kSocket:
      return "socket";
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
    case Fabric::kSlingshot:
      return "slingshot";
    case Fabric::kTcp:
      return "tcp";
  }
  return "?";
}

std::optional<Fabric> FindFabric(std::string_view name) {
  for (const Fabric fabric : {Fabric::kNone, Fabric::kInfiniBand, Fabric::kRoce, Fabric::kEfa,
                              Fabric::kOmniPath, Fabric::kSlingshot, Fabric::kTcp}) {
    if (name == Name(fabric)) return fabric;
  }
  return std::nullopt;
}

void Calibrate(const constants::Set& constants, Spec* spec) {
  spec->device.constants = constants;
  if (spec->cpu_speed_fitted) spec->cpu_relative_speed = constants[constants::kCpuSpeedGrace];
  switch (spec->device.arch) {
    case Arch::kVolta:
    case Arch::kAmpere:
      spec->nvlink_efficiency = constants[constants::kNvlinkRateAmpere];
      break;
    case Arch::kHopper:
      spec->nvlink_efficiency = constants[constants::kNvlinkRateHopper];
      break;
    case Arch::kBlackwell:
      spec->nvlink_efficiency = constants[constants::kNvlinkRateBlackwell];
      break;
  }
  switch (spec->fabric) {
    case Fabric::kNone:
      break;
    case Fabric::kInfiniBand:
      spec->nic_efficiency = constants[constants::kNicRateIb];
      break;
    case Fabric::kRoce:
    case Fabric::kSlingshot:  // Ethernet; nothing of it was measured apart
      spec->nic_efficiency = constants[constants::kNicRateRoce];
      break;
    case Fabric::kEfa:
      spec->nic_efficiency = constants[constants::kNicRateEfa];
      break;
    case Fabric::kOmniPath:
      spec->nic_efficiency = constants[constants::kNicRateOmnipath];
      break;
    case Fabric::kTcp:
      spec->nic_efficiency = kTcpRate;
      break;
  }
}

void AddScope(const Spec& spec, constants::Scope* scope) {
  constexpr std::string_view kArchs[] = {"volta", "ampere", "hopper", "blackwell"};
  scope->Add(kArchs[static_cast<std::size_t>(spec.device.arch)]);
  if (spec.device.cuda <= 12) scope->Add("cuda12");
  if (spec.cpu_speed_fitted) scope->Add("grace");
  const int gpus = spec.nodes * spec.gpus_per_node;
  if (gpus > 1) scope->Add("gpus");
  if (gpus <= spec.gpus_per_nvlink_domain) return;
  constexpr std::string_view kFabrics[] = {"none", "ib", "roce", "efa", "omnipath", "roce", "tcp"};
  scope->Add("nics");
  scope->Add(kFabrics[static_cast<std::size_t>(spec.fabric)]);
}

std::size_t Cluster::nvlink_domains() const {
  const auto domain = static_cast<std::size_t>(spec_.gpus_per_nvlink_domain);
  return (devices() + domain - 1) / domain;
}

std::size_t Cluster::switches() const {
  return std::visit([](const auto& f) -> std::size_t { return f.switches(); }, fabric_);
}

bool Cluster::direct() const {
  return std::visit([](const auto& f) { return f.direct(); }, fabric_);
}

int Cluster::leaves() const {
  if (const auto* clos = std::get_if<Clos>(&fabric_)) return static_cast<int>(clos->leaves());
  return static_cast<int>(switches());
}

int Cluster::spines() const {
  const auto* clos = std::get_if<Clos>(&fabric_);
  return clos != nullptr ? static_cast<int>(clos->spines()) : 0;
}

void Cluster::AddDeviceLinks() {
  const auto gpus = static_cast<std::uint32_t>(devices());
  const auto domains = static_cast<std::uint32_t>(nvlink_domains());
  const bool nvlink = spec_.gpus_per_nvlink_domain > 1;
  Link link;
  for (std::uint32_t d = 0; d < gpus; ++d) {
    link.kind = LinkKind::kNvlink;
    link.bandwidth_Bps =
        nvlink ? spec_.nvlink_reached_Bps() : 1;  // without NVLink no route uses it
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
  const bool tree = pcie_tree_.any();
  if (tree) link.latency = spec_.pcie_latency / 2;  // the NIC's link has the rest
  for (std::uint32_t d = 0; d < gpus; ++d) {
    std::uint32_t above = gpus + domains + nic(DeviceId(d)).value;
    if (tree) {
      const auto gpu = static_cast<std::size_t>(local_index(DeviceId(d)));
      above = pcie_node(node(DeviceId(d)), pcie_tree_.node_of_gpu(gpu));
      link.bandwidth_Bps = pcie_tree_.gpu_Bps(gpu);
    }
    link.from = d, link.to = above;
    links_.push_back(link);
    link.from = above, link.to = d;
    links_.push_back(link);
  }
}

// What of the hosts' trees is not a GPU's own link.
void Cluster::AddPcieLinks() {
  if (!pcie_tree_.any()) return;
  for (int n = 0; n < spec_.nodes; ++n) {
    const auto nic = origin_.first_end + static_cast<std::uint32_t>(n * spec_.nics_per_node);
    const auto gpu = static_cast<std::uint32_t>(n * spec_.gpus_per_node);
    pcie_tree_.AddLinks(spec_, gpu, nic, pcie_node(NodeId(static_cast<std::size_t>(n)), 0),
                        &links_);
  }
}

std::uint32_t Cluster::pcie_node(NodeId node, std::size_t number) const {
  return static_cast<std::uint32_t>(devices() + nvlink_domains() + nics() +
                                    node.index() * pcie_tree_.nodes() + number);
}

PcieDistance Cluster::peer_distance(DeviceId a, DeviceId b) const {
  return pcie_tree_.gpu_to_gpu(static_cast<std::size_t>(local_index(a)),
                               static_cast<std::size_t>(local_index(b)));
}

int Cluster::nvlinks_between(DeviceId a, DeviceId b) const {
  return pcie_tree_.nvlinks().links(static_cast<std::size_t>(local_index(a)),
                                    static_cast<std::size_t>(local_index(b)));
}

PcieDistance Cluster::nic_distance(DeviceId d) const {
  const auto per_node = static_cast<std::size_t>(spec_.nics_per_node);
  return pcie_tree_.gpu_to_nic(static_cast<std::size_t>(local_index(d)), nic(d).index() % per_node);
}

// The worst ways through a host, by how far apart their ends are, into the spec.
void Cluster::MeasureHost() {
  if (!pcie_tree_.any() || direct()) return;
  PcieTreeSpec& t = spec_.pcie_tree;
  t.most_nvlinks = pcie_tree_.nvlinks().most();
  const auto measure = [&](PcieDistance distance, std::array<HostPath, kPcieDistances>* paths,
                           const std::vector<LinkId>& path) {
    HostPath& worst = (*paths)[static_cast<std::size_t>(distance)];
    SimTime latency = 0;
    double ps_per_byte = 0;
    for (const LinkId id : path) {
      const Link& link = links_[id.index()];
      if (worst.least_Bps == 0) worst.least_Bps = link.bandwidth_Bps;
      worst.least_Bps = std::min(worst.least_Bps, link.bandwidth_Bps);
      latency += link.latency;
      ps_per_byte += 1e12 / static_cast<double>(link.bandwidth_Bps);
    }
    worst.latency = std::max(worst.latency, latency);
    worst.ps_per_byte = std::max(worst.ps_per_byte, ps_per_byte);
  };
  std::vector<LinkId> path;
  const auto gpus = static_cast<std::size_t>(spec_.gpus_per_node);
  for (std::size_t a = 0; a < gpus; ++a) {
    const DeviceId gpu(a);
    const std::int64_t own = pcie_tree_.gpu_Bps(a);
    t.gpu_Bps = a == 0 ? own : std::min(t.gpu_Bps, own);
    path.assign(1, pcie_out(gpu));
    pcie_tree_.ToNic(a, nic(gpu).index(), tree_link(NodeId(0)), &path);
    measure(nic_distance(gpu), &t.nic, path);
    for (std::size_t b = 0; b < gpus; ++b) {
      if (a == b) continue;
      path.assign(1, pcie_out(gpu));
      pcie_tree_.Between(a, b, tree_link(NodeId(0)), &path);
      path.push_back(pcie_in(DeviceId(b)));
      measure(peer_distance(gpu, DeviceId(b)), &t.peer, path);
    }
  }
  for (auto* paths : {&t.peer, &t.nic}) {  // what is nearer is no worse than what is farther
    for (std::size_t d = 1; d < kPcieDistances; ++d) {
      const HostPath& nearer = (*paths)[d - 1];
      HostPath& far = (*paths)[d];
      if (nearer.least_Bps > 0) {
        far.least_Bps =
            far.least_Bps > 0 ? std::min(far.least_Bps, nearer.least_Bps) : nearer.least_Bps;
      }
      far.latency = std::max(far.latency, nearer.latency);
      far.ps_per_byte = std::max(far.ps_per_byte, nearer.ps_per_byte);
    }
  }
}

void Cluster::PlaceNics() {
  const auto gpus_per_nic = static_cast<std::size_t>(spec_.gpus_per_node / spec_.nics_per_node);
  nic_of_.reserve(devices());
  for (std::size_t d = 0; d < devices(); ++d) nic_of_.emplace_back(d / gpus_per_nic);
  leaf_of_.reserve(nics());
  for (std::size_t n = 0; n < nics(); ++n) {
    const std::size_t leaf = std::visit([&](const auto& f) { return f.leaf(n); }, fabric_);
    leaf_of_.push_back(static_cast<std::uint32_t>(leaf));
  }
}

Result<Cluster> Cluster::Build(const Spec& spec) {
  ORRERY_RETURN_IF_ERROR(Validate(spec));
  Cluster cluster;
  cluster.spec_ = spec;
  ORRERY_ASSIGN_OR_RETURN(cluster.fabric_, MakeFabric(spec));
  cluster.spec_.topology.graph = {};  // the fabric holds it
  if (spec.sharp) {
    const auto* clos = std::get_if<Clos>(&cluster.fabric_);
    if (clos == nullptr || clos->shape().ports != 1) {
      return InvalidInput(
          "sharp = true: reduction trees are known of leaves under spines with NICs of one port, "
          "not of this topology; leave sharp out, or take another topology");
    }
  }
  cluster.PlaceNics();
  const bool direct = cluster.direct();
  if (!direct) {
    ORRERY_ASSIGN_OR_RETURN(cluster.pcie_tree_, PcieTree::Make(spec));
  } else if (spec.pcie_tree.any()) {
    return InvalidInput(
        "pcie_tree: topology '{}' joins GPUs without hosts and NICs between; leave it out",
        spec.topology.name);
  }
  const std::int64_t in_hosts =
      direct ? 0 : static_cast<std::int64_t>(2 * cluster.devices() + cluster.pcie_links());
  const std::int64_t links =
      in_hosts + std::visit([](const auto& f) { return f.links(); }, cluster.fabric_);
  if (links > kMaxLinks) {
    return InvalidInput(
        "nodes = {} with gpus_per_node = {} and nodes_per_leaf = {}: {} links, all of which are "
        "built, whatever part a job uses; {} (2 GiB) are the most: lower nodes, or raise "
        "nodes_per_leaf",
        spec.nodes, spec.gpus_per_node, spec.nodes_per_leaf, links, kMaxLinks);
  }
  cluster.links_.reserve(static_cast<std::size_t>(links));
  Origin& origin = cluster.origin_;
  if (direct) {
    origin.first_switch = static_cast<std::uint32_t>(cluster.devices());
  } else {
    origin.first_end = static_cast<std::uint32_t>(cluster.devices() + cluster.nvlink_domains());
    origin.first_switch = cluster.pcie_node(NodeId(static_cast<std::size_t>(spec.nodes)), 0);
    cluster.AddDeviceLinks();
    cluster.AddPcieLinks();
    origin.first_link = static_cast<std::uint32_t>(cluster.links_.size());
  }
  std::visit([&](const auto& f) { f.AddLinks(origin, &cluster.links_); }, cluster.fabric_);
  if (spec.nic_efficiency != 1 && !cluster.direct()) {
    for (Link& link : cluster.links_) {
      if (IsLocal(link.kind)) continue;
      link.bandwidth_Bps = std::max<std::int64_t>(
          1,
          static_cast<std::int64_t>(static_cast<double>(link.bandwidth_Bps) * spec.nic_efficiency));
    }
  }
  for (const Link& link : cluster.links_) {
    if (link.bandwidth_Bps <= kMaxLink_Bps) continue;
    const auto id = static_cast<std::size_t>(&link - cluster.links_.data());
    return InvalidInput(
        "the link {} of {:.1f} TB/s: 17.5 TB/s (140 Tb/s) are the most; lower the bandwidth that "
        "it comes from, or the number of links that it stands for",
        cluster.link_name(LinkId(id)), static_cast<double>(link.bandwidth_Bps) * 1e-12);
  }
  cluster.MeasureHost();
  return cluster;
}

std::string Cluster::vertex_name(std::uint32_t vertex) const {
  std::size_t v = vertex;
  if (v < devices()) {
    const DeviceId d(v);
    return fmt::format("node{}/gpu{}", node(d).index(), local_index(d));
  }
  if (vertex >= origin_.first_switch) {
    return std::visit([&](const auto& f) { return f.SwitchName(vertex - origin_.first_switch); },
                      fabric_);
  }
  v -= devices();
  if (v < nvlink_domains()) return fmt::format("nvswitch{}", v);
  v -= nvlink_domains();
  if (v >= nics()) {
    v -= nics();
    return fmt::format("node{}/{}", v / pcie_tree_.nodes(),
                       pcie_tree_.NodeName(v % pcie_tree_.nodes()));
  }
  const auto per_node = static_cast<std::size_t>(spec_.nics_per_node);
  return fmt::format("node{}/nic{}", v / per_node, v % per_node);
}

std::string Cluster::link_name(LinkId link) const {
  const Link& l = links_[link.index()];
  return vertex_name(l.from) + "/" + vertex_name(l.to);
}

Status Cluster::ChangeLinks(std::string_view name, double bandwidth, SimTime from, SimTime until) {
  // A vertex's name may hold a slash itself, so every slash is tried as the one in the middle.
  std::unordered_map<std::string, std::uint32_t> numbers;
  for (std::uint32_t v = 0; v < vertices(); ++v) numbers.emplace(vertex_name(v), v);
  std::vector<LinkId> found;
  for (std::size_t slash = name.find('/'); slash != std::string_view::npos;
       slash = name.find('/', slash + 1)) {
    const auto a = numbers.find(std::string(name.substr(0, slash)));
    const auto b = numbers.find(std::string(name.substr(slash + 1)));
    if (a == numbers.end() || b == numbers.end()) continue;
    for (std::size_t l = 0; l < links_.size(); ++l) {
      const Link& link = links_[l];
      const bool one = link.from == a->second && link.to == b->second;
      const bool other = link.from == b->second && link.to == a->second;
      if (one || other) found.push_back(LinkId(l));
    }
  }
  if (found.empty() && links_.empty()) {
    return InvalidInput("there is no link '{}'; this cluster has none", Printable(name));
  }
  if (found.empty()) {
    return InvalidInput("there is no link '{}'; links are named by their ends, such as '{}'",
                        Printable(name), link_name(LinkId(links_.size() - 1)));
  }
  const bool whole = from <= 0 && until == kNever && bandwidth > 0;
  for (const LinkId id : found) {
    Link& link = links_[id.index()];
    if (whole) {
      link.bandwidth_Bps = std::max<std::int64_t>(
          1, static_cast<std::int64_t>(static_cast<double>(link.bandwidth_Bps) * bandwidth));
    } else {
      link_changes_.push_back({id, bandwidth, from, until});
    }
  }
  return {};
}

}  // namespace orrery::cluster
