// What ASTRA-sim's configuration files say: its system layer, its analytical networks, its remote
// memory. Times are whole nanoseconds, as there.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"

namespace orrery::astra {

using Tick = std::uint64_t;                             // ns
inline constexpr Tick kLatest = 9'000'000'000'000'000;  // 104 days: no run goes on for longer

// A time computed in double, cut to whole ns as ASTRA-sim cuts it. What is beyond any run stays
// beyond it, and can be added to a time of one.
inline Tick WholeTicks(double ns) {
  constexpr Tick kBeyond = std::uint64_t{1} << 62;
  if (!(ns < static_cast<double>(kBeyond))) return kBeyond;
  return ns > 0 ? static_cast<Tick>(ns) : 0;
}

enum class Collective : std::uint8_t { kAllReduce, kAllGather, kReduceScatter, kAllToAll };
inline constexpr std::size_t kCollectives = 4;
std::string_view Name(Collective collective);

enum class Algorithm : std::uint8_t { kRing, kDirect, kHalvingDoubling, kDoubleBinaryTree };

// How one dimension of a collective is done: "ring", "oneDirect8", …
struct Implementation {
  Algorithm algorithm = Algorithm::kRing;
  bool one = false;  // one logical dimension over all NPUs
  int window = -1;   // of direct: messages under way at once; -1: all
  friend bool operator==(const Implementation&, const Implementation&) = default;
};

enum class Policy : std::uint8_t { kLifo, kFifo, kExplicit };

// In which order a chunk of a collective visits the network's dimensions. ASTRA-sim has the code
// for all of them; its reader sets none but the first.
enum class InterDimension : std::uint8_t { kAscending, kRoundRobin, kGreedy, kGreedyFlex };

// model-shared-bus: hand-overs take turns on LogGP's bus (memory_bus.h).
struct BusConfig {
  bool shared = false;
  Tick L = 0, o = 0, g = 0;
  double G = 0;              // ns a byte
  Tick reduction_delay = 1;  // local-reduction-delay: ns for 100 bytes
};

struct SystemConfig {
  Policy policy = Policy::kLifo;
  bool local_bandwidth_aware = false;  // collective-optimization
  InterDimension inter_dimension = InterDimension::kAscending;
  Tick endpoint_delay = 10;
  int active_chunks = 1;  // per dimension
  std::int64_t splits = 0;
  std::array<std::vector<Implementation>, kCollectives> implementations;
  // Prefixes of Chakra graphs: by collective, and by a node's id.
  std::array<std::string, kCollectives> custom;
  std::map<std::uint64_t, std::string> custom_by_node;
  BusConfig bus;
  double local_mem_bandwidth = 0;  // byte/s
  double peak_flops = 0;           // FLOP/s
  bool roofline = false;
  bool replay_only = false;
};

enum class Shape : std::uint8_t { kRing, kFullyConnected, kSwitch };
struct Dimension {
  Shape shape = Shape::kRing;
  int npus = 0;
  double bandwidth = 0;  // byte/ns
  double bandwidth_gb = 0;
  double latency = 0;  // ns
};
struct NetworkConfig {
  std::vector<Dimension> dimensions;  // the first varies fastest with the rank
  bool congestion_aware = false;
  std::size_t npus() const {
    std::size_t n = 1;
    for (const Dimension& d : dimensions) n *= static_cast<std::size_t>(d.npus);
    return n;
  }
};

enum class MemoryKind : std::uint8_t { kNone, kPerNode, kPerNpu, kPool };
struct MemoryConfig {
  MemoryKind kind = MemoryKind::kNone;
  Tick latency = 0;
  std::uint64_t bandwidth = 0;  // byte/ns
  std::size_t nodes = 0, npus_per_node = 0;
};

// What is not in the files.
struct RunConfig {
  int queues_per_dimension = 1;
  double injection_scale = 1;
  bool rendezvous = false;
  bool stalls = false;  // wait for ever where ASTRA-sim does, by its defects
};

// Errors name file, line and key. What ASTRA-sim reads and drops, and keys it does not know, are
// added to `warnings`.
Result<SystemConfig> ReadSystem(const std::string& path, const RunConfig& run,
                                std::vector<std::string>* warnings);
Result<NetworkConfig> ReadNetwork(const std::string& path);
Result<MemoryConfig> ReadMemory(const std::string& path, std::vector<std::string>* warnings);

}  // namespace orrery::astra
