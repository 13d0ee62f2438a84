// A network is a few calls: batches of transfers and fluids go in, completions come out.
//
// A Transfer moves bytes from one device to another. A Fluid moves bytes through a weighted set
// of ports; a closed-form collective is one fluid. A LinkFluid moves bytes over a set of links; a
// channel of a collective is one. Back ends say which of the three they serve.
//
// Contract: calls come with non-decreasing times. All starts and ends of one instant are one event:
// the order of items in a batch, and of batches of one instant, changes no completion time.
// Determinism: ties between messages are broken by `creator` (a stable id from the input) and the
// creator's own sequence number, never by address or arrival order.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/ids.h"
#include "orrery/base/status.h"
#include "orrery/base/time.h"
#include "orrery/cluster/cluster.h"
#include "orrery/network/parameters.h"
#include "orrery/network/use_log.h"

namespace orrery::network {

struct PacketCounts;  // packet/statistics.h
class QueueLog;

using FlightId = std::uint32_t;  // of the caller's choosing; unique among what is in flight

struct Transfer {
  FlightId id = 0;
  DeviceId from, to;
  std::int64_t bytes = 0;
  std::uint32_t creator = 0;  // the sending rank; gives its own transfers in its own order
  std::uint64_t salt = 0;     // names the connection: picks among equal paths
  std::uint8_t priority = 0;  // 0 to 2, the highest first; for back ends with queues by class
  // Messages of one connection go in the order of their starts; 0: it is alone on its own. For back
  // ends that share links: where links are queues, one sender's messages keep their order anyway.
  std::uint64_t connection = 0;
};

// A port is one direction of a GPU's NVLink or of a NIC: what fluids share.
struct PortLoad {
  std::uint32_t port = 0;    // index into the port table given to SetupPorts
  std::uint32_t copies = 1;  // how many equal flows of this fluid's class use the port (folding)
  std::int64_t bytes = 0;    // of this fluid through the port, per copy
};
struct Fluid {
  FlightId id = 0;
  SimTime fixed = 0;     // latency and set-up: part of the time, not of the bytes
  SimTime transfer = 0;  // at full rate with every port to itself
  std::uint32_t first_load = 0, loads = 0;  // into the batch's load array
};

// A fluid over links of the cluster: a channel of a collective. It waits `before`, moves `bytes` at
// a rate of weight times its fair level, at most cap_Bps, and is complete `after` later.
struct LinkLoad {
  LinkId link;
  std::uint32_t share = 1024;  // bytes on the link per byte of the fluid, in 1024ths
  friend bool operator==(const LinkLoad&, const LinkLoad&) = default;
};
struct LinkFluid {
  static constexpr std::uint32_t kUnknown = 0xFFFFFFFFu;
  FlightId id = 0;
  SimTime before = 0, after = 0;
  std::int64_t bytes = 0;
  std::uint32_t weight = 1;
  std::int64_t cap_Bps = 0;                 // 0: none; else at least the weight
  std::uint32_t first_load = 0, loads = 0;  // into the batch's array; each link once
  std::uint32_t known = kUnknown;           // Network::Know: loads, weight and cap are as then
  std::uint64_t connection = 0;             // as Transfer's
};

// The one connection between two ranks, for messages that name no other.
constexpr std::uint64_t ConnectionOf(std::uint32_t from, std::uint32_t to) {
  return (std::uint64_t{from} + 1) << 32 | to;
}
// A queue pair of a wire, which a collective's channel has between two ranks.
constexpr std::uint64_t ConnectionOfWire(std::uint32_t wire, std::uint32_t queue_pair) {
  return std::uint64_t{1} << 63 | std::uint64_t{wire} << 16 | queue_pair;
}

struct Completion {
  SimTime time = 0;
  FlightId id = 0;
};

struct PortStatistics {
  std::int64_t bytes = 0;
  SimTime busy = 0;
};

// A hop that leaves this partition: opaque to the caller, who carries it to `partition`.
struct RemoteHop {
  SimTime time = 0;  // head arrives at the next link
  std::uint32_t partition = 0;
  std::uint32_t next_hop = 0;  // index in its path
  Transfer transfer;
  std::uint64_t sequence = 0;  // creator's own
  SimTime tail = 0;            // the message's last byte arrives there
};

class Network {
 public:
  virtual ~Network() = default;
  virtual std::string_view name() const = 0;

