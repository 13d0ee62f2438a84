// The presets: machines of preset_devices.h, each constant beside its source.
//
// Sources, cited below in brackets:
//   [A100]  NVIDIA A100 Tensor Core GPU data sheet and architecture white paper (2020, 2021)
//   [V100]  NVIDIA V100 Tensor Core GPU architecture white paper (2017); DGX-2 user guide
//   [H100]  NVIDIA H100 Tensor Core GPU data sheet and Hopper architecture white paper (2022)
//   [HGX]   NVIDIA HGX and Blackwell architecture briefs (2024, 2025): HGX B200 and B300, GB200 and
//           GB300 NVL72
//   [NCCL]  NCCL's bandwidth table: per NVLink and direction 20.0 (V100, A100), 20.6 (H100), 40.1
//           GB/s (B200); PCIe x16 12 (Gen3), 24 (Gen4), 48 (Gen5), 96 GB/s (Gen6); latency table:
//           an LL step over NVLink 0.6 us
//   [IBTA]  RC packet of InfiniBand: LRH 8, BTH 12, ICRC 4, VCRC 2, RETH's 16 spread over a message
//   [RoCE]  Ethernet 14 + 4 + preamble and gap 20, IPv4 20, UDP 8, BTH 12, ICRC 4 = 82 bytes
//   [A800] [GH200] [PCIe]  NVIDIA data sheets of A800 (2022), GH200 Grace Hopper (2023) and H100
//           PCIe (2022)
//   [MI300X]  AMD Instinct MI300X data sheet (2023)
//   [TPU]   Google Cloud, "TPU v3"; Jouppi et al. 2020, "A Domain Specific Supercomputer for
//           Training Deep Neural Networks", CACM 63(7): links of 656 Gb/s
//   [SS]    De Sensi et al. 2020, "An In-Depth Analysis of the Slingshot Interconnect": 350
//           ns a switch
//   [OPA]   Intel Omni-Path 100 series product brief: 100 to 110 ns a switch; Birrittella et al.
//           2015: 65-bit flits, 16 and a CRC a packet of the link
//   [AWS]   AWS EC2 user guide: EFA of p4d (4 cards of 100 Gb/s), p5 (32 cards, 3,200 Gb/s)
//   [GCP]   Google Cloud, "GPU machine types" and "MTU": a2-highgpu-8g, 100 Gb/s, up to 8,896 B
//   [est.]  an estimate, said to be one
#include <fmt/format.h>

#include <array>
#include <string>
#include <vector>

#include "orrery/base/suggest.h"
#include "orrery/cluster/cluster.h"
#include "orrery/cluster/preset_devices.h"

