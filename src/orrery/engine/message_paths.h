// Messages of ranks as fluids over links, each pair's path looked up once: a message waits as long
// as an empty one takes and moves its wire bytes over every link of its path, so that alone it
// takes what network::Uncontended says.
//
// Cost: a look-up in a table a message; some 50 bytes a pair of ranks that has sent.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "orrery/engine/engine.h"
#include "orrery/network/network.h"
#include "orrery/network/path_cache.h"
#include "orrery/network/wire.h"

namespace orrery::engine {

// The network that `inputs` names, over the cluster's links.
Result<std::unique_ptr<network::Network>> SetUpFluidLinks(const Inputs& inputs);

class MessagePaths {
 public:
  // REQUIRES: the network is SetUpFluidLinks'.
  MessagePaths(const Inputs& inputs, network::Network* network)
      : inputs_(inputs), network_(*network) {}

  // Its loads are the network's by number (network::Network::Know).
  network::LinkFluid Of(std::uint32_t from, std::uint32_t to, std::int64_t bytes) {
    const cluster::Cluster& cluster = *inputs_.cluster;
    const DeviceId source = inputs_.placement->device[from], sink = inputs_.placement->device[to];
    network::LinkFluid fluid;
    if (source == sink) return fluid;
    const std::uint32_t number = routes_.Find(cluster, source, sink, 0);
    if (number == paths_.size()) Add(number);
    fluid.before = paths_[number].before;
    fluid.known = paths_[number].known;
    fluid.bytes = network::WireBytes(cluster, source, sink, bytes, 0);
    fluid.connection = network::ConnectionOf(from, to);
    return fluid;
  }

 private:
  struct Path {
    SimTime before = 0;
    std::uint32_t known = network::LinkFluid::kUnknown;
  };
  void Add(std::uint32_t number);

  const Inputs& inputs_;
  network::Network& network_;
  network::PathCache routes_;
  std::vector<Path> paths_;  // by the routes' numbers
  std::vector<network::LinkLoad> loads_;
};

}  // namespace orrery::engine
