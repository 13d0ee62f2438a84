// What a cluster's definition must keep to (cluster.h: Validate).
#include <utility>

#include "orrery/base/time.h"
#include "orrery/cluster/cluster.h"

namespace orrery::cluster {
namespace {

// Beyond these a definition is a mistake, and vertex and link numbers would not fit their ids.
constexpr int kMaxNodes = 1 << 20;
constexpr std::int64_t kMaxDevices = 1 << 23;

template <class T>
Status Positive(const char* field, T value, const char* remedy) {
  if (value > 0) return {};
  return InvalidInput("{} = {}: must be above 0; {}", field, value, remedy);
}

Status ValidateShape(const Spec& spec) {
  if (spec.nodes < 1 || spec.nodes > kMaxNodes) {
    return InvalidInput("nodes = {}: must be 1 to {}", spec.nodes, kMaxNodes);
  }
  ORRERY_RETURN_IF_ERROR(
      Positive("gpus_per_node", spec.gpus_per_node, "count the GPUs of one host"));
  if (static_cast<std::int64_t>(spec.nodes) * spec.gpus_per_node > kMaxDevices) {
    return InvalidInput("nodes = {} with gpus_per_node = {}: more than {} GPUs; lower nodes",
                        spec.nodes, spec.gpus_per_node, kMaxDevices);
  }
  const int domain = spec.gpus_per_nvlink_domain;
  if (domain < 1) {
    return InvalidInput("gpus_per_nvlink_domain = {}: must be above 0; 1 means no NVLink", domain);
  }
  if (domain > 1 && domain % spec.gpus_per_node != 0 && spec.gpus_per_node % domain != 0) {
    return InvalidInput(
        "gpus_per_nvlink_domain = {}: must be a multiple or a divisor of gpus_per_node = {}",
        domain, spec.gpus_per_node);
  }
  const int nics = spec.nics_per_node;
  if (nics < 1 || nics > spec.gpus_per_node || spec.gpus_per_node % nics != 0) {
    return InvalidInput(
        "nics_per_node = {}: must divide gpus_per_node = {}; give several ports beside one GPU as "
        "one NIC with their summed rate",
        nics, spec.gpus_per_node);
  }
  return {};
}

Status ValidateFabric(const Spec& spec) {
  ORRERY_RETURN_IF_ERROR(
      Positive("nic_bandwidth", spec.nic_reached_Bps(), "give the line rate of one NIC"));
  ORRERY_RETURN_IF_ERROR(
      Positive("pcie_bandwidth", spec.pcie_Bps, "give the rate from GPU to NIC"));
  ORRERY_RETURN_IF_ERROR(
      Positive("stream_bandwidth", spec.stream_Bps, "give what one TCP connection moves"));
  ORRERY_RETURN_IF_ERROR(
      Positive("nic_mtu_bytes", spec.nic_mtu_bytes, "give the payload of a packet"));
  ORRERY_RETURN_IF_ERROR(
      Positive("nodes_per_leaf", spec.nodes_per_leaf, "count the hosts under a leaf"));
  if (spec.nic_header_bytes < 0) {
    return InvalidInput("nic_header_bytes = {}: must not be negative", spec.nic_header_bytes);
  }
  if (spec.sharp && spec.fabric != Fabric::kInfiniBand) {
    return InvalidInput("sharp = true: only InfiniBand switches reduce, the fabric is {}",
                        Name(spec.fabric));
  }
  if (!(spec.oversubscription >= 1 && spec.oversubscription <= 1024)) {
    return InvalidInput("oversubscription = {}: must be 1 to 1024 (leaf down / up bandwidth)",
                        spec.oversubscription);
  }
  return {};
}

}  // namespace

Status Validate(const Spec& spec) {
  ORRERY_RETURN_IF_ERROR(ValidateShape(spec));
  ORRERY_RETURN_IF_ERROR(CheckTopologyName(spec.topology.name));
  ORRERY_RETURN_IF_ERROR(ValidateFabric(spec));
  if (const Result<PcieTree> tree = PcieTree::Make(spec); !tree.ok()) return tree.status();
  if (spec.gpus_per_nvlink_domain > 1) {
    ORRERY_RETURN_IF_ERROR(
        Positive("nvlink_bandwidth", spec.nvlink_reached_Bps(),
                 "or set gpus_per_nvlink_domain to 1 for a machine without NVLink"));
    ORRERY_RETURN_IF_ERROR(
        Positive("nvlink_packet_bytes", spec.nvlink_packet_bytes, "give the payload of a packet"));
    if (spec.nvlink_header_bytes < 0) {
      return InvalidInput("nvlink_header_bytes = {}: must not be negative",
                          spec.nvlink_header_bytes);
    }
  }
  for (const auto& [field, latency] :
       {std::pair{"nvlink_latency", spec.nvlink_latency},
        std::pair{"pcie_latency", spec.pcie_latency}, std::pair{"nic_latency", spec.nic_latency}}) {
    if (latency < 0 || latency > kSecond) {
      return InvalidInput("{} = {} ps: must be 0 to 1 s", field, latency);
    }
  }
  if (spec.device.sms <= 0 || spec.device.memory_bytes <= 0 ||
      spec.device.memory_bandwidth_Bps <= 0) {
    return InvalidInput("device '{}': sms, memory_bytes and memory_bandwidth must be above 0",
                        spec.device.name);
  }
  if (!(spec.cpu_relative_speed > 0)) {
    return InvalidInput("cpu_relative_speed = {}: must be above 0", spec.cpu_relative_speed);
  }
  return {};
}

}  // namespace orrery::cluster
