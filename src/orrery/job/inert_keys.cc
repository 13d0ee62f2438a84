#include "orrery/job/inert_keys.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace orrery::job {
namespace {

// NCCL's effective rates of 16 lanes (data/clusters.yaml).
std::string PcieName(std::int64_t rate_Bps) {
  constexpr std::array<std::pair<std::int64_t, int>, 4> kGenerations = {
      {{12'000'000'000, 3}, {24'000'000'000, 4}, {48'000'000'000, 5}, {96'000'000'000, 6}}};
  for (const auto& [rate, generation] : kGenerations) {
    if (rate == rate_Bps) return fmt::format("PCIe {} x16", generation);
  }
  return "PCIe";
}

double Gigabytes(std::int64_t rate_Bps) { return static_cast<double>(rate_Bps) * 1e-9; }

}  // namespace

std::vector<std::string> InertClusterKeys(const formats::Node* cluster, bool costs,
                                          const cluster::Spec& spec) {
  std::vector<std::string> inert;
  if (cluster == nullptr || cluster->kind != formats::Node::Kind::kMap) return inert;
  const std::int64_t behind = spec.pcie_Bps * (spec.gpus_per_node / spec.nics_per_node);
  if (cluster->Find("nic_bandwidth") != nullptr && spec.nic_Bps > behind) {
    inert.push_back(fmt::format(
        "cluster.nic_bandwidth: limited by {}: {:.1f} GB/s a NIC, and the GPUs behind it pass "
        "{:.1f} (cluster.pcie_bandwidth)",
        PcieName(spec.pcie_Bps), Gigabytes(spec.nic_Bps), Gigabytes(behind)));
  }
  for (const std::string_view key : {"nvlink_bandwidth", "nvlink_latency", "nvlink_packet_bytes",
                                     "nvlink_header_bytes", "nvlink_efficiency"}) {
    if (!spec.peers_over_pcie() || cluster->Find(key) == nullptr) continue;
    inert.push_back(
        fmt::format("cluster.{}: without effect: GPUs reach each other over the PCIe tree "
                    "(cluster.pcie_tree.peers: nvlink changes that)",
                    key));
  }
  const formats::Node* device = cluster->Find("device");
  if (!costs && device != nullptr && device->kind == formats::Node::Kind::kMap &&
      device->Find("price_per_hour") != nullptr) {
    inert.push_back(
        "cluster.device.price_per_hour: without effect: the job has no section cost ('orrery plan "
        "--objective cost' and 'orrery sweep' count it)");
  }
  return inert;
}

}  // namespace orrery::job
