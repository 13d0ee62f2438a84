// The last provider of the chain: any kernel from its shape, and the host's share of launching it.
#pragma once

#include "orrery/compute/device_rates.h"
#include "orrery/graph/kernel.h"

namespace orrery::compute {

// A Timed kernel is its own duration, as compute_s.
ModelTime Model(const graph::Kernel& kernel, const DeviceRates& device);
// Relative standard deviation: that of the kind of kernel, wider for the fixed part of small
// kernels.
double ModelSpread(const graph::Kernel& kernel, const ModelTime& time);
// Seconds of the host for one launch through eager PyTorch, on the host whose cpu_relative_speed is
// 1 (data/clusters.yaml).
double HostIssue(const graph::Kernel& kernel);

}  // namespace orrery::compute
