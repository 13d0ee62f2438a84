// Machines that are known by name: devices and clusters, from data/devices.yaml and
// data/clusters.yaml and the files that a user adds.
//
// A row has the keys of a job file's cluster.device or cluster (docs/formats/data.md). Every row is
// read and checked when its file is added, so that a mistake is told before anything runs.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/cluster/cluster.h"
#include "orrery/formats/rows.h"
#include "orrery/formats/section.h"

namespace orrery::cluster {

class Catalog {
 public:
  // What is embedded in the binary.
  static const Catalog& BuiltIn();

  // The rows of devices.yaml and clusters.yaml; `file` stands for the text in errors.
  Status AddDevices(std::string_view text, const std::string& file);
  Status AddClusters(std::string_view text, const std::string& file);

  // Names with one sentence each, in the order of the files.
  const std::vector<Preset>& clusters() const { return cluster_list_; }
  const std::vector<Preset>& devices() const { return device_list_; }
  const std::vector<DeviceSpec>& device_specs() const { return devices_; }
  // An unknown name lists the nearest valid ones.
  Result<Spec> Find(std::string_view cluster) const;
  Result<DeviceSpec> FindDevice(std::string_view name) const;
  // The device that NVIDIA's driver, a profile or a log calls `name` ("NVIDIA H100 80GB HBM3"), if
  // there is one (gpu_name.h, which also takes a memory that is said apart).
  std::optional<DeviceSpec> FindDriverName(std::string_view name) const;

 private:
  formats::DataTable device_rows_{"device"}, cluster_rows_{"cluster"};
  std::vector<DeviceSpec> devices_;
  std::vector<Spec> clusters_;
  std::vector<Preset> device_list_, cluster_list_;
};

// A row of either file.
Result<DeviceSpec> ReadDeviceRow(const formats::DataTable& table, const formats::DataRow& row);
Result<Spec> ReadClusterRow(const formats::DataTable& table, const formats::DataRow& row,
                            const Catalog& catalog);

// A job file's `cluster`, without its number of nodes: a name, a file, or keys; `node` is null when
// the key is missing.
Result<Spec> Read(const formats::Source& source, const formats::Node* node, const Catalog& catalog,
                  std::vector<std::string>* assumed);

}  // namespace orrery::cluster
