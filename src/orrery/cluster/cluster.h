// The cluster: GPUs, nodes, NICs, switches and directed links, with the bandwidths and latencies
// that network back ends and the collective planner read. Every constant of a preset names its
// source.
//
// Units last in every name. A link is one direction. Bandwidth is what payload can use at best;
// what protocols take off is the collective's and the network's business.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/ids.h"
#include "orrery/base/status.h"
#include "orrery/base/time.h"
#include "orrery/cluster/fabric.h"
#include "orrery/cluster/pcie.h"
#include "orrery/cluster/topology.h"
#include "orrery/constants/set.h"

namespace orrery::cluster {

// NCCL and the kernel models key on the architecture.
enum class Arch : std::uint8_t { kVolta, kAmpere, kHopper, kBlackwell };

// A GPU as cost models see it. Peak rates are dense (no sparsity), in FLOP/s at boost clock.
struct DeviceSpec {
  std::string name;   // "H100-SXM5-80GB"; measured tables key on `table`
  std::string table;  // "h100": folder under data/measured
  Arch arch = Arch::kHopper;
  int sms = 0;
  double fp32_flops = 0, tf32_flops = 0, fp16_flops = 0, fp8_flops = 0;  // fp16: bf16 too
  double fp4_flops = 0;      // 0: twice fp8 on Blackwell, else none
  double int8_flops = 0;     // 0: as fp8, or as fp16 where there is none
  double exp_per_clock = 0;  // exponentials a clock and SM; 0: 16, as on all but Blackwell Ultra
  std::int64_t memory_bytes = 0;
  std::int64_t memory_bandwidth_Bps = 0;
  std::int64_t l2_bytes = 0;
  double power_w = 0;             // limit of the board; 0 unknown
  bool bf16 = true;               // tensor cores take it
  double transfer_spread = 0;     // of kernels priced as another architecture's
  SimTime collective_setup = 0;   // from a collective's launch to its first step; 0: NCCL's
  int collective_threads = 0;     // of a channel at most; 0: NCCL's
  int cuda = 13;                  // major version; Blackwell's libraries of 12 are slower
  bool vboost = false;            // power steered from the L2 to the SMs (nvidia-smi boost-slider)
  double price_per_hour_usd = 0;  // list price of the preset's source; 0 unknown
  std::string source;             // where these numbers were printed
  constants::Set constants;       // what of these peaks is reached, and what hosts cost
};

// kTcp: NCCL's socket transport.
enum class Fabric : std::uint8_t { kNone, kInfiniBand, kRoce, kEfa, kOmniPath, kSlingshot, kTcp };
std::string_view Name(Fabric fabric);
std::optional<Fabric> FindFabric(std::string_view name);  // nothing where no fabric has the name

// A machine of nodes of equal shape under the fabric that `topology` names; without a name rails
// (NIC i of every node meets leaf switches of rail i) or plain leaves, leaves under spines.
struct Spec {
  std::string name;
  DeviceSpec device;
  int nodes = 1;
  int gpus_per_node = 8;           // GPUs that share a host (PCIe, CPU)
  int gpus_per_nvlink_domain = 8;  // that reach each other by NVLink: 72 on NVL72, else the node
  int nics_per_node = 8;           // evenly shared by the node's GPUs
  std::int64_t nvlink_Bps = 0;     // per GPU and direction, all links together
  SimTime nvlink_latency = 0;      // GPU to GPU through the switch, one way
  int nvlink_packet_bytes = 0;     // payload a packet carries; header beside it
  int nvlink_header_bytes = 0;
  std::int64_t pcie_Bps = 0;  // GPU to its NIC, per direction
  SimTime pcie_latency = 0;
  PcieTreeSpec pcie_tree;                   // what stands between them; nothing: a link
  std::int64_t nic_Bps = 0;                 // line rate per NIC and direction
  std::int64_t stream_Bps = 2'000'000'000;  // TCP: what one connection moves at most
  // What long transfers reach of the two line rates, beside headers.
  double nvlink_efficiency = 1, nic_efficiency = 1;
  SimTime nic_latency = 0;  // one hop NIC to switch, switch to switch
  int nic_mtu_bytes = 4096;
  int nic_header_bytes = 0;
  Fabric fabric = Fabric::kInfiniBand;
  bool sharp = false;  // switches reduce and multicast: NCCL's CollNet can run
  bool rail_optimised = true;
  int nodes_per_leaf = 32;        // hosts under one leaf (group) before traffic needs a spine
  double oversubscription = 1;    // leaf down / up bandwidth
  double cpu_relative_speed = 1;  // host launch cost relative to the reference host of compute
  bool cpu_speed_fitted = false;  // a Grace whose speed nobody states: Calibrate sets it
  bool cpu_is_amd = false;        // NCCL's tables and net overhead depend on the CPU vendor
  bool cpu_is_grace = false;      // NICs behind the CPU, GPUs reach it over NVLink-C2C
  TopologySpec topology;
  std::vector<std::string> sources;

