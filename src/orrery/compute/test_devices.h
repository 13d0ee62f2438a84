// Devices for tests, from data sheets; the presets of `cluster` are not needed here.
#pragma once

#include "orrery/cluster/cluster.h"

namespace orrery::compute {

inline cluster::DeviceSpec TestDevice(const char* table, cluster::Arch arch, int sms,
                                      double fp16_flops, double tf32_flops, double fp8_flops,
                                      double fp32_flops, std::int64_t memory_GBps,
                                      std::int64_t l2_mib) {
  cluster::DeviceSpec d;
  d.name = table;
  d.table = table;
  d.arch = arch;
  d.sms = sms;
  d.fp16_flops = fp16_flops;
  d.tf32_flops = tf32_flops;
  d.fp8_flops = fp8_flops;
  d.fp32_flops = fp32_flops;
  d.memory_bandwidth_Bps = memory_GBps * 1'000'000'000;
  d.l2_bytes = l2_mib << 20;
  return d;
}
inline cluster::DeviceSpec TestV100() {
  return TestDevice("v100", cluster::Arch::kVolta, 80, 125e12, 0, 0, 15.7e12, 900, 6);
}
inline cluster::DeviceSpec TestA100() {
  return TestDevice("a100", cluster::Arch::kAmpere, 108, 312e12, 156e12, 0, 19.5e12, 2039, 40);
}
inline cluster::DeviceSpec TestH100() {
  return TestDevice("h100", cluster::Arch::kHopper, 132, 989.4e12, 494.7e12, 1978.9e12, 66.9e12,
                    3352, 50);
}
// Of the H100's die, with more memory.
inline cluster::DeviceSpec TestH200() {
  return TestDevice("h200", cluster::Arch::kHopper, 132, 989.4e12, 494.7e12, 1978.9e12, 66.9e12,
                    4800, 50);
}
inline cluster::DeviceSpec TestB200() {
  return TestDevice("b200", cluster::Arch::kBlackwell, 148, 2250e12, 1125e12, 4500e12, 75e12, 7700,
                    126);
}

}  // namespace orrery::compute
