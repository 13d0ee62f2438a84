// Kernels bound by memory traffic: time = floor + bytes / (fraction of HBM bandwidth).
//
// The fraction depends on what the kernel does: plain streams (element-wise, optimizer, copies,
// norms of gradients), row reductions (norms, softmax, cross entropy) and scattered access
// (embedding, transpose, the weight gradients of norms). Small operands come from L2 (StreamTime).
// The floor makes the ramp: a kernel of b bytes reaches b/(b + floor·bandwidth) of its bandwidth.
// Where bytes do not bind, what each value costs an SM does: a decay of a state-space scan, a 4-bit
// weight looked up and scaled, a moment searched for in the table of 8-bit codes.
// Assumes fused kernels that move what the descriptor says, once. Cost about 10 ns.
#pragma once

#include "orrery/compute/device_rates.h"
#include "orrery/graph/kernel.h"

namespace orrery::compute {

ModelTime MemoryBoundTime(const graph::MemoryBound& kernel, const DeviceRates& device);

}  // namespace orrery::compute
