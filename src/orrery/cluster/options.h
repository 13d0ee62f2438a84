// The keys of a cluster definition (inline in a job file, or a file of its own).
#pragma once

#include "orrery/base/schema.h"

namespace orrery::cluster {

// Section `cluster`: each key changes one field of the preset that `preset` names.
const OptionTable& ClusterOptions();
// Section `cluster.topology`: the fabric, by name, file and parameters.
const OptionTable& TopologyOptions();
// Section `cluster.pcie_tree`: the host.
const OptionTable& PcieTreeOptions();
// Section `cluster.device`: the GPU.
const OptionTable& DeviceOptions();

}  // namespace orrery::cluster