namespace orrery::cluster {
namespace {

constexpr std::int64_t kGiga = 1'000'000'000;

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

// Elastic Fabric Adapter: RoCE's headers, the latency in net_extra.efa.
void SetEfa(Spec* spec, int gigabits) {
  SetRoce(spec, gigabits);
  spec->fabric = Fabric::kEfa;
  spec->nic_mtu_bytes = 8900;  // [AWS], SRD's packets
  spec->sources.back() = "EFA: line rate; SRD over Ethernet, IP and UDP";
}

// Ethernet with a transport of its own; what NCCL's steps cost over it is RoCE's.
void SetSlingshot(Spec* spec, int gigabits) {
  SetRoce(spec, gigabits);
  spec->fabric = Fabric::kSlingshot;
  spec->nic_latency = 450 * kNanosecond;  // [SS] 350 in the switch; [est.] 100 of cable and NIC
  spec->nic_mtu_bytes = 2048;             // [SS]
  spec->nic_header_bytes = 62;            // [est.] RoCE's less preamble and gap, which it drops
  spec->sources.back() = "Slingshot: line rate; optimised Ethernet";
}

void SetOmniPath(Spec* spec, int gigabits) {
  SetInfiniBand(spec, gigabits);
  spec->fabric = Fabric::kOmniPath;
  spec->nic_latency = 250 * kNanosecond;  // [OPA] 110 in the switch; [est.] 140 of NIC and cable
  spec->nic_mtu_bytes = 8192;             // [OPA]
  // [OPA] 64 of 66 bits of a flit's line code and a flit in 17 of check: 3 % of a packet; 24 of
  // headers.
  spec->nic_header_bytes = 8192 / 32 + 24;
  spec->sources.back() = "Omni-Path: line rate; flits and headers";
}

// NCCL's socket transport: Ethernet, IP and TCP headers in the packets; what a connection moves and
// a step costs more stand in Spec::stream_Bps and white_box.cc.
void SetTcp(Spec* spec, int gigabits) {
  SetRoce(spec, gigabits);
  spec->fabric = Fabric::kTcp;
  spec->nic_mtu_bytes = 8896 - 52;  // [GCP] jumbo frames less IP, TCP and time stamps
  spec->nic_header_bytes = 38 + 52;
  spec->sources.back() = "TCP: line rate; Ethernet, IP and TCP headers of jumbo frames";
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
// TransformerEngine issue 2053). Between the two; eight of Megatron's test cases ran on both
// machines, bound by the host: 0.52 to 0.91, 0.71 in the geometric mean.
constexpr double kGrace = 0.7;
bool IsGrace(const DeviceSpec& device) {
  return device.name.starts_with("GH") || device.name.starts_with("GB");
}
double HostSpeed(const DeviceSpec& device) {
  switch (device.arch) {
    case Arch::kVolta:
      return 0.70;  // Xeon 8168, E5-2698 v4
    case Arch::kAmpere:
      return 0.72;  // EPYC 7742
    case Arch::kHopper:
      return IsGrace(device) ? kGrace : 1.0;  // Xeon 8480C
    case Arch::kBlackwell:
      return IsGrace(device) ? kGrace : 1.05;  // Xeon 8570
  }
  return 1;
}

Spec Base(const DeviceSpec& device) {
  Spec spec;
  spec.cpu_relative_speed = HostSpeed(device);
  spec.cpu_is_grace = IsGrace(device);
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
  spec.pcie_tree.peers = true;  // where a tree is named
  spec.sources.emplace_back("no NVLink: peers over PCIe switches");
  return spec;
}

// The same with the host's tree: contention and the socket link count.
Spec UnderSwitches(const DeviceSpec& device, int effective_GBps) {
  Spec spec = OverPcie(device, effective_GBps);
  spec.pcie_tree.name = "switch-per-four";
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

// GeForce cards have no peer access over PCIe: all goes through the host's memory, in and out of
// it, at half the rate.
Spec Gaming() {
  Spec spec = OverPcie(Rtx3090(), 12);
  spec.pcie_Bps = 24 * kGiga;  // [NCCL] Gen4
  spec.nics_per_node = 1;
  spec.sources.back() = "no NVLink: peers through the host's memory";
  return spec;
}

// Seven Infinity Fabric links of 64 GB/s each way to the seven others; no header beside them, and
// one pair alone gets all seven here.
Spec InfinityMesh() {
  Spec spec = Base(Mi300x());
  SetPcie(&spec, 48);
  spec.cpu_relative_speed = 0.95;    // [est.] EPYC 9004
  spec.nvlink_Bps = 7 * 64 * kGiga;  // [MI300X]
  spec.nvlink_header_bytes = 0;
  spec.sources.emplace_back("Infinity Fabric: seven links of 128 GB/s both ways, as one switch");
  return spec;
}

// Chips in a square, each with a link of 656 Gb/s to either side in two dimensions.
Spec TpuTorus() {
  Spec spec = Base(TpuV3());
  spec.nodes = 16;
  spec.gpus_per_node = spec.gpus_per_nvlink_domain = spec.nics_per_node = 1;
  spec.rail_optimised = false;
  spec.pcie_Bps = 4 * 82 * kGiga;  // the links are on the chip
  spec.pcie_latency = 0;
  spec.topology.name = "torus";
  const Dimension ring{.size = 4, .bandwidth_Bps = 82 * kGiga};  // [TPU]
  spec.topology.dimensions = {ring, ring};
  SetInfiniBand(&spec, 4 * 656);
  spec.fabric = Fabric::kNone;
  spec.nic_latency = 500 * kNanosecond;  // [est.]
  spec.nic_header_bytes = 0;
  spec.sources.back() = "inter-chip links: data sheet's rate";
  return spec;
}

Spec WithNics(Spec spec, int gpus, int nics) {
  spec.gpus_per_node = spec.gpus_per_nvlink_domain = gpus;
  spec.nics_per_node = nics;
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
    Machine{"h20", "8 x H20 96GB, NVSwitch, 8 NICs", [] { return Base(H20()); }, 400},
    Machine{"mi300x", "8 x MI300X 192GB, Infinity Fabric, 8 NICs", InfinityMesh, 400},
    Machine{"h200", "8 x H200 141GB, NVSwitch, 8 NICs", [] { return Base(H200()); }, 400},
    Machine{"b200", "8 x B200 180GB, NVSwitch, 8 NICs", [] { return Base(B200()); }, 400},
    Machine{"b300", "8 x B300 270GB, NVSwitch, 8 NICs", [] { return WithGen6(Base(B300())); }, 800},
    Machine{"gb200-nvl72", "GB200 NVL72: hosts of 4, NVLink over 72, a NIC a GPU",
            [] { return Nvl72(Gb200()); }, 400},
    Machine{"gb300-nvl72", "GB300 NVL72: hosts of 4, NVLink over 72, a NIC a GPU",
            [] { return WithGen6(Nvl72(Gb300())); }, 800},
};
constexpr std::array kFabrics = {Fabric::kInfiniBand, Fabric::kRoce};

// Machines of one fabric each, by name.
struct System {
  std::string_view name, description;
  Spec (*make)();
  void (*fabric)(Spec*, int gigabits);
  int gigabits;
};
constexpr std::array kSystems = {
    System{"rtx3090-ib-100g", "8 x RTX 3090 24GB over PCIe Gen4, one 100 Gb/s InfiniBand NIC",
           Gaming, SetInfiniBand, 100},
    System{"a100-40g-efa-100g", "AWS p4d: 8 x A100 40GB, 4 EFA of 100 Gb/s",
           [] { return WithNics(Base(A100(40)), 8, 4); }, SetEfa, 100},
    System{"h100-efa-400g", "AWS p5: 8 x H100 80GB, a GPU's 4 EFA of 100 Gb/s as one",
           [] { return Base(H100()); }, SetEfa, 400},
    System{"a100-80g-omnipath-100g", "Jean Zay: 8 x A100 80GB, 4 Omni-Path of 100 Gb/s",
           [] { return WithNics(Base(A100(80)), 8, 4); }, SetOmniPath, 100},
    System{"a100-40g-slingshot-200g", "Perlmutter: 4 x A100 40GB, 4 Slingshot of 200 Gb/s",
           [] { return WithNics(Base(A100(40)), 4, 4); }, SetSlingshot, 200},
    System{"gh200-slingshot-200g", "Alps: 4 x GH200 96GB, 4 Slingshot of 200 Gb/s",
           [] { return WithNics(Base(Gh200()), 4, 4); }, SetSlingshot, 200},
    System{"a100-40g-tcp-100g",
           "Google a2-highgpu-8g: 8 x A100 40GB, NVSwitch, one NIC of 100 Gb/s, TCP",
           [] { return WithNics(Base(A100(40)), 8, 1); }, SetTcp, 100},
    System{"a100-pcie-80g-ib-200g",
           "8 x A100 PCIe 80GB under two PCIe Gen4 switches, a socket each, 2 NICs of 200 Gb/s",
           [] { return UnderSwitches(A100Pcie(), 24); }, SetInfiniBand, 200},
    System{"v100-pcie-16g-ib-100g",
           "8 x V100 PCIe 16GB under two PCIe Gen3 switches, a socket each, 2 NICs of 100 Gb/s",
           [] { return UnderSwitches(V100Pcie(), 12); }, SetInfiniBand, 100},
    System{"tpu-v3-torus", "TPU v3 chips in a 2D torus of 4 x 4", TpuTorus, nullptr, 0},
};

struct Entry {
  std::string name, description;
  const Machine* machine;
  Fabric fabric;
  const System* system = nullptr;  // in their place
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
    for (const System& s : kSystems) {
      all.push_back({std::string(s.name), std::string(s.description), nullptr, Fabric::kNone, &s});
    }
    return all;
  }();
  return entries;
}

Spec Make(const Entry& entry) {
  if (const System* system = entry.system) {
    Spec spec = system->make();
    if (system->fabric != nullptr) system->fabric(&spec, system->gigabits);
    spec.name = entry.name;
    return spec;
  }
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
