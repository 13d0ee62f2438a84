// Runs flows through a network back end and says when each was done.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/cluster/cluster.h"
#include "orrery/network/network.h"
#include "orrery/network/packet/statistics.h"
#include "orrery/traffic/flows.h"

namespace orrery::traffic {

// Nearest rank: the least value that a share p of the values does not exceed.
struct Spread {
  double mean = 0, p50 = 0, p99 = 0, most = 0;
};

struct LinkUse {
  LinkId link;
  std::int64_t bytes = 0;
  SimTime busy = 0;
  double utilisation = 0;
};

struct SizeClass {
  std::int64_t up_to = 0;  // bytes; the last has no bound
  std::size_t flows = 0;
  Spread slowdown;
};

// A flow that took long against an idle network.
struct SlowFlow {
  std::size_t flow = 0;
  DeviceId from, to;
  std::int64_t bytes = 0;
  SimTime start = 0, completion = 0;
  double slowdown = 0;
};

struct FlowRun {
  std::size_t flows = 0;
  std::int64_t bytes = 0;
  SimTime finish = 0;
  std::vector<SimTime> completion;  // by flow: end less start
  Spread completion_s, slowdown;    // slowdown: completion over the time on an idle network
  std::vector<SizeClass> sizes;     // where flows are not all of one size
  std::vector<network::PortStatistics> links;    // by link
  std::optional<network::PacketCounts> packets;  // of network packet
  network::QueueLog queues;                      // likewise, where asked for
  std::vector<SlowFlow> slowest;                 // the worst slowdowns, worst first
  std::uint64_t fingerprint = 0;
  int threads_used = 1;
};

// `progress` is called with (done, all) every now and then. Queues over time are kept in up to
// `queue_steps` steps (even; 0: not at all). A network that can takes `threads`, with the same
// result.
Result<FlowRun> RunFlows(const cluster::Cluster& cluster, std::string_view name,
                         const network::Parameters& parameters, std::vector<Flow> flows,
                         std::uint64_t seed,
                         const std::function<void(std::size_t, std::size_t)>& progress,
                         std::size_t queue_steps = 0, int threads = 1);

}  // namespace orrery::traffic