  // GPUs of an NVLink domain reach each other over the host's PCIe tree.
  bool peers_over_pcie() const {
    return pcie_tree.any() && pcie_tree.peers && gpus_per_nvlink_domain > 1;
  }
  std::int64_t nvlink_reached_Bps() const {
    return static_cast<std::int64_t>(static_cast<double>(nvlink_Bps) * nvlink_efficiency);
  }
  std::int64_t nic_reached_Bps() const {
    return static_cast<std::int64_t>(static_cast<double>(nic_Bps) * nic_efficiency);
  }
};

// Salts of a route over NVLink that end or begin at the domain's switch, as multicast and reduction
// in the switch do: from a GPU into it, out of it to a GPU, or both (where the two may be the
// same).
inline constexpr std::uint64_t kIntoSwitch = ~std::uint64_t{0};
inline constexpr std::uint64_t kOutOfSwitch = ~std::uint64_t{1};
inline constexpr std::uint64_t kThroughSwitch = ~std::uint64_t{2};

// Gives the machine these constants: the device's own, and what its links reach.
void Calibrate(const constants::Set& constants, Spec* spec);
// What of `spec` a constant may depend on: its architecture, its fabric, whether there are NICs.
void AddScope(const Spec& spec, constants::Scope* scope);

// The names and one-sentence descriptions for `orrery list clusters`.
struct Preset {
  std::string name, description;
};
// Of the catalog that is built in (catalog.h). An unknown name lists the nearest valid ones.
std::span<const Preset> Presets();
Result<Spec> FindPreset(std::string_view name);

// What Build() checks, for a definition read from a file: names field, value, rule and remedy.
Status Validate(const Spec& spec);

// The vertices of a cluster are numbered: GPUs, NVLink switches (one a domain), NICs, the nodes of
// PCIe trees host by host, then the fabric's switches. The links: per GPU NVLink out and in, then
// per GPU PCIe to and from its NIC or its tree, the rest of the trees host by host (pcie.h), then
// the fabric's (fabric.h). Latency of an NVLink hop is half of nvlink_latency, so that GPU to
// GPU takes it once. A link's mtu_bytes is a full packet, header included. Where the fabric is
// direct (astra-sim, file) there are only GPUs, the fabric's switches and the fabric's links.
//
// A link's name is its ends' names with a slash between: leaf0/spine1 from leaf 0 to spine 1.
class Cluster {
 public:
  // Builds vertices, links and routes. Fails on impossible specs, naming the field.
  static Result<Cluster> Build(const Spec& spec);

  const Spec& spec() const { return spec_; }
  std::size_t devices() const {
    return static_cast<std::size_t>(spec_.nodes) * spec_.gpus_per_node;
  }
  NodeId node(DeviceId d) const { return NodeId(d.index() / spec_.gpus_per_node); }
  int local_index(DeviceId d) const { return static_cast<int>(d.index() % spec_.gpus_per_node); }
  std::size_t nvlink_domain(DeviceId d) const { return d.index() / spec_.gpus_per_nvlink_domain; }
  NicId nic(DeviceId d) const { return nic_of_[d.index()]; }  // the nearest to the GPU
  std::size_t nics() const { return static_cast<std::size_t>(spec_.nodes) * spec_.nics_per_node; }
  // The first switch above the NIC, within the fabric.
  std::size_t leaf(NicId nic) const { return leaf_of_[nic.index()]; }

  std::span<const Link> links() const { return links_; }
  std::size_t vertices() const { return origin_.first_switch + switches(); }
  std::size_t switches() const;  // of the fabric
  bool direct() const;           // GPUs are wired without NICs
  const AnyFabric& fabric() const { return fabric_; }

