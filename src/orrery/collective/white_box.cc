#include "orrery/collective/white_box.h"
#include "orrery/constants/constants.h"

#include "orrery/collective/algorithms/nvls.h"
#include "orrery/collective/choice/nccl_tables.h"

namespace orrery::collective::model {
namespace {

using cluster::Arch;

constexpr double kUs = 1e6;  // picoseconds

// Rate of one channel's CTA, bytes/s of data, by arch (Volta, Ampere, Hopper, Blackwell). LL:
// NCCL's cap on all channels of one node over its channels (39/24, 87.7/24, 141/24, 282/32 GB/s).
// LL128 and Simple: NCCL's caps per channel (perChMaxRingLL128, perChMaxTree). Its channels there
// are the graph's, of which a communicator has two each (graph/connect.cc): Hopper and Blackwell
// have half (Simple: of two nodes). Rings of A100 move more than half: 12.3 GB/s by Simple, 13 by
// LL128, at their NICs' limit. Send/recv: docs/collectives.md.
constexpr double kPointToPointRate = 21e9;
constexpr double kRate[4][3] = {
    {1.6e9, 20e9, 26.5e9}, {3.65e9, 20e9, 24e9}, {5.9e9, 18.35e9, 20.7e9}, {8.8e9, 20e9, 21.4e9}};
// V100's and A100's NVLinks carry LL128's lines at three quarters of what they carry of Simple's
// stores: docs/collectives.md.
constexpr double kLL128Diluted = 4.0 / 3;
// Simple inside one domain, where NCCL's cap is far from that of two (Hopper's: 38.7 and 41.4).
constexpr double kSimpleInBlackwellDomain = 35e9;
// A warp that copies in an NVLS lane: a hunk in 1.17 us, docs/collectives.md.
constexpr double kNvlsWarpRate = 3.5e9;

// Kernel launch to first step: NCCL's base latency of a ring, LL and Simple. Blackwell: the floor
// of nccl-tests, see docs/collectives.md.
constexpr double kSetup[3] = {6.6 * kUs, 6.6 * kUs, 8.4 * kUs};
constexpr double kSetupBlackwell = 1.4 * kUs;

// One step's latency for no bytes, GPU to GPU, as NCCL's latency table has it (LL, LL128, Simple):
// over NVLink and over one leaf of the network. A ring's step by LL128 is longer than a tree's.
constexpr double kStepNvlink[3] = {0.6 * kUs, 1.25 * kUs, 3.4 * kUs};
constexpr double kRingStepLL128 = 1.9 * kUs;
constexpr double kStepNet[3] = {5.0 * kUs, 8.5 * kUs, 14.0 * kUs};
constexpr double kStepBlackwell = 0.5 * kUs;  // more over NVLink, docs/collectives.md
// The part of it that holds the CTA: barrier and poll before a slice.
constexpr double kSync[3] = {0.1 * kUs, 0.2 * kUs, 1.0 * kUs};
// What an SM writes to its L2 or reads from it: 64 B a clock.
constexpr double kToL2Rate = 64 * 1.7e9;
constexpr std::int64_t kWholePassLL = 512 * 8;  // bytes of data: NCCL's most threads, a line each
// The links' part of the network's table entry: PCIe twice and two hops (cluster presets with
// InfiniBand); the rest of the entry is proxy and flags. Longer routes add their links' latency.
constexpr double kNetLinks = 1.6 * kUs;

// NCCL's socket transport. A step goes through the kernels' stacks, wakes nobody (the proxy polls),
// and is copied from and to host memory: 8-byte broadcasts between two hosts take 38 to 46 us
// (NVIDIA/nccl-tests issue 82, virtual machines of 25 Gb/s), of which 11 are NCCL's own tables.
constexpr double kTcpStep = 25 * kUs;
// A thread copies into its sockets: eight rings of one proxy thread filled 3.75 GB/s
// (NVIDIA/nccl issue 209); estimate of where it ends.
constexpr double kTcpThreadRate = 5e9;

double PerByte(std::int64_t bandwidth_Bps) { return 1e12 / static_cast<double>(bandwidth_Bps); }

// What the slowest of the host's links works for a byte of the plan, beside a GPU's own link.
double SharedPerByte(const cluster::PcieTreeSpec& tree, const Plan& plan, double farthest) {
  const GroupShape& shape = plan.shape;
  // All pairs: what crosses the busiest link.
  if (IsExchange(plan.collective)) return PerByte(tree.gpu_Bps) * (shape.exchange / 1024.0);
  if (plan.algorithm != Algorithm::kTree) return farthest;  // a ring crosses it once each way
  // A tree's chain has a byte up and one down through a GPU's link, which count two here. It
  // crosses from subtree to subtree once, each way one byte; one that begins inside a subtree
  // twice.
  const double channels = plan.channels;
  return farthest * (shape.domains > 1 ? 0.5 : 1 - 0.5 / channels);
}

// Over the host's PCIe tree: latency and a chunk's time as of the mean way between neighbours, the
// pace as of the slowest link.
void SetIntraOverPcie(const cluster::Spec& spec, const Plan& plan, Edge* edge) {
  const cluster::PcieTreeSpec& tree = spec.pcie_tree;
  const GroupShape& shape = plan.shape;
  if (shape.peer_path == 0) return;  // one member a domain
  const auto rate = [&](const cluster::HostPath& path) {
    return PerByte(std::min(path.least_Bps, spec.nvlink_Bps));
  };
  double count = 0;
  for (std::size_t d = 0; d < shape.peers.size(); ++d) {
    const cluster::HostPath& path = tree.peer[d];
    const double pairs = shape.peers[d];
    if (pairs == 0) continue;
    count += pairs;
    edge->latency += pairs * static_cast<double>(path.latency);
    edge->mean_per_byte += pairs * rate(path);
    edge->other_per_byte += pairs * std::max(0.0, path.ps_per_byte - PerByte(path.least_Bps));
  }
  edge->latency /= count;
  edge->mean_per_byte /= count;
  edge->other_per_byte /= count;
  const double own = PerByte(std::min(tree.gpu_Bps, spec.nvlink_Bps));
  edge->per_byte = std::max(own, SharedPerByte(tree, plan, rate(tree.peer[shape.peer_path - 1u])));
  edge->mtu = spec.nic_mtu_bytes + spec.nic_header_bytes;
  edge->payload = spec.nvlink_packet_bytes;
  edge->header = tree.most_nvlinks > 0 ? 0 : spec.nvlink_header_bytes;  // else those are PCIe's
}

// Without a switch a group has the links that its rings take, or, where all send to all, those to
// each of the others.
void SetIntra(const cluster::Spec& spec, const Plan& plan, Edge* edge) {
  edge->latency = static_cast<double>(spec.nvlink_latency);
  edge->per_byte = PerByte(spec.nvlink_reached_Bps());
  if (const GroupShape& shape = plan.shape; shape.ring_nvlinks > 0 || shape.pair_nvlinks > 0) {
    const int links = IsExchange(plan.collective)
                          ? shape.pair_nvlinks * (shape.ranks_per_domain - 1)
                          : shape.ring_nvlinks;
    edge->per_byte *= static_cast<double>(spec.pcie_tree.most_nvlinks) / links;
  }
  edge->mean_per_byte = edge->other_per_byte = edge->per_byte;
  edge->mtu = spec.nvlink_packet_bytes + spec.nvlink_header_bytes;
  edge->payload = spec.nvlink_packet_bytes;
  edge->header = spec.nvlink_header_bytes;
}

void SetInter(const cluster::Spec& spec, const GroupShape& shape, int switches, Edge* edge) {
  double pcie = PerByte(spec.pcie_Bps), through = pcie;  // slowest link, and all of them in turn
  auto latency = static_cast<double>(spec.pcie_latency);
  if (shape.nic_path > 0) {
    const cluster::HostPath& path = spec.pcie_tree.nic[shape.nic_path - 1u];
    pcie = PerByte(path.least_Bps);
    through = path.ps_per_byte;
    latency = static_cast<double>(path.latency);
  }
  const double nic = PerByte(spec.nic_reached_Bps());
  const double hops = switches + 1;  // links between the two NICs, at the NIC's rate
  edge->latency = 2 * latency + hops * static_cast<double>(spec.nic_latency);
  edge->per_byte = edge->mean_per_byte = std::max(pcie, nic);
  edge->other_per_byte = 2 * through + hops * nic - edge->per_byte;
  edge->mtu = spec.nic_mtu_bytes + spec.nic_header_bytes;
  edge->payload = spec.nic_mtu_bytes;
  edge->header = spec.nic_header_bytes;
}

// What a crossing takes more over this fabric than over InfiniBand, where NCCL's table was
// measured.
double FabricStep(const cluster::Spec& spec) {
  const constants::Set& known = spec.device.constants;
  switch (spec.fabric) {
    case cluster::Fabric::kNone:
    case cluster::Fabric::kInfiniBand:
      break;
    case cluster::Fabric::kRoce:
    case cluster::Fabric::kSlingshot:  // Ethernet; nothing of it was measured apart
      return known[constants::kNetExtraRoce] * 1e12;
    case cluster::Fabric::kTcp:
      return kTcpStep;
    case cluster::Fabric::kEfa:
      return known[constants::kNetExtraEfa] * 1e12;
    case cluster::Fabric::kOmniPath:
      return known[constants::kNetExtraOmnipath] * 1e12;
  }
  return 0;
}

// A crossing's step of no bytes: NCCL's table entry, and the fabric's own. Simple goes through the
// proxy with a flush and credits, LL and LL128 poll flags in the data.
double NetStep(const cluster::Spec& spec, Protocol protocol, double table) {
  const constants::Set& known = spec.device.constants;
  const double relative = known[protocol == Protocol::kSimple ? constants::kNetStepSimple
                                                              : constants::kNetStepLowLatency];
  return table * relative + FabricStep(spec);
}

// CollNet: `inter` is a way into the fabric or out of it, half of one through it. NCCL's latency is
// of both.
void SetFabric(const Plan& plan, const cluster::Spec& spec, WhiteBox* box) {
  const int links = (std::max(1, plan.shape.network_hops) + 1) / 2;
  const double pcie = PerByte(spec.pcie_Bps), nic = PerByte(spec.nic_reached_Bps());
  Edge& edge = box->inter;
  edge.latency =
      static_cast<double>(spec.pcie_latency) + links * static_cast<double>(spec.nic_latency);
  edge.other_per_byte = pcie + links * nic - edge.per_byte;
  const nccl::Release& table = nccl::ReleaseOf(plan);
  const double us = plan.algorithm == Algorithm::kNvls            ? table.nvls_net
                    : plan.algorithm == Algorithm::kCollNetDirect ? table.collnet_direct_net
                                                                  : table.collnet_chain_net;
  const double step = NetStep(spec, Protocol::kSimple, us * kUs);
  edge.post = std::max(0.0, (step - box->sync - kNetLinks) / 2);
}

Chunk Slice(const Plan& plan, std::int64_t bytes) {
  Chunk chunk;
  chunk.bytes = bytes;
  if (bytes == 0) return chunk;
  // As many slices as a full chunk has, none below a 32nd of the nominal one (NCCL's
  // prims_simple.h).
  const std::int64_t slices = (plan.chunk_bytes + plan.slice_bytes - 1) / plan.slice_bytes;
  const std::int64_t even = (bytes + 16 * slices - 1) / (16 * slices) * 16;
  chunk.slice =
      std::clamp(even, std::max<std::int64_t>(16, plan.slice_bytes / 32), plan.slice_bytes);
  chunk.slice = std::min(chunk.slice, bytes);
  chunk.slices = static_cast<int>((bytes + chunk.slice - 1) / chunk.slice);
  return chunk;
}

// What is said of steps that NCCL does not run.
void Replace(const StepCosts& said, WhiteBox* box) {
  const auto replace = [](SimTime time, double* value) {
    if (time >= 0) *value = static_cast<double>(time);
  };
  replace(said.setup, &box->setup);
  replace(said.sync, &box->sync);
  replace(said.post_nvlink, &box->intra.post);
  replace(said.post_network, &box->inter.post);
  if (said.channel_Bps > 0) box->per_byte = PerByte(said.channel_Bps) / kStreams;
}

// LL: NCCL's latency of a step is of all lines that the threads of a whole CTA take at once. Fewer
// pass the SM's way to its L2 sooner, when they are written and when they are polled.
double LinesSaved(const Plan& plan, std::int64_t pass) {
  if (plan.protocol != Protocol::kLL) return 0;
  if (plan.shape.ranks_per_domain > 1) pass *= 2;  // one of two halves (PassBytes)
  const std::int64_t saved = std::max<std::int64_t>(0, kWholePassLL - pass);
  return static_cast<double>(2 * OnWire(Protocol::kLL, saved)) * 1e12 / kToL2Rate;
}

// LL, LL128: the work on what a CTA's threads take at once is part of NCCL's latency of a step; the
// time by the channel's rate is when the CTA takes the next lines.
void HideFirstPass(const Plan& plan, WhiteBox* box) {
  const double per_byte = box->per_byte * kStreams;
  std::int64_t pass = std::min(PassBytes(plan), plan.bytes / plan.channels);
  std::int64_t rest = 0;
  if (PassesLines(plan)) {
    pass = std::min(pass, plan.chunk_bytes);
    // The proxy waits for NCCL's chunk.
    rest = std::min(plan.chunk_bytes * plan.credits / 8, plan.bytes / plan.channels) - pass;
  } else {
    const Pieces pieces = Cut(plan);
    pass = std::min(pass, pieces.rounds > 0 ? pieces.full.slice : pieces.tail.slice);
  }
  const double work = static_cast<double>(pass) * per_byte;
  // Unless the channels' lines wait for a port.
  const double port = plan.channels * box->intra.Serial(OnWire(plan.protocol, pass));
  // The receiver finds a line when it looks the next time.
  const double least = kSync[static_cast<std::size_t>(plan.protocol)];
  if (PassesLines(plan)) {
    box->intra.post -= work;
  } else if (port < work) {
    box->intra.post = std::max(least, box->intra.post - work);
  }
  const double saved = LinesSaved(plan, pass);
  box->intra.post -= saved;
  box->inter.post -= saved;
  box->inter.post = std::max(least, box->inter.post - work) + static_cast<double>(rest) * per_byte;
}

// Stores over NVLink wait for the links: as long as its channels are in step, a CTA of a ring sends
// no faster than its share of them, and while all wait at barriers or receive only, links idle.
void ShareLinks(const Plan& plan, const cluster::Spec& spec, WhiteBox* box) {
  const bool ring = plan.algorithm == Algorithm::kRing && IsRotating(plan.collective);
  if (!ring || plan.protocol != Protocol::kSimple || plan.shape.domains > 1) return;
  if (OverPcie(spec, plan.shape, Ways::kRings) || plan.steps.channel_Bps > 0) return;
  const double packed =
      1 + static_cast<double>(box->intra.header) / static_cast<double>(box->intra.payload);
  const double share = plan.channels * box->intra.per_byte * packed / kStreams;
  box->in_step = std::max(1.0, share / box->per_byte);
}

WhiteBox NcclsBox(const Plan& plan, const cluster::Spec& spec) {
  const auto p = static_cast<std::size_t>(plan.protocol);
  const bool blackwell = spec.device.arch == Arch::kBlackwell;
  const constants::Set& known = spec.device.constants;
  const double step_nvlink = known[constants::kNvlinkStep];
  WhiteBox box;
  // Simple's larger base latency stands for the start of a collective's loops. Not a step: nothing
  // fitted.
  box.setup = spec.device.collective_setup > 0
                  ? static_cast<double>(spec.device.collective_setup)
                  : kSetup[plan.algorithm == Algorithm::kPointToPoint ? 0 : p] +
                        (blackwell ? kSetupBlackwell : 0);
  const bool passes = PassesLines(plan);  // which share their chunk's barrier
  box.sync = kSync[p] * (passes ? 8.0 / plan.credits : 1);
  const bool p2p = plan.algorithm == Algorithm::kPointToPoint;
  double rate = kRate[static_cast<std::size_t>(spec.device.arch)][p];
  if (p2p) {
    rate = std::min(rate, kPointToPointRate);
  } else if (blackwell && plan.protocol == Protocol::kSimple && plan.shape.domains == 1) {
    rate = kSimpleInBlackwellDomain;
  }
  rate *= known[plan.protocol == Protocol::kSimple ? constants::kChannelRateSimple
                                                   : constants::kChannelRateLL];
  box.per_byte = 1e12 / rate / kStreams;
  const bool pairs = p2p || IsExchange(plan.collective);
  if (OverPcie(spec, plan.shape, pairs ? Ways::kPairs : Ways::kRings)) {
    SetIntraOverPcie(spec, plan, &box.intra);
  } else if (spec.gpus_per_nvlink_domain > 1) {
    SetIntra(spec, plan, &box.intra);
    const bool before_hopper = spec.device.arch < Arch::kHopper;
    if (plan.protocol == Protocol::kLL128 && before_hopper) box.intra.diluted = kLL128Diluted;
  }
  // What does not keep to rails meets their spines.
  const bool across = IsExchange(plan.collective) && !plan.pxn && plan.shape.nics > 1;
  const int switches = across && spec.rail_optimised ? 3 : 1;
  SetInter(spec, plan.shape, std::max(switches, plan.shape.network_hops), &box.inter);
  if (spec.fabric == cluster::Fabric::kTcp && plan.shape.domains > 1) {
    // A channel moves at the pace of its connection: sockets that threads serve.
    const double sockets =
        std::min(static_cast<double>(plan.sockets) * static_cast<double>(spec.stream_Bps),
                 plan.socket_threads * kTcpThreadRate);
    box.per_byte = std::max(box.per_byte, 1e12 / sockets / kStreams);
  }
  const bool ring_ll128 = plan.algorithm == Algorithm::kRing && plan.protocol == Protocol::kLL128;
  const double step = ring_ll128 ? kRingStepLL128 : kStepNvlink[p];
  const double nvlink = (step + (blackwell ? kStepBlackwell : 0)) * step_nvlink;
  box.intra.post = nvlink - box.sync - box.intra.latency;
  box.inter.post = std::max(0.0, NetStep(spec, plan.protocol, kStepNet[p]) - box.sync - kNetLinks);
  if (plan.protocol != Protocol::kSimple) HideFirstPass(plan, &box);
  box.intra.post = std::max(0.0, box.intra.post);
  if (plan.copy_engine) box.setup = box.per_byte = 0;  // no kernel to start, no CTA to go through
  if (plan.algorithm == Algorithm::kNvls || plan.algorithm == Algorithm::kNvlsTree) {
    box.per_byte =
        1e12 / (kNvlsWarpRate * known[constants::kChannelRateSimple]) / nvls::kCopyStreams;
    // NCCL's latency of NVLS is of the whole: set-up, three steps, and the way into the switch and
    // out of it; in one domain also a hunk of every lane and head. Over several, where 93 to 115 us
    // are measured for 1 MiB and NCCL expects 53, hunks come on top.
    const double whole = nccl::ReleaseOf(plan).nvls_nvlink * kUs * step_nvlink;
    const int hunks = plan.algorithm == Algorithm::kNvls ? nvls::Hunks(plan) : 0;
    const double copies = hunks * nvls::kHunk * box.per_byte * nvls::kCopyStreams;
    const double ways = whole - kSetup[p] - 3 * box.sync - copies;
    box.intra.post = std::max(0.0, ways / 2 - box.intra.latency);
    const double net = NetStep(spec, Protocol::kSimple, nccl::ReleaseOf(plan).nvls_tree_net * kUs);
    box.inter.post = std::max(0.0, net - box.sync - kNetLinks);
    const double efficiency = nccl::ReleaseOf(plan).on(spec.device.arch).nvls_efficiency;
    box.switch_extra = static_cast<std::int64_t>(1000 / efficiency + 0.5) - 1000;
  }
  if (IsCollNet(plan)) SetFabric(plan, spec, &box);
  // A CTA's 16 warps at the channel's rate.
  if (plan.algorithm == Algorithm::kCollNetDirect) box.per_byte *= 16;
  return box;
}

// Behind data that went by adaptive routes a NIC holds back the notice until the data is
// acknowledged, and with it the queue pair's next message. Channels of a ring are in step and share
// a NIC fairly, so all of a NIC's wait at once, and it idles. Alone on their domains they drift
// apart.
void AwaitAcknowledgement(const Plan& plan, const cluster::Spec& spec, WhiteBox* box) {
  const bool ring = plan.algorithm == Algorithm::kRing && IsRotating(plan.collective);
  const GroupShape& shape = plan.shape;
  const bool adaptive = plan.adaptive_above >= 0 && plan.queue_pairs == 1;
  if (!ring || !adaptive || shape.domains == 1 || shape.ranks_per_domain == 1) return;
  const Pieces pieces = Cut(plan);
  // A step of LL and LL128 is one message, whatever its slices here.
  const int slices = std::max(1, (pieces.rounds > 0 ? pieces.full : pieces.tail).slices);
  const int parts = plan.protocol == Protocol::kSimple ? 1 : slices;
  const int nics = std::max(1, shape.nics);
  const int channels = (plan.channels + nics - 1) / nics;
  Edge& edge = box->inter;
  const double wait = 2 * edge.latency * spec.device.constants[constants::kNetStepSimple];
  const double packed = 1 + static_cast<double>(edge.header) / static_cast<double>(edge.payload);
  edge.unsent = static_cast<std::int64_t>(wait / (channels * parts) / (edge.per_byte * packed));
  edge.unsent_above = plan.adaptive_above / parts;
}

}  // namespace

WhiteBox MakeWhiteBox(const Plan& plan, const cluster::Spec& spec) {
  WhiteBox box = NcclsBox(plan, spec);
  AwaitAcknowledgement(plan, spec, &box);
  Replace(plan.steps, &box);
  ShareLinks(plan, spec, &box);
  box.wrap = box.inter;
  if (plan.shape.wrap_hops > plan.shape.network_hops) {
    SetInter(spec, plan.shape, plan.shape.wrap_hops, &box.wrap);
  }
  return box;
}

namespace {

// `bytes` over the channels, each a loop of `parts` at a time.
Pieces CutInto(const Plan& plan, std::int64_t bytes, std::int64_t parts) {
  Pieces pieces;
  pieces.share = (bytes + plan.channels - 1) / plan.channels;
  pieces.rounds = pieces.share / (parts * plan.chunk_bytes);
  const std::int64_t left = pieces.share - pieces.rounds * parts * plan.chunk_bytes;
  const std::int64_t tail = (left + parts - 1) / parts;
  pieces.full = Slice(plan, plan.chunk_bytes);
  pieces.tail = Slice(plan, (tail + 15) / 16 * 16);
  return pieces;
}

}  // namespace

Pieces CutMessage(const Plan& plan, std::int64_t bytes) { return CutInto(plan, bytes, 1); }

Pieces Cut(const Plan& plan) {
  std::int64_t bytes = plan.bytes;
  // One message, or one rank's part.
  if (IsExchange(plan.collective) || plan.algorithm == Algorithm::kPat) {
    bytes = (bytes + plan.shape.ranks - 1) / plan.shape.ranks;
  }
  const bool rotating = plan.algorithm == Algorithm::kRing && IsRotating(plan.collective);
  return CutInto(plan, bytes, rotating ? plan.shape.ranks : std::max(1, plan.heads));
}

}  // namespace orrery::collective::model
