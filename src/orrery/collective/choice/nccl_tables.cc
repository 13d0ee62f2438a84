#include "orrery/collective/choice/nccl_tables.h"

#include <algorithm>
#include <span>

namespace orrery::collective::nccl {
namespace {

using cluster::Arch;

// {tree, ring}, each {LL, LL128, Simple}.
constexpr Latencies k217 = {{{4.4, 4.4, 0}, {3.6, 10.0, 8.4}},
                            {{0.52, 1.25, 28.0}, {0.47, 1.9, 3.4}},
                            {{1.0, 1.9, 28.0}, {1.0, 2.5, 5.7}},
                            {{5.0, 8.5, 28.0}, {2.7, 4.0, 9.6}},
                            23.0,
                            18.0,
                            19.0};
constexpr Latencies k218 = {{{6.8, 14.0, 0}, {6.6, 14.0, 8.4}},
                            {{0.6, 1.25, 4.0}, {0.6, 1.9, 3.4}},
                            {{1.0, 1.9, 6.0}, {1.0, 2.5, 5.7}},
                            {{5.0, 8.5, 14.0}, {2.7, 4.0, 14.0}},
                            23.0,
                            18.0,
                            19.0};
// The latency of Tree Simple stands for a chunk of 256 KiB, until 2.23 prices its steps.
constexpr Latencies k219 = {{{6.8, 14.0, 0}, {6.6, 14.0, 8.4}},
                            {{0.6, 1.25, 28.0}, {0.6, 1.9, 3.4}},
                            {{1.0, 1.9, 28.0}, {1.0, 2.5, 5.7}},
                            {{5.0, 8.5, 28.0}, {2.7, 4.0, 14.0}},
                            23.0,
                            18.0,
                            14.0};
constexpr Latencies With(Latencies table, double nvls_nvlink) {
  table.nvls_nvlink = nvls_nvlink;
  return table;
}
constexpr Latencies k221 = With(k219, 25.0);
constexpr Latencies k223 = {{{6.8, 14.0, 8.4}, {6.6, 14.0, 8.4}},
                            {{0.6, 1.25, 4.0}, {0.6, 1.9, 3.4}},
                            {{1.0, 1.9, 4.0}, {1.0, 2.5, 5.7}},
                            {{5.0, 8.5, 14.0}, {2.7, 4.0, 14.0}},
                            25.0,
                            18.0,
                            14.0};
constexpr Latencies WithTreeNet(Latencies table, double nvls_tree_net) {
  table.nvls_tree_net = nvls_tree_net;
  return table;
}
constexpr Latencies k2289 = WithTreeNet(k223, 20.9);

constexpr std::array<Bandwidths, 3> kBandwidths = {{
    {{20, 20, 20}, {20, 20, 20}, {26.5, 18.5, 10}, {26.5, 18.5, 10}, 0},              // Volta
    {{20, 20, 20}, {20, 20, 20}, {24, 23.6, 17.8}, {24, 23.6, 17.8}, 0},              // Ampere
    {{36.7, 36.7, 36.7}, {36.7, 36.7, 29}, {38.7, 41.4, 36}, {0, 57.7, 45.5}, 0.85},  // Hopper
}};
// Blackwell, up to the release named.
struct Until {
  int version;
  Bandwidths table;
};
constexpr BySpan kTreeLL128 = {55.6, 31.67, 20}, kTree = {70, 42.8, 24};
constexpr std::array<Until, 7> kBlackwell = {{
    {22800, {{73.4, 73.4, 73.4}, {73.4, 73.4, 58}, {77.4, 82.8, 72}, {0, 0, 0}, 0.74}},
    {22807, {{73.4, 73.4, 73.4}, kTreeLL128, kTree, {0, 96, 43.1}, 0.74}},
    {22809, {{73.4, 34.6, 73.4}, kTreeLL128, kTree, {0, 96, 43.1}, 0.74}},
    {22902, {{73.4, 34.6, 73.4}, kTreeLL128, kTree, {0, 96, 43.8}, 0.74}},
    {22907, {{34.5, 34.6, 34.5}, kTreeLL128, kTree, {0, 96, 43.8}, 0.74}},
    {23000, {{40, 40, 40}, kTreeLL128, kTree, {0, 96, 43.8}, 0.74}},
    {1 << 30, {{40, 40, 40}, kTreeLL128, kTree, {0, 96, 80}, 0.74}},
}};

constexpr std::array<BySpan, 4> kMaxLL = {
    {{39, 39, 20.4}, {87.7, 22.5, 19}, {141, 45, 35}, {282, 90, 70}}};

constexpr double kTreeCorrection[3][24] = {
    {1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1, 1},
    {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1, 1},
    {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5,
     .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9, .9}};

// Bandwidth steps that the search tries, highest first.
constexpr double kIntraOld[] = {40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3};
constexpr double kIntra90[] = {60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3};
constexpr double kIntra100[] = {90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18};
constexpr double kIntra100To228[] = {90, 80, 70, 60, 50, 40, 30, 24, 20, 19, 18};
constexpr double kInterOld[] = {48, 30, 28, 24, 20, 18,  15,  12,  10, 9,
                                7,  6,  5,  4,  3,  2.4, 1.2, .24, .12};
constexpr double kInter90[] = {48, 45, 42, 40, 30,  24,  22,  20, 17.5,
                               15, 12, 6,  3,  2.4, 1.2, .24, .12};
// Blackwell's to 2.27.2 are Hopper's; at the end of each list stand Hopper's from 42 on.
constexpr double kInter100[] = {96, 86,   80, 48, 45.1, 42, 40,  30,  24,  22,
                                20, 17.5, 15, 12, 6,    3,  2.4, 1.2, .24, .12};
constexpr double kInter2297[] = {96,   80, 48, 45.1, 42, 40,  30,  24,  22, 20,
                                 17.5, 15, 12, 6,    3,  2.4, 1.2, .24, .12};
constexpr double kInter2276[] = {96,   48, 45.1, 42, 40, 30,  24,  22,  20,
                                 17.5, 15, 12,   6,  3,  2.4, 1.2, .24, .12};
constexpr double kInter2273[] = {47.9, 45, 42, 40, 30,  24,  22,  20, 17.5,
                                 15,   12, 6,  3,  2.4, 1.2, .24, .12};

std::span<const double> Inter100(int version) {
  if (version < 22703) return kInter90;
  if (version < 22705) return kInter2273;
  if (version < 22706) return std::span<const double>(kInter2276).subspan(1);
  if (version < 22907) return kInter2276;
  return version < 23000 ? std::span<const double>(kInter2297) : kInter100;
}

std::span<const double> Steps(Arch arch, bool inter, int version) {
  switch (arch) {
    case Arch::kVolta:
    case Arch::kAmpere:
      return inter ? std::span<const double>(kInterOld) : kIntraOld;
    case Arch::kHopper:
      return inter ? std::span<const double>(kInter90) : kIntra90;
    case Arch::kBlackwell:
      if (inter) return Inter100(version);
      return version < 22900 ? std::span<const double>(kIntra100To228) : kIntra100;
  }
  return kInterOld;
}

double FirstStep(std::span<const double> steps, double limit) {
  for (double step : steps) {
    if (step <= limit) return step;
  }
  return limit;
}

// What AWS's plugin tells NCCL of a crossing (aws-ofi-nccl, platform-aws.cpp): p3dn, p4d, p5, p6.
// P5en, which says 35 as p6 does, is taken for a p5 unless the environment says otherwise. It
// decides, the price has EFA's own constant.
constexpr std::array<double, 4> kEfaLatency = {150, 75, 75, 35};

constexpr int kPlainTreesFrom = 21803;  // NCCL expects less of trees that are not spread
constexpr int kMaxRingChannels = 32;    // half of MAXCHANNELS

struct Found {
  int rings = 0;
  double bandwidth_GBps = 0;  // of each
  double together() const { return rings * bandwidth_GBps; }
};

// The search's first pass: step by step downwards, the most that all rings carry together, the
// higher step where that is equal. It ends where a GPU's own links are full, and below half of the
// best step. `rings_at`: how many a step lets through.
template <class RingsAt>
Found BestStep(std::span<const double> steps, double full_GBps, RingsAt rings_at) {
  Found best;
  for (double step : steps) {
    if (best.rings > 0 && step / best.bandwidth_GBps <= 0.49) break;
    const Found here{std::min(rings_at(step), kMaxRingChannels), step};
    if (here.together() > best.together()) best = here;
    if (best.together() >= full_GBps) break;
  }
  return best;
}

}  // namespace

const Latencies& LatenciesOf(int version) {
  if (version < 21800) return k217;
  if (version < 21900) return k218;
  if (version < 22100) return k219;
  if (version < 22300) return k221;
  return version < 22809 ? k223 : k2289;
}

const Bandwidths& BandwidthsOf(Arch arch, int version) {
  if (arch != Arch::kBlackwell) return kBandwidths[static_cast<std::size_t>(arch)];
  std::size_t row = 0;
  while (version >= kBlackwell[row].version) ++row;
  return kBlackwell[row].table;
}

double MaxLL(Arch arch, bool cpu_is_amd, int domains, int version) {
  auto row = static_cast<std::size_t>(arch);
  if (domains > 1)
    row = cpu_is_amd ? 1 : 0;
  else if (version < 22100 && arch == Arch::kHopper)
    row = static_cast<std::size_t>(Arch::kAmpere);
  return kMaxLL[row][static_cast<std::size_t>(std::min(domains, 3) - 1)];
}

double RingShareOfLL(graph::Collective collective, int domains, int version) {
  if (version >= 22100) return 0.5;
  return domains > 1 || collective == graph::Collective::kAllReduce ? 0.25 : 1.0 / 3;
}

double TreeCorrection(Protocol protocol, int log_size) {
  return log_size < 0 || log_size > 23
             ? 1
             : kTreeCorrection[static_cast<std::size_t>(protocol)][log_size];
}

double SearchStep(Arch arch, bool inter, int version, double limit_GBps) {
  return FirstStep(Steps(arch, inter, version), limit_GBps);
}

double NvlinkGBps(const cluster::Spec& spec, const GroupShape& shape, int version) {
  if (spec.gpus_per_nvlink_domain < 2) return 0;
  if (OverPcie(spec, shape, Ways::kRings)) {
    const std::size_t path = std::max<std::size_t>(shape.peer_path, 1) - 1;
    const std::int64_t tree = spec.pcie_tree.peer[path].least_Bps;
    return static_cast<double>(tree > 0 ? std::min(tree, spec.nvlink_Bps) : spec.nvlink_Bps) * 1e-9;
  }
  const double share = shape.ring_nvlinks == 0
                           ? 1
                           : static_cast<double>(shape.ring_nvlinks) / spec.pcie_tree.most_nvlinks;
  // The packets' share of 50 GB/s a link is 40.0, NCCL from 2.27.5 on writes 40.1: 16 rings of 45.1
  // fit, not 15 of 48.
  const bool blackwell = spec.device.arch == Arch::kBlackwell;
  const double written = blackwell && version >= 22705 ? 40.1 / 40 : 1;
  return share * written * static_cast<double>(spec.nvlink_Bps) * 1e-9 * spec.nvlink_packet_bytes /
         (spec.nvlink_packet_bytes + spec.nvlink_header_bytes);
}

double NicGBps(const cluster::Spec& spec, const GroupShape& shape) {
  std::int64_t host = spec.pcie_Bps;
  if (shape.nic_path > 0) host = spec.pcie_tree.nic[shape.nic_path - 1u].least_Bps;
  return static_cast<double>(std::min(spec.nic_Bps, host)) * 1e-9;
}

int NvlsChannels(const cluster::Spec& spec, const GroupShape& shape,
                 const Environment& environment) {
  int channels = 16;
  if (spec.device.arch == Arch::kBlackwell) {
    channels = shape.domains == 1 ? 24 : 32;
    const double nic = NicGBps(spec, shape);
    if (shape.domains > 2 && environment.version >= 22700) {
      if (nic >= 96)
        channels = shape.ranks_per_domain <= 8 ? 24 : 32;
      else if (nic >= 48)
        channels = 24;
    }
  }
  if (environment.nvls_channels > 0) channels = environment.nvls_channels;
  return std::clamp(channels, std::max(1, environment.min_channels),
                    std::max(1, environment.max_channels));
}

bool Takes(const Graphs& graphs, const GroupShape& shape) {
  return graphs.given() && shape.uniform &&
         static_cast<std::size_t>(shape.ranks_per_domain) == graphs.gpus();
}

namespace {

// NCCL's connect.cc, by release: what a communicator makes of its two channels a ring.
int ChannelsOf(const cluster::Spec& spec, const GroupShape& shape, const Environment& environment,
               const Channels& found) {
  const int version = environment.version;
  const bool hopper = spec.device.arch >= Arch::kHopper;
  int channels = std::min(64, 2 * found.graph);
  // Up to 2.19 as long as 32 allow it.
  const int fewer = version < 22000 ? 17 : 16;
  if (hopper && shape.domains > 1 && found.bandwidth_GBps > 45 && channels < fewer) channels *= 2;
  channels = std::min(channels, environment.max_channels);
  channels = std::max(channels, std::min(environment.min_channels, 64));
  // From 2.22 to 2.27 rings and trees have no fewer than NVLS. Whole hosts of Hopper have its 16;
  // their parts are left as they are, 16 channels over 3 NICs are more than the formula knows.
  const bool nvls = spec.device.arch == Arch::kBlackwell && environment.nvls &&
                    shape.ranks_per_domain > 2 && shape.uniform && !spec.peers_over_pcie();
  if (nvls && version >= 22200 && version < 22800) {
    channels = std::max(channels, NvlsChannels(spec, shape, environment));
  }
  return channels;
}

// As NCCL reads them: not searched for, not duplicated. LL128 goes by NVLink inside, and through no
// more than the bridges of a host (since Hopper: or a GPU beside the NIC) outside.
void Apply(const Graphs& graphs, Arch arch, int domains, int version, Channels* channels) {
  const Graph& ring = graphs.ring.given ? graphs.ring : graphs.tree;
  const auto speed = [&](const Graph& g) { return domains <= 2 ? g.intra_GBps : g.inter_GBps; };
  channels->graph = static_cast<int>(ring.channels.size());
  if (graphs.ring.given && graphs.tree.given) {
    channels->graph =
        static_cast<int>(std::min(graphs.ring.channels.size(), graphs.tree.channels.size()));
  }
  channels->bandwidth_GBps = speed(ring);
  channels->tree_GBps = graphs.tree.given ? speed(graphs.tree) : channels->bandwidth_GBps;
  if (graphs.tree.given) channels->plain_trees = version >= kPlainTreesFrom && graphs.tree.plain;
  channels->latency_us = domains > 1 ? ring.latency_us : 0;
  channels->near_nvlink = ring.intra <= PathType::kNvlink;
  const PathType worst = arch >= Arch::kHopper ? PathType::kPxn : PathType::kBridges;
  channels->ll128 = ring.intra <= PathType::kNvlinkThroughGpu && ring.inter <= worst;
}

// The trees' own search, over several domains, for as many channels as the rings have. NCCL spreads
// a tree's NIC over the first two GPUs of its chain; where the second one does not reach that NIC
// as the first one does, Hopper and Blackwell take chains that begin and end at one GPU instead
// (from 2.18.3 on), of which NCCL expects less. What is left of NVLink then makes the channels
// faster inside a domain, as long as that is less than twice a NIC's step: what two domains count
// with.
void SearchTrees(const cluster::Spec& spec, const GroupShape& shape, const Environment& environment,
                 double nvlink, Channels* found) {
  const Arch arch = spec.device.arch;
  const int gpus = shape.ranks_per_domain;
  const bool own_nic = shape.nics >= gpus && !spec.cpu_is_grace;
  found->plain_trees =
      environment.version >= kPlainTreesFrom && (gpus == 1 || (arch >= Arch::kHopper && own_nic));
  if (shape.domains != 2) return;
  const std::span<const double> steps = Steps(arch, true, environment.version);
  const double inter = found->bandwidth_GBps;
  auto at = std::find_if(steps.begin(), steps.end(), [&](double step) { return step <= inter; });
  while (at != steps.begin() && found->tree_GBps < 2 * inter) {
    const double faster = *--at;
    if (gpus > 1 && found->graph * faster * (gpus - 1) > gpus * nvlink) break;
    found->tree_GBps = faster;
  }
}

}  // namespace

Channels SearchChannels(const cluster::Spec& spec, const GroupShape& shape,
                        const Environment& environment) {
  const Arch arch = spec.device.arch;
  const bool old = arch == Arch::kVolta || arch == Arch::kAmpere;
  const int version = environment.version;
  const double nvlink = NvlinkGBps(spec, shape, version);
  // The effective rates carry a share of a percent from the packet model: 1 % keeps 240 above 6
  // * 40.
  const auto through = [](double rate, double step) { return static_cast<int>(rate / step); };
  Found found;
  if (shape.domains == 1) {
    found = BestStep(Steps(arch, false, version), nvlink,
                     [&](double step) { return through(nvlink * 1.01, step); });
  } else {
    const double nic = NicGBps(spec, shape);
    const int gpus = shape.ranks_per_domain;
    found = BestStep(Steps(arch, true, version), gpus > 1 ? nvlink : nic * shape.nics,
                     [&](double step) {
                       const int by_nic = shape.nics * through(nic, step);
                       // Each ring leaves over NVLink from all of a domain's GPUs but the one at
                       // its NIC.
                       if (gpus == 1) return by_nic;
                       return std::min(by_nic, gpus * through(nvlink * 1.01, step) / (gpus - 1));
                     });
    // No step that the NIC or the links between GPUs carry: one ring at what there is.
    if (found.rings == 0) found = {shape.nics, nic};
  }
  Channels result;
  result.graph = found.rings;
  result.bandwidth_GBps = found.rings > 0 ? found.bandwidth_GBps : nvlink;
  result.graph = std::clamp(result.graph, 1, kMaxRingChannels);
  if (result.bandwidth_GBps >= 25 && !(!old && result.bandwidth_GBps < 50 && result.graph > 4)) {
    const int doubled = std::min(2 * result.graph, kMaxRingChannels);
    result.bandwidth_GBps = result.bandwidth_GBps * result.graph / doubled;
    result.graph = doubled;
  }
  result.tree_GBps = result.bandwidth_GBps;
  if (shape.domains > 1) SearchTrees(spec, shape, environment, nvlink * 1.01, &result);
  if (shape.domains > 1 && spec.fabric == cluster::Fabric::kEfa) {
    result.latency_us = environment.efa_latency_us > 0
                            ? environment.efa_latency_us
                            : kEfaLatency[static_cast<std::size_t>(arch)];
  }
  if (Takes(environment.graphs, shape))
    Apply(environment.graphs, arch, shape.domains, version, &result);
  result.channels = ChannelsOf(spec, shape, environment, result);
  return result;
}

}  // namespace orrery::collective::nccl

namespace orrery::collective {

int ReleaseOn(cluster::Arch arch, const Environment& environment) {
  const bool newer = arch == cluster::Arch::kBlackwell && !environment.version_stated;
  return newer ? std::max(environment.version, 22807) : environment.version;
}

}  // namespace orrery::collective
