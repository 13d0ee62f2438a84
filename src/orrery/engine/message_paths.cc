#include "orrery/engine/message_paths.h"

namespace orrery::engine {

Result<std::unique_ptr<network::Network>> SetUpFluidLinks(const Inputs& inputs) {
  const cluster::Cluster& cluster = *inputs.cluster;
  if (!cluster.link_changes().empty()) {
    return InvalidInput(
        "network '{}': links that change during the run (perturb.links) are not served for a graph "
        "of this kind; use --network links",
        inputs.network);
  }
  ORRERY_ASSIGN_OR_RETURN(auto network, network::Create(inputs.network, inputs.network_parameters));
  ORRERY_RETURN_IF_ERROR(network->SetupLinks(cluster, {}, 0));
  return network;
}

void MessagePaths::Add(std::uint32_t number) {
  loads_.clear();
  for (const LinkId link : routes_.path(number)) loads_.push_back({.link = link});
  paths_.push_back(
      {network::PathTime(*inputs_.cluster, routes_.path(number), 0), network_.Know(loads_, 1, 0)});
}

}  // namespace orrery::engine