  // Fluids: capacity in bytes/s of every port. Refused unless BackendInfo::fluids.
  virtual Status SetupPorts(std::span<const std::int64_t> capacity_Bps);
  virtual void Start(SimTime now, std::span<const Fluid> fluids, std::span<const PortLoad> loads);
  // Transfers: partition_of_domain gives each NVLink domain's owner; this instance is `partition`.
  virtual Status SetupLinks(const cluster::Cluster& cluster,
                            std::span<const std::uint32_t> partition_of_domain,
                            std::uint32_t partition) = 0;
  virtual void Start(SimTime now, std::span<const Transfer> transfers) = 0;
  // Fluids over links, after SetupLinks. REQUIRES: BackendInfo::link_fluids.
  virtual void Start(SimTime now, std::span<const LinkFluid> fluids,
                     std::span<const LinkLoad> loads);

  // A number for fluids of these loads, weight and cap, for LinkFluid::known: it saves looking them
  // up. REQUIRES: BackendInfo::link_fluids.
  virtual std::uint32_t Know(std::span<const LinkLoad>, std::uint32_t weight, std::int64_t cap_Bps);

  // Earliest time at which anything happens inside; kNever when idle.
  virtual SimTime next_time() const = 0;
  // Advances to the first time <= t that has completions, appends those to `done`, and returns it;
  // or to t if there are none, and returns t. REQUIRES: no start lies between.
  virtual SimTime AdvanceUntil(SimTime t, std::vector<Completion>* done) = 0;

  // Partitioned runs: hops that left since the last call; hops that enter.
  virtual void TakeRemote(std::vector<RemoteHop>* out) = 0;
  virtual void Deliver(const RemoteHop& hop) = 0;
  // Smallest delay between an event here and its effect in another partition.
  virtual SimTime lookahead() const = 0;

  // By port or by link, or empty where the back end keeps none. After it, or after packet_counts,
  // nothing starts any more.
  virtual std::span<const PortStatistics> statistics() = 0;

  // Moves a fluid in flight to other links; it keeps its weight, its cap and what it has left.
  // REQUIRES: BackendInfo::link_fluids.
  virtual void Move(SimTime now, FlightId id, std::span<const LinkLoad> loads);
  // Fluids and transfers under way over the link; counted where routing is adaptive.
  virtual std::uint32_t flights(LinkId) const { return 0; }
  // Not OK once a transfer has no path left and none returns: it never completes.
  virtual Status status() const { return {}; }

  // Keeps what every link carries over time, in up to `steps` steps (even). REQUIRES: SetupLinks
  // came before, no start did; BackendInfo::sees_links.
  virtual void KeepUseLog(std::size_t steps);
  virtual UseLog* use_log() { return nullptr; }  // null or off where none is kept

  // Whether the one partition takes more threads than the caller's, up to `threads` with it: how
  // many it has then. `always`: also where there is too little to do for more than one (for tests).
  // REQUIRES: everything else is set up, no start came before.
  virtual int UseThreads(int /*threads*/, bool /*always*/ = false) { return 1; }

  // Back ends that see packets: what they counted so far, and queues over time, kept in up to
  // `steps` steps (even) if asked for before the first start.
  virtual const PacketCounts* packet_counts() { return nullptr; }
  virtual void KeepQueueLog(std::size_t) {}
  virtual const QueueLog* queue_log() const { return nullptr; }
};

struct BackendInfo {
  std::string_view name;
  std::string_view description;  // one sentence with its formula
  bool fluids = false;           // closed-form collectives
  bool transfers = false;        // collectives lowered to chunks
  bool link_fluids = false;      // collectives as one fluid a channel over the cluster's links
  bool sees_links = false;       // statistics are of single links of the cluster
};
std::span<const BackendInfo> Backends();
bool SeesLinks(std::string_view backend);  // false for a name that is none
// An unknown name lists the nearest valid ones.
Result<std::unique_ptr<Network>> Create(std::string_view name, const Parameters& parameters = {});

// Time of one transfer on an idle network: Σ latency + wire/bw_min + Σ over the other hops of
// min(MTU, wire)/bw_hop, wire = bytes + ceil(bytes/payload)·header, each term rounded up once.
// Where MTUs differ along a path, bw_min is that of the hop that holds the message longest after
// its head.
SimTime Uncontended(const cluster::Cluster& cluster, const Transfer& transfer);

}  // namespace orrery::network
