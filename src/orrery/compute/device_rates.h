// What the kernel models read of a device, derived once from its DeviceSpec.
//
// clock = fp16_flops / (2 · sms · multiply-adds per clock): the boost clock behind the printed
// peak. Units: seconds, bytes/s, FLOP/s. A type that the device has no rate for runs at that of the
// next wider one it has (fp4 as fp8, fp8 as fp16, tf32 as fp32), as a framework without the fast
// path would.
#pragma once

#include <array>

#include "orrery/base/status.h"
#include "orrery/cluster/cluster.h"
#include "orrery/graph/kernel.h"

namespace orrery::compute {

inline constexpr std::size_t kDTypes = static_cast<std::size_t>(graph::kLastDType) + 1;

struct DeviceRates {
  constants::Set constants;
  cluster::Arch arch = cluster::Arch::kHopper;
  double sms = 0;
  double clock_Hz = 0;
  double hbm_Bps = 0;  // printed
  double l2_Bps = 0;   // all SMs together, achieved
  double l2_usable_bytes = 0;
  double exp_per_clock = 0;                  // per SM, exponentials of the special-function units
  double tensor_cores = 1;                   // their rate by vboost and CUDA's version
  std::array<double, kDTypes> peak_flops{};  // by DType
  std::array<double, kDTypes> gemm_flops{};  // sustained by a large GEMM
  std::array<double, kDTypes> macs_per_clock{};  // per SM
  double peak(graph::DType type) const { return peak_flops[static_cast<std::size_t>(type)]; }

  // Names the field of `device` that is missing or out of range.
  static Result<DeviceRates> Make(const cluster::DeviceSpec& device);
};

// A modelled time and what it is made of: total = fixed + max(compute, memory).
struct ModelTime {
  double fixed_s = 0, compute_s = 0, memory_s = 0;
  double total_s() const { return fixed_s + (compute_s > memory_s ? compute_s : memory_s); }
  bool compute_bound() const { return compute_s >= memory_s; }
};

// Time to move `bytes` at `rate` of the HBM bandwidth. What fits in the usable half of the L2 was
// left there by the kernel before; the part that does falls linearly to none at twice that size.
inline double StreamTime(const DeviceRates& device, double bytes, double rate) {
  double resident = 2 - bytes / device.l2_usable_bytes;
  resident = resident > 1 ? 1 : resident < 0 ? 0 : resident;
  return bytes * (resident / device.l2_Bps + (1 - resident) / (device.hbm_Bps * rate));
}

}  // namespace orrery::compute
