// What the communication library would do: one plan per collective, two readings.
//
// Plan() decides, from what NCCL has (topology, size, version, environment), the algorithm, protocol,
// channels and chunk. ClosedForm() reads the plan as a formula; Lowering (lowering.h) reads the same
// plan as transfers at chunk grain. Sources: docs/collectives.md (NCCL 2.18 to 2.30 facts).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/ids.h"
#include "orrery/base/status.h"
#include "orrery/base/time.h"
#include "orrery/cluster/cluster.h"
#include "orrery/graph/graph.h"

namespace orrery::collective {

enum class Algorithm : std::uint8_t { kTree, kRing, kPointToPoint };
enum class Protocol : std::uint8_t { kLL, kLL128, kSimple };
std::string_view Name(Algorithm algorithm);
std::string_view Name(Protocol protocol);

// The environment variables a user sets, as text; parsed once. Unknown variables and choices not yet
// modelled (NVLS, CollNet, PAT) are refused by name.
struct Environment {
  int version = 22203;               // NCCL 2.22.3
  bool algorithm_allowed[2] = {true, true};          // by Algorithm (tree, ring)
  bool protocol_allowed[3] = {true, true, true};
  int min_channels = 0, max_channels = 64;
  std::int64_t buffer_bytes = 4 << 20;
  // … further variables of groups A–C as they are modelled
};
Result<Environment> ParseEnvironment(std::span<const std::pair<std::string, std::string>> variables);

// The shape of a communicator: all that its price depends on. Equal shapes price alike.
struct GroupShape {
  int ranks = 1;
  int domains = 1;                   // NVLink domains it spans: NCCL's "nodes"
  int ranks_per_domain = 1;          // NCCL's ppn; the largest when uneven
  int nics = 1;                      // distinct NICs its ranks sit next to in one domain (rails it can use)
  bool uniform = true;               // every domain holds ranks_per_domain ranks
  int network_hops = 0;              // switches between its farthest members: 1 leaf, 3 leaf-spine-leaf
  friend auto operator<=>(const GroupShape&, const GroupShape&) = default;
};
GroupShape ShapeOf(const cluster::Cluster& cluster, std::span<const DeviceId> members);

struct Plan {
  graph::Collective collective = graph::Collective::kAllReduce;
  Algorithm algorithm = Algorithm::kRing;
  Protocol protocol = Protocol::kSimple;
  int channels = 1;
  int threads = 512;
  std::int64_t bytes = 0;            // nccl-tests size
  std::int64_t chunk_bytes = 0;      // data per chunk
  std::int64_t slice_bytes = 0;      // one credit, one message
  int credits = 8;                   // slices in flight per connection
  GroupShape shape;
};

// Traffic of one member through its ports, whole collective, protocol overhead included.
struct PortBytes {
  std::int64_t nvlink_out = 0, nvlink_in = 0, nic_out = 0, nic_in = 0;
};
struct Cost {
  SimTime fixed = 0;                 // latency, set-up, pipeline fill
  SimTime transfer = 0;              // at full rate, ports uncontended
  PortBytes member;                  // per member on average; point-to-point: sender's out, receiver's in
  SimTime total() const { return fixed + transfer; }
};

// Plans and prices on one cluster under one environment; caches by (collective, dtype, bytes, shape).
class Planner {
 public:
  Planner(const cluster::Cluster& cluster, const Environment& environment);

  // A choice that this version cannot make is an error that names it. O(algorithms · protocols).
  Result<Plan> MakePlan(graph::Collective collective, graph::DType dtype, std::int64_t bytes,
                        const GroupShape& shape) const;
  // O(channels), no loop over ranks or chunks.
  Cost ClosedForm(const Plan& plan) const;

  const cluster::Cluster& cluster() const { return *cluster_; }
  const Environment& environment() const { return environment_; }

 private:
  const cluster::Cluster* cluster_;
  Environment environment_;
};

}  // namespace orrery::collective
