// The presets: data-sheet machines, each constant beside its source.
//
// Sources, cited below in brackets:
//   [A100]  NVIDIA A100 Tensor Core GPU data sheet and architecture white paper (2020, 2021)
//   [V100]  NVIDIA V100 Tensor Core GPU architecture white paper (2017); DGX-2 user guide
//   [H100]  NVIDIA H100 Tensor Core GPU data sheet and Hopper architecture white paper (2022)
//   [H200]  NVIDIA H200 Tensor Core GPU data sheet (2023)
//   [HGX]   NVIDIA HGX and Blackwell architecture briefs (2024, 2025): HGX B200 and B300, GB200 and
//           GB300 NVL72
//   [NCCL]  NCCL's bandwidth table: per NVLink and direction 20.0 (V100, A100), 20.6 (H100), 40.1
//   GB/s (B200);
//           PCIe x16 12 (Gen3), 24 (Gen4), 48 (Gen5), 96 GB/s (Gen6); latency table: an LL step
//           over NVLink 0.6 us
//   [IBTA]  RC packet of InfiniBand: LRH 8, BTH 12, ICRC 4, VCRC 2, RETH's 16 spread over a message
//   [RoCE]  Ethernet 14 + 4 + preamble and gap 20, IPv4 20, UDP 8, BTH 12, ICRC 4 = 82 bytes
//   [A800] [GH200] [PCIe]  NVIDIA data sheets of A800 (2022), GH200 Grace Hopper (2023) and H100
//           PCIe (2022)
//   [SMI]   memory size that nvidia-smi prints
//   [est.]  an estimate, said to be one
#include <fmt/format.h>

#include <array>
#include <string>
#include <vector>

#include "orrery/base/suggest.h"
#include "orrery/cluster/cluster.h"

