#include "orrery/cluster/cluster.h"

#include "orrery/cluster/salts.h"

#include <algorithm>
#include <unordered_map>
#include <variant>

#include "orrery/base/rng.h"
#include "orrery/base/text.h"
#include "orrery/cluster/topologies/topologies.h"
#include "orrery/constants/constants.h"

namespace orrery::cluster {
namespace {

// Beyond these a definition is a mistake, and vertex and link numbers would not fit their ids.
constexpr int kMaxNodes = 1 << 20;
constexpr std::int64_t kMaxDevices = 1 << 23;
// A link costs some 40 bytes, and 100 more where a back end queues on it: 2 GiB.
constexpr std::int64_t kMaxLinks = 1 << 24;
// What rates are shared out up to (network/max_min.h), 140 Tb/s.
constexpr std::int64_t kMaxLink_Bps = std::int64_t{1} << 44;

// Of the line rate, eight connections at once: 3.75 of 4 GB/s (NVIDIA/nccl issue 209, 32 Gb/s).
constexpr double kTcpRate = 0.94;

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
  ORRERY_RETURN_IF_ERROR(
      Positive("nic_bandwidth", spec.nic_reached_Bps(), "give the line rate of one NIC"));
  ORRERY_RETURN_IF_ERROR(
      Positive("pcie_bandwidth", spec.pcie_Bps, "give the rate from GPU to NIC"));
  ORRERY_RETURN_IF_ERROR(
      Positive("stream_bandwidth", spec.stream_Bps, "give what one TCP connection moves"));
  ORRERY_RETURN_IF_ERROR(
      Positive("nic_mtu_bytes", spec.nic_mtu_bytes, "give the payload of a packet"));
  ORRERY_RETURN_IF_ERROR(
      Positive("nodes_per_leaf", spec.nodes_per_leaf, "count the hosts under a leaf"));
  if (spec.nic_header_bytes < 0) {
    return InvalidInput("nic_header_bytes = {}: must not be negative", spec.nic_header_bytes);
  }
  if (spec.sharp && spec.fabric != Fabric::kInfiniBand) {
    return InvalidInput("sharp = true: only InfiniBand switches reduce, the fabric is {}",
                        Name(spec.fabric));
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
  ORRERY_RETURN_IF_ERROR(CheckTopologyName(spec.topology.name));
  ORRERY_RETURN_IF_ERROR(ValidateFabric(spec));
  if (const Result<PcieTree> tree = PcieTree::Make(spec); !tree.ok()) return tree.status();
  if (spec.gpus_per_nvlink_domain > 1) {
    ORRERY_RETURN_IF_ERROR(
        Positive("nvlink_bandwidth", spec.nvlink_reached_Bps(),
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
