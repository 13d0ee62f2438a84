// The PCIe tree of a host: root complexes joined by a socket link, switches below them, GPUs and
// NICs below those, each on a link of its own.
//
// A tree is written as text, sockets parted by bars, a switch in parentheses, g a GPU and n a NIC,
// numbered in the order in which they stand: "(g g n) (g g n) | (g g n) (g g n)" are two sockets of
// two switches each, with two GPUs and a NIC under every switch. What stands in no parentheses
// hangs at the socket's root complex itself; switches may hold switches. ":12" behind a GPU, a NIC
// or a switch is the rate of its own link in GB/s each way; without it GPUs and NICs have
// Spec::pcie_Bps, switches PcieTreeSpec::uplink_Bps.
//
// Assumptions. Links carry their effective rate in both directions at once and are shared fairly or
// first come first served, as the back end has it; switches and root complexes pass on what their
// links carry. A path takes the way through the lowest common switch, or through the root complexes
// and their direct link. Data that bounces through the host's memory (no peer access, no GPUDirect
// across a root complex) takes the same links up and down; the memory itself is not a bottleneck.
//
// Sources: NCCL's topology search (src/graph/topo.cc, paths.cc) for what PIX, PXB, PHB and SYS mean
// and for rates of links; latencies of switches and sockets in pcie.cc.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/ids.h"
#include "orrery/base/status.h"
#include "orrery/base/time.h"
#include "orrery/cluster/nvlink_mesh.h"
#include "orrery/cluster/topology.h"

namespace orrery::cluster {

struct Spec;

// How far apart two ends of a tree are, in NCCL's words: below one switch, below several, through a
// root complex, through the link between sockets.
enum class PcieDistance : std::uint8_t { kPix, kPxb, kPhb, kSys };
inline constexpr std::size_t kPcieDistances = 4;
std::string_view Name(PcieDistance distance);

// The links of a way through the host, taken together.
struct HostPath {
  std::int64_t least_Bps = 0;
  SimTime latency = 0;
  double ps_per_byte = 0;  // of all links, one after the other
};

struct PcieTreeSpec {
  std::string name;             // as 'orrery list pcie-trees' has it, or
  std::string tree;             // the tree itself; neither: every GPU has a link to its NIC
  bool peers = false;           // GPUs of an NVLink domain reach each other over it instead
  std::string nvlinks;          // but those that NVLinks without a switch join (nvlink_mesh.h)
  std::int64_t uplink_Bps = 0;  // switch to what is above it; 0: pcie_Bps
  std::int64_t socket_Bps = 0;  // root complex to root complex; 0: by CPU vendor
  SimTime uplink_latency = 150 * kNanosecond;  // through a switch or a root complex: pcie.cc
  SimTime socket_latency = 200 * kNanosecond;
  // What Cluster::Build finds: the worst of the ways between two GPUs, and from a GPU to its NIC,
  // that are no farther apart.
  std::array<HostPath, kPcieDistances> peer{}, nic{};
  std::int64_t gpu_Bps = 0;  // and the slowest of the GPUs' own links
  int most_nvlinks = 0;      // of `nvlinks`, of the GPU that has most

  bool any() const { return !tree.empty() || !name.empty(); }
};

struct PcieTreeInfo {
  std::string_view name;
  std::string_view description;  // one sentence with its source
};
// What `orrery list pcie-trees` shows: trees for hosts of any number of GPUs and NICs.
std::span<const PcieTreeInfo> PcieTrees();
// An unknown name lists the nearest valid ones.
Status CheckPcieTreeName(std::string_view name);

class PcieTree {
 public:
  PcieTree() = default;
  // Of spec.pcie_tree; without any, an empty tree. Errors name the key and where in the text.
  static Result<PcieTree> Make(const Spec& spec);

  bool any() const { return !nodes_.empty(); }
  // Switches and root complexes of a host, and links of a host beside those of its GPUs.
  std::size_t nodes() const { return nodes_.size(); }
  std::size_t links() const;
  const std::string& text() const { return text_; }
  const NvlinkMesh& nvlinks() const { return nvlinks_; }

  // Adds a host's links: NIC to tree and back for every NIC, up and down for every switch, each way
  // between sockets, each way between GPUs that NVLinks join.
  void AddLinks(const Spec& spec, std::uint32_t first_gpu, std::uint32_t first_nic,
                std::uint32_t first_node, std::vector<Link>* links) const;
  std::uint32_t node_of_gpu(std::size_t gpu) const { return gpu_[gpu].node; }
  std::int64_t gpu_Bps(std::size_t gpu) const { return gpu_[gpu].Bps; }

  // The NVLink from a GPU to a GPU. REQUIRES: nvlinks().links(from_gpu, to_gpu) > 0.
  LinkId Nvlink(std::size_t from_gpu, std::size_t to_gpu, std::size_t first) const;
  // The way between the links of two ends, `first` being the host's first link of AddLinks: from a
  // GPU to a GPU, from a GPU to a NIC and into it, from a NIC out of it to a GPU.
  void Between(std::size_t from_gpu, std::size_t to_gpu, std::size_t first,
               std::vector<LinkId>* path) const;
  void ToNic(std::size_t gpu, std::size_t nic, std::size_t first, std::vector<LinkId>* path) const;
  void FromNic(std::size_t nic, std::size_t gpu, std::size_t first,
               std::vector<LinkId>* path) const;
  PcieDistance gpu_to_gpu(std::size_t a, std::size_t b) const;
  PcieDistance gpu_to_nic(std::size_t gpu, std::size_t nic) const;

  // "switch3" or "root1".
  std::string NodeName(std::size_t node) const;

  // All-to-all among these GPUs of a host (ascending), beside one whose only bounds are the GPUs'
  // own links: how many times longer the busiest link of the tree needs, in 1024ths, at least 1024.
  // What goes by NVLink loads none.
  std::uint32_t ExchangeStretch(const Spec& spec, std::span<const std::uint32_t> gpus) const;

 private:
  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;
  struct Node {
    std::uint32_t above = kNone;  // kNone: a root complex
    std::uint32_t socket = 0;
    std::uint32_t up_link = 0;  // among a host's; down follows
    std::uint32_t number = 0;   // of its kind
    std::int64_t up_Bps = 0;
  };
  struct End {
    std::uint32_t node = 0;
    std::int64_t Bps = 0;
  };
  class Parser;
  void Finish(const Spec& spec);
  void Climb(std::uint32_t from, std::uint32_t to, std::size_t first,
             std::vector<LinkId>* path) const;
  PcieDistance Distance(std::uint32_t a, std::uint32_t b) const;
  std::size_t SocketLink(std::uint32_t from, std::uint32_t to) const;

  std::string text_;
  NvlinkMesh nvlinks_;
  std::vector<Node> nodes_;
  std::vector<End> gpu_, nic_;
  std::vector<std::uint32_t> roots_;  // by socket
  std::int64_t socket_Bps_ = 0;
  SimTime end_latency_ = 0, uplink_latency_ = 0, socket_latency_ = 0;
  std::int32_t mtu_bytes_ = 0;
};

}  // namespace orrery::cluster
