#include "orrery/cluster/catalog.h"

#include <utility>

#include "orrery/base/check.h"
#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/cluster/gpu_name.h"

namespace orrery::cluster {
namespace {

constexpr std::string_view kDevices[] = {
#include "orrery_data_devices.inc"
};
constexpr std::string_view kClusters[] = {
#include "orrery_data_clusters.inc"
};

std::vector<std::string_view> Names(const std::vector<Preset>& list) {
  std::vector<std::string_view> names;
  for (const Preset& preset : list) names.emplace_back(preset.name);
  return names;
}

}  // namespace

const Catalog& Catalog::BuiltIn() {
  static const Catalog catalog = [] {
    Catalog built_in;
    Status status = built_in.AddDevices(formats::Lines(kDevices), "data/devices.yaml");
    if (status.ok()) status = built_in.AddClusters(formats::Lines(kClusters), "data/clusters.yaml");
    ORRERY_CHECK(status.ok(), status.message().c_str());
    return built_in;
  }();
  return catalog;
}

Status Catalog::AddDevices(std::string_view text, const std::string& file) {
  std::size_t next = device_rows_.rows().size();
  ORRERY_RETURN_IF_ERROR(device_rows_.Add(text, file));
  for (; next < device_rows_.rows().size(); ++next) {
    const formats::DataRow& row = device_rows_.rows()[next];
    if (row.part()) continue;
    ORRERY_ASSIGN_OR_RETURN(DeviceSpec device, ReadDeviceRow(device_rows_, row));
    device_list_.push_back({row.name, row.description});
    devices_.push_back(std::move(device));
  }
  return {};
}

Status Catalog::AddClusters(std::string_view text, const std::string& file) {
  std::size_t next = cluster_rows_.rows().size();
  ORRERY_RETURN_IF_ERROR(cluster_rows_.Add(text, file));
  for (; next < cluster_rows_.rows().size(); ++next) {
    const formats::DataRow& row = cluster_rows_.rows()[next];
    if (row.part()) continue;
    ORRERY_ASSIGN_OR_RETURN(Spec spec, ReadClusterRow(cluster_rows_, row, *this));
    cluster_list_.push_back({row.name, row.description});
    clusters_.push_back(std::move(spec));
  }
  return {};
}

Result<Spec> Catalog::Find(std::string_view cluster) const {
  for (const Spec& spec : clusters_) {
    if (spec.name == cluster) return spec;
  }
  return InvalidInput("{}", UnknownName("cluster", cluster, Names(cluster_list_)));
}

Result<DeviceSpec> Catalog::FindDevice(std::string_view name) const {
  for (const DeviceSpec& device : devices_) {
    if (device.name == name) return device;
  }
  return InvalidInput(
      "{}; the keys of cluster.device define one ('orrery schema job --keys "
      "cluster.device')",
      UnknownName("device", name, Names(device_list_)));
}

std::optional<DeviceSpec> Catalog::FindDriverName(std::string_view name) const {
  const DeviceSpec* const device = FindGpu(name, std::nullopt, *this);
  return device == nullptr ? std::nullopt : std::optional(*device);
}

std::span<const Preset> Presets() { return Catalog::BuiltIn().clusters(); }

Result<Spec> FindPreset(std::string_view name) { return Catalog::BuiltIn().Find(name); }

}  // namespace orrery::cluster
