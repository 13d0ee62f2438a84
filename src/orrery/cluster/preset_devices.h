// Devices of the presets. Internal to cluster.
#pragma once

#include "orrery/cluster/cluster.h"

namespace orrery::cluster {

DeviceSpec V100(int gigabytes);
DeviceSpec A100(int gigabytes);
DeviceSpec A100Pcie();
DeviceSpec V100Pcie();
DeviceSpec A800();
DeviceSpec H100();
DeviceSpec H800();
DeviceSpec Gh200();
DeviceSpec H100Pcie();
DeviceSpec H200();
DeviceSpec B200();
DeviceSpec Gb200();
DeviceSpec B300();
DeviceSpec Gb300();
DeviceSpec Rtx3090();
DeviceSpec H20();
DeviceSpec Mi300x();
DeviceSpec TpuV3();

}  // namespace orrery::cluster
