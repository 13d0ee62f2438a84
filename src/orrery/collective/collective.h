// What the communication library would do: one plan per collective, two readings.
//
// MakePlan() decides, from what NCCL has (topology, size, version, environment), the algorithm,
// protocol, channels and chunk. ClosedForm() reads the plan as a formula; Lowering (lowering.h)
// reads the same plan as transfers at chunk grain. Sources: docs/collectives.md (NCCL 2.18 to 2.30
// facts).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orrery/base/ids.h"
#include "orrery/base/status.h"
#include "orrery/base/time.h"
#include "orrery/cluster/cluster.h"
#include "orrery/collective/choice/graph_file.h"
#include "orrery/graph/graph.h"

namespace orrery::collective::nccl {
class Releases;  // choice/releases.h
struct Release;
}  // namespace orrery::collective::nccl

namespace orrery::collective {

// kNvls: the NVLink switch reduces and multicasts; over several domains the network's switches do
// the rest. kNvlsTree: that in each domain, and trees between its heads. kPat: pat.h. kCollNet*:
// collnet.h.
enum class Algorithm : std::uint8_t {
  kTree,
  kRing,
  kPointToPoint,
  kNvls,
  kNvlsTree,
  kPat,
  kCollNetDirect,
  kCollNetChain
};
inline constexpr std::size_t kAlgorithms = 8;
enum class Protocol : std::uint8_t { kLL, kLL128, kSimple };
std::string_view Name(Algorithm algorithm);
std::string_view Name(Protocol protocol);

// A row of a tuner's file (tuner.h). -1: any, of channels NCCL's own.
struct TunerRow {
  std::optional<graph::Collective> collective;  // none: of one that nothing here runs
  std::int64_t min_bytes = 0, max_bytes = 0;
  std::optional<Algorithm> algorithm;  // none: not modelled
  std::string_view name;               // of the algorithm, as the file has it
  Protocol protocol = Protocol::kSimple;
  std::int64_t channels = -1, nodes = -1, ranks = -1, pipe_ops = -1, registered = -1;
  int line = 0;
};

// What a step costs where it is not NCCL that runs it: another library, another simulator's
// assumptions. What is not said (-1, 0) is NCCL's (docs/collectives.md).
struct StepCosts {
  SimTime setup = -1;  // ORRERY_SETUP_NS: from the last arrival to the first step
  SimTime sync = -1;   // ORRERY_SYNC_NS: holds a channel, before each slice
  // ORRERY_POST_*_NS: from a slice's end of work to the links
  SimTime post_nvlink = -1, post_network = -1;
  std::int64_t channel_Bps = 0;  // ORRERY_CHANNEL_GBPS: data through a channel
};

// What the environment variables that a user sets change; the names are NCCL's. Defaults are
// NCCL's.
struct Environment {
  int version = 22203;          // NCCL_VERSION (not read by NCCL; images set it): 2.22.3
  bool version_stated = false;  // else ReleaseOn
  // The table that `version` is looked up in (choice/releases.h); null: what is built in. And what
  // it says, which a Planner fills in.
  std::shared_ptr<const nccl::Releases> releases;
  const nccl::Release* release = nullptr;
  // By graph::Collective up to kBroadcast, then Algorithm or Protocol.
  std::array<std::array<bool, kAlgorithms>, 4> algorithm_allowed{
      {{true, true, true, true, true, true, true, true},
       {true, true, true, true, true, true, true, true},
       {true, true, true, true, true, true, true, true},
       {true, true, true, true, true, true, true, true}}};
  std::array<std::array<bool, 3>, 4> protocol_allowed{
      {{true, true, true}, {true, true, true}, {true, true, true}, {true, true, true}}};
  bool protocol_forced = false;       // NCCL_PROTO was given: LL128 is not vetoed by the hardware
  bool nvls = true;                   // NCCL_NVLS_ENABLE
  bool pat = true;                    // NCCL_PAT_ENABLE
  bool collnet = false;               // NCCL_COLLNET_ENABLE
  int collnet_domains = 2;            // NCCL_COLLNET_NODE_THRESHOLD: at least so many
  int nvls_channels = 0;              // NCCL_NVLS_NCHANNELS; 0: by architecture
  std::int64_t nvls_chunk_bytes = 0;  // NCCL_NVLS_CHUNKSIZE; 0: by fabric
  std::int64_t nvls_tree_chunk_bytes = 0;   // NCCL_NVLSTREE_MAX_CHUNKSIZE; 0: by fabric and domains
  int min_channels = 0, max_channels = 64;  // NCCL_MIN/MAX_CTAS, NCCL_MIN/MAX_NCHANNELS
  std::int64_t buffer_bytes = 0;  // NCCL_BUFFSIZE: Simple, a connection and channel; 0: by fabric
  std::int64_t ll_buffer_bytes = 8 * 512 * 8 * 16;      // NCCL_LL_BUFFSIZE
  std::int64_t ll128_buffer_bytes = 120 * 640 * 8 * 8;  // NCCL_LL128_BUFFSIZE
  int threads = 512;                                    // NCCL_NTHREADS: LL and Simple
  int ll128_threads = 640;                              // NCCL_LL128_NTHREADS
  // NCCL_THREAD_THRESHOLDS: bytes a thread, of trees and rings by protocol; -1: NCCL's own.
  std::array<std::array<std::int64_t, 3>, 2> thread_thresholds{{{-1, -1, -1}, {-1, -1, -1}}};
  int net_overhead_ns = -1;                      // NCCL_NET_OVERHEAD; -1: 1000 (2000 on AMD CPUs)
  std::int64_t p2p_net_chunk_bytes = 0;          // NCCL_P2P_NET_CHUNKSIZE; 0: by fabric
  double efa_latency_us = 0;                     // what AWS's plugin says of a crossing; 0: by GPU
  std::int64_t p2p_nvl_chunk_bytes = 512 << 10;  // NCCL_P2P_NVL_CHUNKSIZE
  std::int64_t p2p_pci_chunk_bytes = 128 << 10;  // NCCL_P2P_PCI_CHUNKSIZE
  std::int64_t p2p_chunk_bytes = 0;  // NCCL_CHUNK_SIZE: of sends, whatever the way; 0: as above
  std::int64_t p2p_ll_threshold_bytes = 16384;  // NCCL_P2P_LL_THRESHOLD
  int p2p_group = 8;                            // NCCL_P2P_SCHEDULE_GROUP_SIZE
  int p2p_channel_GBps = 14;                    // NCCL_P2P_PER_CHANNEL_NET_BW
  bool pxn = true;                              // NCCL_PXN_DISABLE, NCCL_P2P_PXN_LEVEL
  bool domains_of_hosts = true;  // NCCL_MNNVL_ENABLE: NVLink domains may be larger than a host
  bool p2p_net_ll = false;       // NCCL_ALLOC_P2P_NET_LL_BUFFERS
  int min_p2p_channels = 1, max_p2p_channels = 64;  // NCCL_MIN/MAX_P2P_NCHANNELS
  int channels_per_net_peer = -1;                   // NCCL_NCHANNELS_PER_NET_PEER
  int queue_pairs = 1;                              // NCCL_IB_QPS_PER_CONNECTION
  int adaptive_routing = -1;                        // NCCL_IB_ADAPTIVE_ROUTING; -1: on InfiniBand
  std::int64_t adaptive_above = 8192;               // NCCL_IB_AR_THRESHOLD
  // NCCL_SOCKET_NTHREADS, NCCL_NSOCKS_PERTHREAD: of a channel's connection over TCP.
  int socket_threads = 1, sockets_per_thread = 1;
  StepCosts steps;
  int ring_slices = 2;             // ORRERY_RING_SLICES: of a chunk of a ring, Simple
  std::vector<TunerRow> tuner;     // NCCL_TUNER_CONFIG_FILE
  Graphs graphs;                   // NCCL_GRAPH_FILE
  std::vector<std::string> noted;  // set, and without effect here (inert_variables.h)
  // NCCL_NET and NCCL_IB_DISABLE ask for NCCL's own transport; NCCL_P2P_LEVEL and a tuner's code
  // were given: what a cluster must agree with.
  bool sockets = false, verbs = false, peer_level = false, tuner_plugin = false;
};
// Unknown variables and malformed values are refused by name. Variables that only log, bootstrap or
// register are accepted without a word.
Result<Environment> ParseEnvironment(
    std::span<const std::pair<std::string, std::string>> variables,  // NCCL's, with values
    std::shared_ptr<const nccl::Releases> releases = nullptr);

// The shape of a communicator: all that its price depends on. Equal shapes price alike.
struct GroupShape {
  int ranks = 1;
  int domains = 1;           // NVLink domains it spans: NCCL's "nodes"
  int ranks_per_domain = 1;  // NCCL's ppn; the largest when uneven
  int nics = 1;              // distinct NICs its ranks sit next to in one domain (rails it can use)
  bool uniform = true;       // every domain holds ranks_per_domain ranks
  int network_hops = 0;      // switches between its farthest members: 0 none (one domain), 1 leaf,
                             // 3 leaf-spine-leaf
  int wrap_hops = 0;  // the same on the edge that closes a ring, where rings leave their rail there
                      // (an odd number of domains, a GPU a NIC: ring_order.h); 0: they do not
  // Where the host has a PCIe tree (cluster/pcie.h): 1 + the farthest cluster::PcieDistance between
  // neighbours in a domain, if peers go over it, and from a member to its NIC; 0: neither.
  std::uint8_t peer_path = 0, nic_path = 0;
  std::array<std::uint16_t, cluster::kPcieDistances> peers{};  // neighbours that are so far apart
  std::uint32_t exchange = 1024;  // PcieTree::ExchangeStretch of a domain's members
  // Where NVLinks without a switch join some of a host's GPUs (cluster/nvlink_mesh.h): links of a
  // member each way that rings over its domain take, and the least between any two of a domain. 0:
  // none, what goes there goes over PCIe.
  std::uint16_t ring_nvlinks = 0, pair_nvlinks = 0;
  bool in_order = true;  // members stand domain by domain
  friend auto operator<=>(const GroupShape&, const GroupShape&) = default;
};
GroupShape ShapeOf(const cluster::Cluster& cluster, std::span<const DeviceId> members);
// The group's members in a domain reach each other over PCIe: rings and trees over them do, or
// messages between any two.
enum class Ways : std::uint8_t { kRings, kPairs };
bool OverPcie(const cluster::Spec& spec, const GroupShape& shape, Ways ways);

// Whose formula prices a plan; kMoye: moye.h.
enum class PriceModel : std::uint8_t { kOrrery, kMoye };
struct Pricing {
  PriceModel model = PriceModel::kOrrery;
  bool otherwise_orrery = false;  // what kMoye has no equation for; else it is refused
  SimTime setup = 0;              // kMoye: α
};

// An all-to-all whose members do not all send each other the same: whose shares, and what they come
// to (all_to_all_uneven.cc), in bytes of one of the parts that messages are cut into.
struct Uneven {
  const graph::Shares* shares = nullptr;  // outlives the plan; null: all messages are alike
  bool returned = false;
  SimTime played = 0;  // its time from the first step on (playback_uneven.h); 0: not played
  // What a channel's place runs one after the other, at most; of those with a message that leaves
  // its domain; all that a channel runs, at most.
  double place = 0, place_remote = 0, channel = 0;
  double largest_local = 0, largest_remote = 0;  // message inside a domain, and between two
  // Through one port of NVLink inside a domain, at most, and how many messages; how many of those
  // that are as large as the largest, to a twentieth, some port has.
  double local = 0, local_count = 0, local_large = 0;
  double stays = 0, handed = 0;  // through the busiest one, and what PXN hands over there
  // The same of a NIC; what of it was handed over.
  double remote = 0, remote_count = 0, remote_large = 0, hops = 0;
  double mean_local = 0, mean_handed = 0, mean_remote = 0;  // of a member
  std::int64_t priced_even = 0;  // else: the even all-to-all of this size is its price
  // Bytes that one member sends another. REQUIRES: shares != nullptr.
  std::int64_t Message(std::int64_t bytes, std::size_t from, std::size_t to) const;
};

struct Plan {
  graph::Collective collective = graph::Collective::kAllReduce;
  Algorithm algorithm = Algorithm::kRing;
  Protocol protocol = Protocol::kSimple;
  int channels = 1;
  int threads = 512;
  const nccl::Release* release = nullptr;  // of NCCL, the planner's; null: 2.22.3
  int queue_pairs = 1;  // of a connection between nodes, which take its messages in turn
  // Messages between nodes of more bytes than this go by adaptive routes, the notice of each behind
  // it; -1: none do.
  std::int64_t adaptive_above = -1;
  int sockets = 1;                    // TCP: of a channel's connection
  int socket_threads = 1;             // and the threads that serve them
  StepCosts steps;                    // as in Environment
  std::int64_t bytes = 0;             // nccl-tests size
  std::int64_t chunk_bytes = 0;       // data per chunk
  std::int64_t slice_bytes = 0;       // one credit, one message
  std::int64_t nccl_chunk_bytes = 0;  // NCCL's chunk: a tree passes it on in pieces of chunk_bytes
  int credits = 8;                    // slices in flight per connection
  int lanes = 0;                      // all-to-all: channels over which its messages are spread
  int p2p_group = 8;                  // as in Environment
  bool pxn = true;     // messages of an exchange leave a domain on their receiver's rail
  int heads = 0;       // NVLS, CollNet: GPUs of a domain that each reduce a part; else 0
  SimTime phases = 0;  // trees, NVLS, PAT, CollNet, gather, scatter: what is played (PhasesOf)
  bool copy_engine = false;  // a message that no CTA moves (CopyPlan)
  Uneven uneven;             // all-to-all
  // What NCCL would have taken where that is not modelled yet ("NVLSTree"); empty when this plan is
  // NCCL's own choice. A result that rests on such a plan must say so.
  std::string_view instead_of;
  bool restricted() const { return !instead_of.empty(); }
  const Graphs* graphs = nullptr;  // the planner's, where this group takes them
  PriceModel priced_by = PriceModel::kOrrery;
  std::string_view note;  // what a result that rests on this price must say; empty: nothing
  GroupShape shape;
};

// Traffic of one member through its ports, whole collective: flags of LL and LL128 and the headers
// of packets included, so that it compares with the line rates of cluster::Spec.
struct PortBytes {
  std::int64_t nvlink_out = 0, nvlink_in = 0, nic_out = 0, nic_in = 0;
};
struct Cost {
  SimTime fixed = 0;     // set-up, latencies, waits for upstream: not of the bytes
  SimTime transfer = 0;  // busy time of the busiest port or CTA, ports uncontended
  PortBytes member;      // per member on average; point-to-point: sender's out, receiver's in
  SimTime total() const { return fixed + transfer; }
};

// The release whose rules hold: as stated; else 2.22.3, or 2.28.7 on Blackwell, which NCCL knows
// from 2.25 on (the middle one of those up to 2.30).
int ReleaseOn(cluster::Arch arch, const Environment& environment);

// Plans and prices on one cluster under one environment. Stateless: safe to share between threads.
class Planner {
 public:
  Planner(const cluster::Cluster& cluster, const Environment& environment,
          const Pricing& pricing = {});

