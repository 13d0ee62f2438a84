// Which fabric a cluster has: a topology's name, its parameters, and what happens to its links.
//
// The topologies are listed in topologies/list.cc, one file each. Numbers that are 0 are derived as
// the topology's own file says.
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

// kRouter joins two routers of a group or lattice, kGlobal two groups of a dragonfly. kPcie is the
// link of a GPU or a NIC, kPcieUp that of a PCIe switch to what is above it, kSocket joins two root
// complexes (pcie.h).
enum class LinkKind : std::uint8_t {
  kNvlink,
  kPcie,
  kNicUp,
  kNicDown,
  kLeafSpine,
  kSpineCore,
  kRouter,
  kGlobal,
  kPcieUp,
  kSocket
};
inline constexpr std::size_t kLinkKinds = 10;
std::string_view Name(LinkKind kind);
// Inside a host or an NVLink domain, not between NICs.
constexpr bool IsLocal(LinkKind kind) {
  return kind == LinkKind::kNvlink || kind == LinkKind::kPcie || kind == LinkKind::kPcieUp ||
         kind == LinkKind::kSocket;
}

struct Link {
  LinkKind kind = LinkKind::kNvlink;
  std::uint32_t from = 0, to = 0;  // vertices
  std::int64_t bandwidth_Bps = 0;
  SimTime latency = 0;
  std::int32_t mtu_bytes = 0;  // a message's head goes on after min(mtu, message) bytes
};

enum class DimensionKind : std::uint8_t { kRing, kLine, kFullyConnected, kSwitch };
std::string_view Name(DimensionKind kind);

struct Dimension {
  DimensionKind kind = DimensionKind::kRing;
  int size = 1;
  std::int64_t bandwidth_Bps = 0;  // of one link and direction; 0: the NIC's
  SimTime latency = 0;             // of one link
};

// ECMP hashes (connection, from, to); static looks at the destination alone; rail-local is ECMP
// after an NVLink hop to the GPU on the destination's rail (NCCL's PXN). Adaptive needs a back end
// that sees load.
enum class Routing : std::uint8_t { kEcmp, kStatic, kRailLocal, kAdaptive };
std::string_view Name(Routing routing);

// A graph from a file. Vertices 0 to gpus - 1 are GPUs, then come the switches.
struct Graph {
  std::uint32_t gpus = 0, switches = 0;
  std::vector<Link> links;         // both directions stand in the list
  std::vector<std::string> names;  // of the switches
};

struct TopologySpec {
  std::string name;  // empty: rails or plain leaves, as Spec::rail_optimised says
  Routing routing = Routing::kEcmp;
  int spines = 0;               // of one pod and plane
  std::int64_t uplink_Bps = 0;  // leaf to spine, one link
  int cores = 0;                // three tiers: above one spine
  std::int64_t core_Bps = 0;    // three tiers: spine to core, one link
  SimTime spine_latency = 0;    // one link; 0: the NIC's
  SimTime core_latency = 0;
  int nodes_per_pod = 0;             // three tiers: hosts under one set of spines
  double core_oversubscription = 1;  // three tiers: spine down / up bandwidth
  int nics_per_router = 0;           // dragonfly
  int routers_per_group = 0;
  int global_links = 0;               // of one router
  std::vector<Dimension> dimensions;  // torus, mesh, astra-sim; dimension 0 fastest
  std::string file;                   // where `graph` or the parameters came from
  Graph graph;                        // topology `file`
};

struct TopologyInfo {
  std::string_view name;
  std::string_view description;  // one sentence with its source
};
// What `orrery list topologies` shows.
std::span<const TopologyInfo> Topologies();
// An unknown name lists the nearest valid ones.
Status CheckTopologyName(std::string_view name);

// Of everything in it; for caches of what was built from it.
std::uint64_t HashOf(const TopologySpec& topology);

// A link that is slow, or fails and returns: from `from` until `until` it has `bandwidth` of its
// own rate.
struct LinkChange {
  LinkId link;
  double bandwidth = 1;  // 0: it is down
  SimTime from = 0, until = kNever;
};

}  // namespace orrery::cluster
