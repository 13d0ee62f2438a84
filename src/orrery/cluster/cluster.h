// The cluster: GPUs, nodes, NICs, switches and directed links, with the bandwidths and latencies that
// network back ends and the collective planner read. Every constant of a preset names its source.
//
// Units last in every name. A link is one direction. Bandwidth is what payload can use at best; what
// protocols take off is the collective's and the network's business.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/ids.h"
#include "orrery/base/status.h"
#include "orrery/base/time.h"

namespace orrery::cluster {

// NCCL and the kernel models key on the architecture.
enum class Arch : std::uint8_t { kVolta, kAmpere, kHopper, kBlackwell };

// A GPU as cost models see it. Peak rates are dense (no sparsity), in FLOP/s at boost clock.
struct DeviceSpec {
  std::string name;                 // "H100-SXM5-80GB"; measured tables key on `table`
  std::string table;                // "h100": folder under data/measured
  Arch arch = Arch::kHopper;
  int sms = 0;
  double fp32_flops = 0, tf32_flops = 0, fp16_flops = 0, fp8_flops = 0;  // fp16 also stands for bf16
  std::int64_t memory_bytes = 0;
  std::int64_t memory_bandwidth_Bps = 0;
  std::int64_t l2_bytes = 0;
  double price_per_hour_usd = 0;    // list price of the preset's source; 0 unknown
  std::string source;               // where these numbers were printed
};

enum class LinkKind : std::uint8_t { kNvlink, kPcie, kNicUp, kNicDown, kLeafSpine };
std::string_view Name(LinkKind kind);

struct Link {
  LinkKind kind = LinkKind::kNvlink;
  std::uint32_t from = 0, to = 0;   // vertices
  std::int64_t bandwidth_Bps = 0;
  SimTime latency = 0;
  std::int32_t mtu_bytes = 0;       // a message's head goes on after min(mtu, message) bytes
};

enum class Fabric : std::uint8_t { kNone, kInfiniBand, kRoce, kEfa, kOmniPath };
std::string_view Name(Fabric fabric);

// The regular machine of the spine: nodes of equal shape under rails (NIC i of every node meets leaf
// switches of rail i) or plain leaves, leaves under spines.
struct Spec {
  std::string name;
  DeviceSpec device;
  int nodes = 1;
  int gpus_per_node = 8;            // GPUs that share a host (PCIe, CPU)
  int gpus_per_nvlink_domain = 8;   // GPUs that reach each other by NVLink: 72 on NVL72, else the node
  int nics_per_node = 8;            // evenly shared by the node's GPUs
  std::int64_t nvlink_Bps = 0;      // per GPU and direction, all links together
  SimTime nvlink_latency = 0;       // GPU to GPU through the switch, one way
  int nvlink_packet_bytes = 0;      // payload a packet carries; header beside it
  int nvlink_header_bytes = 0;
  std::int64_t pcie_Bps = 0;        // GPU to its NIC, per direction
  SimTime pcie_latency = 0;
  std::int64_t nic_Bps = 0;         // line rate per NIC and direction
  SimTime nic_latency = 0;          // one hop NIC to switch, switch to switch
  int nic_mtu_bytes = 4096;
  int nic_header_bytes = 0;
  Fabric fabric = Fabric::kInfiniBand;
  bool rail_optimised = true;
  int nodes_per_leaf = 32;          // hosts under one leaf (group) before traffic needs a spine
  double oversubscription = 1;      // leaf down / up bandwidth
  double cpu_relative_speed = 1;    // host launch cost relative to the reference host of compute
  bool cpu_is_amd = false;          // NCCL's tables and net overhead depend on the CPU vendor
  std::vector<std::string> sources;
};

// The names and one-sentence descriptions for `orrery list clusters`.
struct Preset {
  std::string_view name;
  std::string_view description;
};
std::span<const Preset> Presets();
// An unknown name lists the nearest valid ones.
Result<Spec> FindPreset(std::string_view name);

// What Build() checks, for a definition read from a file: names field, value, rule and remedy.
Status Validate(const Spec& spec);

// The vertices of a cluster are numbered: GPUs, NVLink switches (one a domain), NICs, leaves, spines.
// The links: per GPU NVLink out and in, then per GPU PCIe to and from its NIC, then per NIC up and
// down, then per (leaf, spine) up and down. Latency of an NVLink hop is half of nvlink_latency, so
// that GPU to GPU takes it once. A link's mtu_bytes is a full packet, header included.

class Cluster {
 public:
  // Builds vertices, links and routes. Fails on impossible specs, naming the field.
  static Result<Cluster> Build(const Spec& spec);