  // A choice that this version cannot make is an error that names it. Point-to-point: `shape` is of
  // the pair, `communicator` of the group whose communicator carries the message: NCCL spreads it
  // over the fewer channels, the more ranks that has, and cuts it into smaller chunks if that spans
  // domains. Everything else runs on its own group: there the two are the same. NCCL's formulas
  // count bytes, whatever their type. O(algorithms * protocols).
  Result<Plan> MakePlan(graph::Collective collective, std::int64_t bytes, const GroupShape& shape,
                        const GroupShape& communicator) const;
  Result<Plan> MakePlan(graph::Collective collective, std::int64_t bytes,
                        const GroupShape& shape) const {
    return MakePlan(collective, bytes, shape, shape);
  }
  // A message that a copy engine writes into the memory of a GPU of the same NVLink domain
  // (Transformer Engine's userbuffers, not NCCL): a step's latency over NVLink, then the links'
  // rate. REQUIRES: pair.domains == 1, bytes >= 0.
  Plan CopyPlan(std::int64_t bytes, const GroupShape& pair) const;
  // An all-to-all of these shares: each message has its own size. `bytes` over the ranks is an even
  // one's; `shares` outlive the plan. Channels, protocol and chunk are those of the largest message
  // (NCCL chooses them for each). Played (playback_uneven.h), so O(ranks^2 * channels of a
  // message); even shares are MakePlan's.
  Result<Plan> UnevenPlan(std::int64_t bytes, const GroupShape& shape, const graph::Shares& shares,
                          bool returned) const;
  // The plan of one algorithm and protocol, not NCCL's choice among them: channels, chunks,
  // credits. REQUIRES: NCCL has the algorithm for the collective; not point-to-point; shape.ranks
  // > 1. Trees and NVLS with busy ports are played (playback.h): 0.15 us without, some 30 ns a
  // message with it, 85 us at most.
  // `channels`: at most so many, where a tuner says so; -1: NCCL's own number.
  Plan Shape(graph::Collective collective, Algorithm algorithm, Protocol protocol,
             std::int64_t bytes, const GroupShape& shape, std::int64_t channels = -1) const;
  // O(channels) of an all-to-all, else O(1): no loop over ranks or chunks; below 1 us.
  Cost ClosedForm(const Plan& plan) const;

  const cluster::Cluster& cluster() const { return *cluster_; }
  const Environment& environment() const { return environment_; }

 private:
  Result<Plan> Choose(graph::Collective collective, std::int64_t bytes, const GroupShape& shape,
                      const GroupShape& communicator) const;
  // Under kMoye: the plan with its equation, or why there is none.
  Result<Plan> PricedByMoye(Plan plan) const;

  const cluster::Cluster* cluster_;
  Environment environment_;
  Pricing pricing_;
};

}  // namespace orrery::collective
