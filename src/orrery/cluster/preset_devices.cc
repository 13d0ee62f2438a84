// The presets' devices: data sheets, each constant beside its source.
//
// Sources, cited below in brackets:
//   [A100]  NVIDIA A100 Tensor Core GPU data sheet and architecture white paper (2020, 2021)
//   [V100]  NVIDIA V100 Tensor Core GPU architecture white paper (2017); DGX-2 user guide
//   [H100]  NVIDIA H100 Tensor Core GPU data sheet and Hopper architecture white paper (2022)
//   [H200]  NVIDIA H200 Tensor Core GPU data sheet (2023)
//   [HGX]   NVIDIA HGX and Blackwell architecture briefs (2024, 2025): HGX B200 and B300, GB200 and
//           GB300 NVL72
//   [Ultra] NVIDIA technical blog (2026), "Making Softmax More Efficient with NVIDIA Blackwell
//           Ultra": B300's special-function units have twice B200's rate of exponentials
//   [A800] [GH200] [PCIe]  NVIDIA data sheets of A800 (2022), GH200 Grace Hopper (2023) and H100
//           PCIe (2022)
//   [3090]  NVIDIA Ampere GA102 white paper (2020): tensor rates with fp32 accumulation, half of
//           those with fp16
//   [H20]   NVIDIA H20 product brief (2023), as resellers print it
//   [MI300X]  AMD Instinct MI300X data sheet (2023)
//   [TPU]   Google Cloud, "TPU v3"; Jouppi et al. 2020, "A Domain Specific Supercomputer for
//           Training Deep Neural Networks", CACM 63(7): links of 656 Gb/s
//   [SMI]   memory size that nvidia-smi prints
//   [est.]  an estimate, said to be one
#include "orrery/cluster/preset_devices.h"