  // The directed links from one GPU to another, in order: NVLink in a domain, or PCIe where peers
  // go over it; else PCIe, NIC, fabric, NIC, PCIe. `salt` names the connection and picks among
  // equal paths (fabric.h). With rail-local routing a path between rails begins with NVLink to the
  // GPU on the destination's rail. Clears and fills `path`; nothing else is allocated. O(path).
  void Route(DeviceId from, DeviceId to, std::uint64_t salt, std::vector<LinkId>* path) const;
  std::string vertex_name(std::uint32_t vertex) const;
  std::string link_name(LinkId link) const;
  int leaves() const;  // switches that NICs meet; all routers if not a Clos
  int spines() const;  // 0 when one leaf carries all, or not a Clos
  std::size_t nvlink_domains() const;
  // Switches on the way between two NICs.
  int switches_between(NicId a, NicId b) const;

  // Links that are slow or down for a while, for back ends that can show it. What lasts for the
  // whole run and leaves some bandwidth stands in links() already and not here.
  std::span<const LinkChange> link_changes() const { return link_changes_; }
  // `name` means every link of that name, and those of the cable's other direction too. The error
  // of an unknown name shows how links are named. REQUIRES: 0 <= bandwidth <= 1, from < until.
  Status ChangeLinks(std::string_view name, double bandwidth, SimTime from, SimTime until);

  const PcieTree& pcie_tree() const { return pcie_tree_; }
  bool peers_over_pcie() const { return !direct() && spec_.peers_over_pcie(); }
  // REQUIRES: pcie_tree().any(); of one host.
  PcieDistance peer_distance(DeviceId a, DeviceId b) const;
  PcieDistance nic_distance(DeviceId d) const;
  // NVLinks without a switch between two GPUs of a host (nvlink_mesh.h).
  int nvlinks_between(DeviceId a, DeviceId b) const;
  // Links of the host's PCIe, GPUs' own included, from first_pcie_link() on.
  std::size_t first_pcie_link() const { return 2 * devices(); }
  std::size_t pcie_links() const {
    return 2 * devices() + pcie_tree_.links() * static_cast<std::size_t>(spec_.nodes);
  }

  // Where links stand in links(). REQUIRES: !direct().
  LinkId nvlink_out(DeviceId d) const { return LinkId(2 * d.index()); }
  LinkId nvlink_in(DeviceId d) const { return LinkId(2 * d.index() + 1); }
  LinkId pcie_out(DeviceId d) const { return LinkId(2 * devices() + 2 * d.index()); }
  LinkId pcie_in(DeviceId d) const { return LinkId(2 * devices() + 2 * d.index() + 1); }

 private:
  void RoutePart(DeviceId from, DeviceId to, std::uint64_t salt, std::vector<LinkId>* path) const;
  void PlaceNics();
  void AddDeviceLinks();
  void AddPcieLinks();
  std::uint32_t pcie_node(NodeId node, std::size_t number) const;  // its vertex
  std::size_t tree_link(NodeId node) const {                       // the host's first
    return 4 * devices() + node.index() * pcie_tree_.links();
  }
  void MeasureHost();
  DeviceId RailPeer(DeviceId from, DeviceId to) const;

  Spec spec_;
  std::vector<NicId> nic_of_;           // by device
  std::vector<std::uint32_t> leaf_of_;  // by NIC
  std::vector<Link> links_;
  std::vector<LinkChange> link_changes_;
  AnyFabric fabric_;
  PcieTree pcie_tree_;
  Origin origin_;
};

// Which device each rank of a run has. Ranks of all jobs; one rank a device.
struct Placement {
  std::vector<DeviceId> device;  // by RankId
};
enum class PlacementKind : std::uint8_t { kPacked, kRandom, kExplicit };
// Adds `ranks` ranks to `placement` on free devices: packed takes the lowest free ones, random
// draws whole nodes first if the ranks fill them (seeded), explicit takes `devices` as given.
Status Place(const Cluster& cluster, PlacementKind kind, std::size_t ranks, std::uint64_t seed,
             std::span<const DeviceId> devices, Placement* placement);

}  // namespace orrery::cluster
