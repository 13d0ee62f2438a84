// The presets: data-sheet machines, each constant beside its source.
//
// Sources, cited below in brackets:
//   [A100]  NVIDIA A100 Tensor Core GPU data sheet and architecture white paper (2020, 2021)
//   [H100]  NVIDIA H100 Tensor Core GPU data sheet and Hopper architecture white paper (2022)
//   [H200]  NVIDIA H200 Tensor Core GPU data sheet (2023)
//   [HGX]   NVIDIA HGX and Blackwell architecture briefs (2024): HGX B200, GB200 NVL72
//   [NCCL]  NCCL's bandwidth table: per NVLink and direction 20.0 (A100), 20.6 (H100), 40.1 GB/s
//   (B200);
//           PCIe x16 24 (Gen4), 48 GB/s (Gen5); latency table: an LL step over NVLink 0.6 us
//   [IBTA]  RC packet of InfiniBand: LRH 8, BTH 12, ICRC 4, VCRC 2, RETH's 16 spread over a message
//   [RoCE]  Ethernet 14 + 4 + preamble and gap 20, IPv4 20, UDP 8, BTH 12, ICRC 4 = 82 bytes
//   [SMI]   memory size that nvidia-smi prints
//   [est.]  an estimate, said to be one
#include <array>

#include "orrery/base/suggest.h"
#include "orrery/cluster/cluster.h"

namespace orrery::cluster {
namespace {

constexpr std::int64_t kGiga = 1'000'000'000;
constexpr std::int64_t kMiB = 1 << 20;

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
  d.source = "NVIDIA A100 data sheet";
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
  d.source = "NVIDIA GB200 NVL72 data sheet";
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

Spec Base(const DeviceSpec& device) {
  Spec spec;
  spec.device = device;
  spec.sources.push_back(device.source);
  switch (device.arch) {
    case Arch::kVolta:
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

Spec Nvl72() {
  Spec spec = Base(Gb200());
  spec.nodes = 18;
  spec.gpus_per_node = 4;  // [HGX] compute trays of two Grace, four GPUs
  spec.nics_per_node = 4;
  spec.gpus_per_nvlink_domain = 72;
  spec.nodes_per_leaf = 72;  // a scalable unit of four racks per rail leaf
  return spec;
}

enum class Machine : std::uint8_t { kA100x40, kA100x80, kH100, kH800, kH200, kB200, kNvl72 };

struct Entry {
  Preset preset;
  Machine machine;
  Fabric fabric;
  int gigabits;
};

constexpr auto kIb = Fabric::kInfiniBand;
constexpr auto kRo = Fabric::kRoce;
constexpr std::array kEntries = {
    Entry{{"a100-40g-ib-200g", "8 x A100 40GB, NVSwitch, 8 x 200 Gb/s InfiniBand"},
          Machine::kA100x40,
          kIb,
          200},
    Entry{{"a100-40g-roce-200g", "8 x A100 40GB, NVSwitch, 8 x 200 Gb/s RoCE"},
          Machine::kA100x40,
          kRo,
          200},
    Entry{{"a100-80g-ib-200g", "8 x A100 80GB, NVSwitch, 8 x 200 Gb/s InfiniBand"},
          Machine::kA100x80,
          kIb,
          200},
    Entry{{"a100-80g-roce-200g", "8 x A100 80GB, NVSwitch, 8 x 200 Gb/s RoCE"},
          Machine::kA100x80,
          kRo,
          200},
    Entry{{"h100-ib-400g", "8 x H100 80GB, NVSwitch, 8 x 400 Gb/s InfiniBand"},
          Machine::kH100,
          kIb,
          400},
    Entry{
        {"h100-roce-400g", "8 x H100 80GB, NVSwitch, 8 x 400 Gb/s RoCE"}, Machine::kH100, kRo, 400},
    Entry{{"h800-ib-400g", "8 x H800 80GB, NVSwitch (8 links a GPU), 8 x 400 Gb/s InfiniBand"},
          Machine::kH800,
          kIb,
          400},
    Entry{{"h800-roce-400g", "8 x H800 80GB, NVSwitch (8 links a GPU), 8 x 400 Gb/s RoCE"},
          Machine::kH800,
          kRo,
          400},
    Entry{{"h200-ib-400g", "8 x H200 141GB, NVSwitch, 8 x 400 Gb/s InfiniBand"},
          Machine::kH200,
          kIb,
          400},
    Entry{{"h200-roce-400g", "8 x H200 141GB, NVSwitch, 8 x 400 Gb/s RoCE"},
          Machine::kH200,
          kRo,
          400},
    Entry{{"b200-ib-400g", "8 x B200 180GB, NVSwitch, 8 x 400 Gb/s InfiniBand"},
          Machine::kB200,
          kIb,
          400},
    Entry{{"b200-roce-400g", "8 x B200 180GB, NVSwitch, 8 x 400 Gb/s RoCE"},
          Machine::kB200,
          kRo,
          400},
    Entry{
        {"gb200-nvl72-ib-400g", "GB200 NVL72: hosts of 4, NVLink over 72, 4 x 400 Gb/s InfiniBand"},
        Machine::kNvl72,
        kIb,
        400},
    Entry{{"gb200-nvl72-roce-400g", "GB200 NVL72: hosts of 4, NVLink over 72, 4 x 400 Gb/s RoCE"},
          Machine::kNvl72,
          kRo,
          400},
};

constexpr auto kPresets = [] {
  std::array<Preset, kEntries.size()> presets{};
  for (std::size_t i = 0; i < kEntries.size(); ++i) presets[i] = kEntries[i].preset;
  return presets;
}();

Spec Make(const Entry& entry) {
  Spec spec;
  switch (entry.machine) {
    case Machine::kA100x40:
      spec = Base(A100(40));
      break;
    case Machine::kA100x80:
      spec = Base(A100(80));
      break;
    case Machine::kH100:
      spec = Base(H100());
      break;
    case Machine::kH800:
      spec = Base(H800());
      SetNvlink(&spec, 8, 25, 27);
      break;
    case Machine::kH200:
      spec = Base(H200());
      break;
    case Machine::kB200:
      spec = Base(B200());
      break;
    case Machine::kNvl72:
      spec = Nvl72();
      break;
  }
  if (entry.fabric == kIb) SetInfiniBand(&spec, entry.gigabits);
  if (entry.fabric == kRo) SetRoce(&spec, entry.gigabits);
  spec.name = entry.preset.name;
  return spec;
}

}  // namespace

std::span<const Preset> Presets() { return kPresets; }

Result<Spec> FindPreset(std::string_view name) {
  std::array<std::string_view, kEntries.size()> names;
  for (std::size_t i = 0; i < kEntries.size(); ++i) {
    names[i] = kEntries[i].preset.name;
    if (names[i] == name) return Make(kEntries[i]);
  }
  return InvalidInput("{}", UnknownName("cluster", name, names));
}

}  // namespace orrery::cluster