namespace orrery::cluster {
namespace {

constexpr std::int64_t kGiga = 1'000'000'000;
constexpr std::int64_t kMiB = 1 << 20;

}  // namespace

DeviceSpec V100(int gigabytes) {
  DeviceSpec d;
  d.name = gigabytes == 16 ? "V100-SXM2-16GB" : "V100-SXM2-32GB";
  d.table = gigabytes == 16 ? "v100-16" : "v100";
  d.arch = Arch::kVolta;
  d.sms = 80;              // [V100]
  d.fp32_flops = 15.7e12;  // [V100]
  d.fp16_flops = 125e12;
  d.memory_bytes = (gigabytes == 16 ? 16160 : 32510) * kMiB;  // [SMI]
  d.memory_bandwidth_Bps = 900 * kGiga;
  d.l2_bytes = 6 * kMiB;
  d.power_w = 300;  // [V100]
  d.source = "NVIDIA V100 architecture white paper";
  return d;
}

DeviceSpec A100(int gigabytes) {
  DeviceSpec d;
  d.name = gigabytes == 40 ? "A100-SXM4-40GB" : "A100-SXM4-80GB";
  d.table = gigabytes == 40 ? "a100-40" : "a100";
  d.arch = Arch::kAmpere;
  d.sms = 108;             // [A100]
  d.fp32_flops = 19.5e12;  // [A100]
  d.tf32_flops = 156e12;
  d.fp16_flops = 312e12;
  d.memory_bytes = (gigabytes == 40 ? 40960 : 81920) * kMiB;  // [SMI]
  d.memory_bandwidth_Bps = (gigabytes == 40 ? 1555 : 2039) * kGiga;
  d.l2_bytes = 40 * kMiB;
  d.power_w = 400;  // [A100]
  d.source = "NVIDIA A100 data sheet";
  return d;
}

DeviceSpec A100Pcie() {
  DeviceSpec d = A100(80);
  d.name = "A100-PCIe-80GB";
  d.memory_bandwidth_Bps = 1935 * kGiga;  // [A100]
  d.power_w = 300;
  d.source = "NVIDIA A100 data sheet, PCIe";
  return d;
}

DeviceSpec V100Pcie() {
  DeviceSpec d = V100(16);
  d.name = "V100-PCIe-16GB";
  d.fp32_flops = 14e12;  // [V100]
  d.fp16_flops = 112e12;
  d.power_w = 250;
  d.source = "NVIDIA V100 data sheet, PCIe";
  return d;
}

DeviceSpec A800() {
  DeviceSpec d = A100(80);
  d.name = "A800-SXM4-80GB";
  d.source = "NVIDIA A800 data sheet; an A100 with 8 NVLink links";  // [A800]
  return d;
}

DeviceSpec H100() {
  DeviceSpec d;
  d.name = "H100-SXM5-80GB";
  d.table = "h100";
  d.arch = Arch::kHopper;
  d.sms = 132;             // [H100]
  d.fp32_flops = 66.9e12;  // [H100], dense
  d.tf32_flops = 494.7e12;
  d.fp16_flops = 989.4e12;
  d.fp8_flops = 1978.9e12;
  d.memory_bytes = 81559 * kMiB;  // [SMI]
  d.memory_bandwidth_Bps = 3352 * kGiga;
  d.l2_bytes = 50 * kMiB;
  d.power_w = 700;  // [H100]
  d.source = "NVIDIA H100 data sheet";
  return d;
}

DeviceSpec H800() {
  DeviceSpec d = H100();
  d.name = "H800-SXM5-80GB";
  d.table = "h800";
  d.source = "NVIDIA H100 data sheet; H800 differs in NVLink (8 links) and FP64";
  return d;
}

DeviceSpec Gh200() {
  DeviceSpec d = H100();
  d.name = "GH200-96GB";
  d.table = "gh200";
  d.memory_bytes = 97871 * kMiB;          // [SMI]
  d.memory_bandwidth_Bps = 4000 * kGiga;  // [GH200], HBM3
  d.source = "NVIDIA GH200 Grace Hopper data sheet";
  return d;
}

DeviceSpec H100Pcie() {
  DeviceSpec d = H100();
  d.name = "H100-PCIe-80GB";
  d.table = "h100-pcie";
  d.sms = 114;  // [PCIe], dense
  d.fp32_flops = 51.2e12;
  d.tf32_flops = 378e12;
  d.fp16_flops = 756.5e12;
  d.fp8_flops = 1513e12;
  d.memory_bandwidth_Bps = 2000 * kGiga;
  d.power_w = 350;  // [PCIe]
  d.source = "NVIDIA H100 PCIe data sheet";
  return d;
}

DeviceSpec H200() {
  DeviceSpec d = H100();
  d.name = "H200-SXM5-141GB";
  d.table = "h200";
  d.memory_bytes = 143771 * kMiB;         // [SMI]
  d.memory_bandwidth_Bps = 4800 * kGiga;  // [H200]
  d.source = "NVIDIA H200 data sheet";
  return d;
}

DeviceSpec B200() {
  DeviceSpec d;
  d.name = "B200-SXM-180GB";
  d.table = "b200";
  d.arch = Arch::kBlackwell;
  d.sms = 148;  // [HGX], dense rates per GPU of HGX B200
  d.fp32_flops = 75e12;
  d.tf32_flops = 1125e12;
  d.fp16_flops = 2250e12;
  d.fp8_flops = 4500e12;
  d.memory_bytes = 183359 * kMiB;  // [SMI]
  d.memory_bandwidth_Bps = 7700 * kGiga;
  d.l2_bytes = 126 * kMiB;
  d.power_w = 1000;  // [HGX]
  d.source = "NVIDIA HGX B200 data sheet";
  return d;
}

DeviceSpec Gb200() {
  DeviceSpec d = B200();
  d.name = "GB200-186GB";
  d.table = "gb200";
  d.sms = 152;  // [HGX], per GPU of GB200 NVL72
  d.fp32_flops = 80e12;
  d.tf32_flops = 1250e12;
  d.fp16_flops = 2500e12;
  d.fp8_flops = 5000e12;
  d.memory_bytes = 189471 * kMiB;  // [SMI]
  d.memory_bandwidth_Bps = 8000 * kGiga;
  d.power_w = 1200;  // [HGX]
  d.source = "NVIDIA GB200 NVL72 data sheet";
  return d;
}

DeviceSpec B300() {
  DeviceSpec d = B200();
  d.name = "B300-SXM-270GB";
  d.table = "b300";
  d.fp4_flops = 13500e12;          // [HGX], 108 PFLOP/s over eight GPUs, dense
  d.exp_per_clock = 32;            // [Ultra]
  d.memory_bytes = 275040 * kMiB;  // [SMI]
  d.memory_bandwidth_Bps = 8000 * kGiga;
  d.power_w = 1100;  // [HGX]
  d.source = "NVIDIA HGX B300 data sheet";
  return d;
}

DeviceSpec Gb300() {
  DeviceSpec d = Gb200();
  d.name = "GB300-279GB";
  d.table = "gb300";
  d.fp4_flops = 15000e12;          // [HGX], 1,080 PFLOP/s over 72 GPUs, dense
  d.exp_per_clock = 32;            // [Ultra]
  d.memory_bytes = 284208 * kMiB;  // [SMI]
  d.power_w = 1400;                // [HGX]
  d.source = "NVIDIA GB300 NVL72 data sheet";
  return d;
}

DeviceSpec Rtx3090() {
  DeviceSpec d;
  d.name = "RTX-3090-24GB";
  d.table = "rtx3090";
  d.arch = Arch::kAmpere;
  d.sms = 82;  // [3090]
  d.fp32_flops = 35.6e12;
  d.tf32_flops = 35.6e12;
  d.fp16_flops = 71e12;
  d.memory_bytes = 24576 * kMiB;  // [SMI]
  d.memory_bandwidth_Bps = 936 * kGiga;
  d.l2_bytes = 6 * kMiB;
  d.source = "NVIDIA Ampere GA102 white paper";
  return d;
}

DeviceSpec H20() {
  DeviceSpec d = H100();
  d.name = "H20-SXM5-96GB";
  d.table = "h20";
  d.sms = 78;  // [H20], dense
  d.fp32_flops = 44e12;
  d.tf32_flops = 74e12;
  d.fp16_flops = 148e12;
  d.fp8_flops = 296e12;
  d.memory_bytes = 97871 * kMiB;  // [SMI]
  d.memory_bandwidth_Bps = 4000 * kGiga;
  d.l2_bytes = 60 * kMiB;
  d.power_w = 0;  // its rates are capped far below what its 400 W allow
  d.source = "NVIDIA H20 product brief";
  return d;
}

// Nothing of it was measured here: shares of peak and library behaviour are Ampere's, RCCL's
// choices NCCL's.
DeviceSpec Mi300x() {
  DeviceSpec d;
  d.name = "MI300X-192GB";
  d.table = "mi300x";
  d.arch = Arch::kAmpere;
  d.sms = 304;  // [MI300X] compute units; dense rates
  d.fp32_flops = 163.4e12;
  d.tf32_flops = 653.7e12;
  d.fp16_flops = 1307.4e12;
  d.fp8_flops = 2614.9e12;
  d.memory_bytes = 196592 * kMiB;  // rocm-smi
  d.memory_bandwidth_Bps = 5300 * kGiga;
  d.l2_bytes = 32 * kMiB;  // 4 MiB a chiplet; the memory-side cache of 256 MiB apart
  d.source = "AMD Instinct MI300X data sheet; efficiencies and collectives as on Ampere with NCCL";
  return d;
}

// A chip: two cores of two matrix units each. For networks; kernels are priced as on Volta.
DeviceSpec TpuV3() {
  DeviceSpec d;
  d.name = "TPU-v3-32GB";
  d.table = "tpu-v3";
  d.arch = Arch::kVolta;
  d.sms = 4;              // [TPU] matrix units
  d.fp32_flops = 3.9e12;  // [est.] vector units: 2 cores, 1,024 lanes, 2 operations, 0.94 GHz
  d.fp16_flops = 123e12;  // [TPU], bf16
  d.memory_bytes = 32768 * kMiB;
  d.memory_bandwidth_Bps = 900 * kGiga;
  d.l2_bytes = 32 * kMiB;  // [est.] vector memory, 16 MiB a core
  d.source = "Google Cloud, TPU v3; efficiencies as on Volta";
  return d;
}

}  // namespace orrery::cluster