  const Spec& spec() const { return spec_; }
  std::size_t devices() const { return static_cast<std::size_t>(spec_.nodes) * spec_.gpus_per_node; }
  NodeId node(DeviceId d) const { return NodeId(d.index() / spec_.gpus_per_node); }
  int local_index(DeviceId d) const { return static_cast<int>(d.index() % spec_.gpus_per_node); }
  std::size_t nvlink_domain(DeviceId d) const { return d.index() / spec_.gpus_per_nvlink_domain; }
  NicId nic(DeviceId d) const;                 // the NIC nearest to the GPU
  std::size_t nics() const { return static_cast<std::size_t>(spec_.nodes) * spec_.nics_per_node; }
  std::size_t leaf(NicId nic) const;           // the leaf switch under which the NIC hangs

  std::span<const Link> links() const { return links_; }
  // The directed links from one GPU to another, in order: NVLink in a domain; else PCIe, NIC, leaf,
  // (spine, leaf,) NIC, PCIe. `salt` picks among equal spines. Clears and fills `path`. O(path).
  void Route(DeviceId from, DeviceId to, std::uint64_t salt, std::vector<LinkId>* path) const;
  std::string vertex_name(std::uint32_t vertex) const;
  int leaves() const { return leaves_; }
  int spines() const { return spines_; }       // 0 when one leaf carries all
  std::size_t nvlink_domains() const;
  // Switches between two NICs: 1 under one leaf, 3 across spines.
  int switches_between(NicId a, NicId b) const { return leaf(a) == leaf(b) ? 1 : 3; }

  // Where links stand in links().
  LinkId nvlink_out(DeviceId d) const { return LinkId(2 * d.index()); }
  LinkId nvlink_in(DeviceId d) const { return LinkId(2 * d.index() + 1); }
  LinkId pcie_out(DeviceId d) const { return LinkId(2 * devices() + 2 * d.index()); }
  LinkId pcie_in(DeviceId d) const { return LinkId(2 * devices() + 2 * d.index() + 1); }
  LinkId nic_up(NicId n) const { return LinkId(4 * devices() + 2 * n.index()); }
  LinkId nic_down(NicId n) const { return LinkId(4 * devices() + 2 * n.index() + 1); }

 private:
  LinkId leaf_up(std::size_t leaf, std::size_t spine) const {
    return LinkId(4 * devices() + 2 * nics() + 2 * (leaf * static_cast<std::size_t>(spines_) + spine));
  }
  void AddDeviceLinks();
  void AddFabricLinks();

  Spec spec_;
  std::vector<Link> links_;
  int leaves_ = 0, spines_ = 0;
};

// Which device each rank of a run has. Ranks of all jobs; one rank a device.
struct Placement {
  std::vector<DeviceId> device;                // by RankId
};
enum class PlacementKind : std::uint8_t { kPacked, kRandom, kExplicit };
// Adds `ranks` ranks to `placement` on free devices: packed takes the lowest free ones, random draws
// whole nodes first if the ranks fill them (seeded), explicit takes `devices` as given.
Status Place(const Cluster& cluster, PlacementKind kind, std::size_t ranks, std::uint64_t seed,
             std::span<const DeviceId> devices, Placement* placement);

}  // namespace orrery::cluster