namespace orrery::cluster {
namespace {

constexpr std::int64_t kGiga = 1'000'000'000;
constexpr std::int64_t kMiB = 1 << 20;

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
  d.memory_bytes = 284208 * kMiB;  // [SMI]
  d.power_w = 1400;                // [HGX]
  d.source = "NVIDIA GB300 NVL72 data sheet";
  return d;
}

// NVLink: `links` of `link_GBps` each way. The header makes payload / (payload + header) NCCL's
// share of the raw rate: 128/160 of 25 GB/s is its 20.0, 128/155 its 20.6, 128/160 of 50 GB/s
// its 40.1.
void SetNvlink(Spec* spec, int links, int link_GBps, int header_bytes) {
  spec->nvlink_Bps = links * link_GBps * kGiga;  // [A100] [H100] [HGX]
  spec->nvlink_latency = 350 * kNanosecond;      // [est.] below [NCCL]'s LL step of 600 ns
  spec->nvlink_packet_bytes = 128;               // a store of one 128-byte line
  spec->nvlink_header_bytes = header_bytes;
  spec->sources.emplace_back(
      "NVLink: data sheet's rate; NCCL's effective rate per link by the header");
}

void SetInfiniBand(Spec* spec, int gigabits) {
  spec->fabric = Fabric::kInfiniBand;
  spec->nic_Bps = gigabits * kGiga / 8;
  // [est.] Published ping-pong latencies of HDR and NDR over one switch are about 1 us with 0.13 us
  // in the switch: two hops of 300 ns here, the GPU's PCIe apart.
  spec->nic_latency = 300 * kNanosecond;
  spec->nic_mtu_bytes = 4096;
  spec->nic_header_bytes = 30;  // [IBTA]
  spec->sources.emplace_back("InfiniBand: line rate; RC headers of the IBTA specification");
}

void SetRoce(Spec* spec, int gigabits) {
  spec->fabric = Fabric::kRoce;
  spec->nic_Bps = gigabits * kGiga / 8;
  // [est.] Ethernet switches of this class forward in 0.5 to 0.8 us: two hops of 600 ns.
  spec->nic_latency = 600 * kNanosecond;
  spec->nic_mtu_bytes = 4096;
  spec->nic_header_bytes = 82;  // [RoCE]
  spec->sources.emplace_back("RoCE v2: line rate; Ethernet, IP, UDP and BTH headers");
}

void SetPcie(Spec* spec, int effective_GBps) {
  spec->pcie_Bps = effective_GBps * kGiga;  // [NCCL]
  spec->pcie_latency = 500 * kNanosecond;   // [est.]
  spec->sources.emplace_back("PCIe x16: NCCL's effective rate of its generation");
}

// A host's speed at Python and launches, relative to that of the H100 systems (Xeon 8480C, 3.8
// GHz): ratio of published single-thread ratings of the processors that these systems ship with.
// [est.] within 15 %: ratings of one processor scatter by as much.
// One thread of Grace against one of Xeon 8480C: 0.9 by clock and width, 0.38 in a loop over a
// linear layer's forward call (13.5 us on DGX H100, 33.2 us on GH200, 37.1 us on GB200:
// TransformerEngine issue 2053). Between the two.
constexpr double kGrace = 0.6;
double HostSpeed(const DeviceSpec& device) {
  switch (device.arch) {
    case Arch::kVolta:
      return 0.70;  // Xeon 8168, E5-2698 v4
    case Arch::kAmpere:
      return 0.72;  // EPYC 7742
    case Arch::kHopper:
      return device.name.starts_with("GH") ? kGrace : 1.0;  // Xeon 8480C
    case Arch::kBlackwell:
      return device.name.starts_with("GB") ? kGrace : 1.05;  // Xeon 8570
  }
  return 1;
}

Spec Base(const DeviceSpec& device) {
  Spec spec;
  spec.cpu_relative_speed = HostSpeed(device);
  spec.device = device;
  spec.sources.push_back(device.source);
  switch (device.arch) {
    case Arch::kVolta:
      SetNvlink(&spec, 6, 25, 32);
      SetPcie(&spec, 12);
      break;
    case Arch::kAmpere:
      SetNvlink(&spec, 12, 25, 32);
      SetPcie(&spec, 24);
      spec.cpu_is_amd = true;  // DGX A100: EPYC 7742
      break;
    case Arch::kHopper:
      SetNvlink(&spec, 18, 25, 27);
      SetPcie(&spec, 48);
      break;
    case Arch::kBlackwell:
      SetNvlink(&spec, 18, 50, 32);
      SetPcie(&spec, 48);
      break;
  }
  return spec;
}

Spec Nvl72(const DeviceSpec& device) {
  Spec spec = Base(device);
  spec.nodes = 18;
  spec.gpus_per_node = 4;  // [HGX] compute trays of two Grace, four GPUs
  spec.nics_per_node = 4;
  spec.gpus_per_nvlink_domain = 72;
  spec.nodes_per_leaf = 72;  // a scalable unit of four racks per rail leaf
  return spec;
}

Spec Dgx2() {
  Spec spec = Base(V100(32));
  spec.gpus_per_node = spec.gpus_per_nvlink_domain = 16;  // [V100] NVSwitch over 16
  spec.nics_per_node = 8;
  return spec;
}

Spec Hgx800() {
  Spec spec = Base(H800());
  SetNvlink(&spec, 8, 25, 27);
  return spec;
}

Spec Hgx800Ampere() {
  Spec spec = Base(A800());
  SetNvlink(&spec, 8, 25, 32);
  return spec;
}

// GPUs that reach each other over PCIe: the links called NVLink have PCIe's effective rate, no
// header beside it and a PCIe hop's latency each way.
Spec OverPcie(const DeviceSpec& device, int effective_GBps) {
  Spec spec = Base(device);
  SetPcie(&spec, effective_GBps);
  spec.nvlink_Bps = effective_GBps * kGiga;  // [NCCL]
  spec.nvlink_latency = 1000 * kNanosecond;  // [est.] two hops of PCIe's 500 ns
  spec.nvlink_header_bytes = 0;
  spec.nics_per_node = 2;
  spec.sources.emplace_back("no NVLink: peers over PCIe switches");
  return spec;
}

Spec Nvl32() {
  Spec spec = Base(Gh200());
  spec.nodes = 32;  // [GH200] NVL32: 32 hosts of one Grace, one Hopper
  spec.gpus_per_node = spec.nics_per_node = 1;
  spec.gpus_per_nvlink_domain = 32;
  return spec;
}

// ConnectX-8 brings PCIe Gen6.
Spec WithGen6(Spec spec) {
  SetPcie(&spec, 96);
  return spec;
}

struct Machine {
  std::string_view name;  // of its presets, before "-ib-" or "-roce-"
  std::string_view summary;
  Spec (*make)();
  int gigabits;  // of a NIC
};
constexpr std::array kMachines = {
    Machine{"v100-32g", "16 x V100 32GB, NVSwitch, 8 NICs", Dgx2, 100},
    Machine{"a100-40g", "8 x A100 40GB, NVSwitch, 8 NICs", [] { return Base(A100(40)); }, 200},
    Machine{"a100-80g", "8 x A100 80GB, NVSwitch, 8 NICs", [] { return Base(A100(80)); }, 200},
    Machine{"a800-80g", "8 x A800 80GB, NVSwitch (8 links a GPU), 8 NICs", Hgx800Ampere, 200},
    Machine{"h100", "8 x H100 80GB, NVSwitch, 8 NICs", [] { return Base(H100()); }, 400},
    Machine{"h800", "8 x H800 80GB, NVSwitch (8 links a GPU), 8 NICs", Hgx800, 400},
    Machine{"h100-pcie", "8 x H100 80GB over PCIe Gen5, 2 NICs",
            [] { return OverPcie(H100Pcie(), 48); }, 400},
    Machine{"gh200-nvl32", "GH200 NVL32: hosts of one 96GB GPU, NVLink over 32, a NIC a GPU", Nvl32,
            400},
    Machine{"h200", "8 x H200 141GB, NVSwitch, 8 NICs", [] { return Base(H200()); }, 400},
    Machine{"b200", "8 x B200 180GB, NVSwitch, 8 NICs", [] { return Base(B200()); }, 400},
    Machine{"b300", "8 x B300 270GB, NVSwitch, 8 NICs", [] { return WithGen6(Base(B300())); }, 800},
    Machine{"gb200-nvl72", "GB200 NVL72: hosts of 4, NVLink over 72, a NIC a GPU",
            [] { return Nvl72(Gb200()); }, 400},
    Machine{"gb300-nvl72", "GB300 NVL72: hosts of 4, NVLink over 72, a NIC a GPU",
            [] { return WithGen6(Nvl72(Gb300())); }, 800},
};
constexpr std::array kFabrics = {Fabric::kInfiniBand, Fabric::kRoce};

struct Entry {
  std::string name, description;
  const Machine* machine;
  Fabric fabric;
};

const std::vector<Entry>& Entries() {
  static const std::vector<Entry> entries = [] {
    std::vector<Entry> all;
    for (const Machine& m : kMachines) {
      for (const Fabric fabric : kFabrics) {
        const bool ib = fabric == Fabric::kInfiniBand;
        all.push_back(
            {fmt::format("{}-{}-{}g", m.name, ib ? "ib" : "roce", m.gigabits),
             fmt::format("{}, {} Gb/s {}", m.summary, m.gigabits, ib ? "InfiniBand" : "RoCE"), &m,
             fabric});
      }
    }
    return all;
  }();
  return entries;
}

Spec Make(const Entry& entry) {
  Spec spec = entry.machine->make();
  if (entry.fabric == Fabric::kInfiniBand) SetInfiniBand(&spec, entry.machine->gigabits);
  if (entry.fabric == Fabric::kRoce) SetRoce(&spec, entry.machine->gigabits);
  spec.name = entry.name;
  return spec;
}

}  // namespace

std::span<const Preset> Presets() {
  static const std::vector<Preset> presets = [] {
    std::vector<Preset> all;
    for (const Entry& entry : Entries()) all.push_back({entry.name, entry.description});
    return all;
  }();
  return presets;
}

Result<Spec> FindPreset(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Entry& entry : Entries()) {
    if (entry.name == name) return Make(entry);
    names.push_back(entry.name);
  }
  return InvalidInput("{}", UnknownName("cluster", name, names));
}

}  // namespace orrery::cluster
