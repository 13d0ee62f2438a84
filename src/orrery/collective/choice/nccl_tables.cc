#include "orrery/collective/choice/nccl_tables.h"

#include <algorithm>
#include <span>

namespace orrery::collective::nccl {
namespace {

using cluster::Arch;

std::span<const double> Steps(const Generation& gpu, bool inter) {
  return inter ? gpu.steps_between : gpu.steps;
}

double FirstStep(std::span<const double> steps, double limit) {
  for (double step : steps) {
    if (step <= limit) return step;
  }
  return limit;
}

constexpr int kMaxRingChannels = 32;  // half of MAXCHANNELS

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

double SearchStep(const Generation& gpu, bool inter, double limit_GBps) {
  return FirstStep(Steps(gpu, inter), limit_GBps);
}

double NvlinkGBps(const cluster::Spec& spec, const GroupShape& shape, const Release& release) {
  if (spec.gpus_per_nvlink_domain < 2) return 0;
  if (OverPcie(spec, shape, Ways::kRings)) {
    const std::size_t path = std::max<std::size_t>(shape.peer_path, 1) - 1;
    const std::int64_t tree = spec.pcie_tree.peer[path].least_Bps;
    return static_cast<double>(tree > 0 ? std::min(tree, spec.nvlink_Bps) : spec.nvlink_Bps) * 1e-9;
  }
  const double share = shape.ring_nvlinks == 0
                           ? 1
                           : static_cast<double>(shape.ring_nvlinks) / spec.pcie_tree.most_nvlinks;
  return share * release.on(spec.device.arch).nvlink_factor * static_cast<double>(spec.nvlink_Bps) *
         1e-9 * spec.nvlink_packet_bytes / (spec.nvlink_packet_bytes + spec.nvlink_header_bytes);
}

double NicGBps(const cluster::Spec& spec, const GroupShape& shape) {
  std::int64_t host = spec.pcie_Bps;
  if (shape.nic_path > 0) host = spec.pcie_tree.nic[shape.nic_path - 1u].least_Bps;
  return static_cast<double>(std::min(spec.nic_Bps, host)) * 1e-9;
}

int NvlsChannels(const cluster::Spec& spec, const GroupShape& shape,
                 const Environment& environment) {
  const Release& release = ReleaseOf(environment);
  const auto span = static_cast<std::size_t>(std::min(shape.domains, 3) - 1);
  int channels = static_cast<int>(release.on(spec.device.arch).nvls_channels[span]);
  if (spec.device.arch == Arch::kBlackwell && shape.domains > 2 && release.nvls_channels_by_nic) {
    const double nic = NicGBps(spec, shape);
    if (nic >= 96)
      channels = shape.ranks_per_domain <= 8 ? 24 : 32;
    else if (nic >= 48)
      channels = 24;
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
  const Release& release = ReleaseOf(environment);
  const bool hopper = spec.device.arch >= Arch::kHopper;
  int channels = std::min(64, 2 * found.graph);
  if (hopper && shape.domains > 1 && found.bandwidth_GBps > 45 && channels < release.doubles_below)
    channels *= 2;
  channels = std::min(channels, environment.max_channels);
  channels = std::max(channels, std::min(environment.min_channels, 64));
  // Whole hosts of Hopper have NVLS' 16; their parts are left as they are, 16 channels over 3 NICs
  // are more than the formula knows.
  const bool nvls = spec.device.arch == Arch::kBlackwell && environment.nvls &&
                    shape.ranks_per_domain > 2 && shape.uniform && !spec.peers_over_pcie();
  if (nvls && release.rings_as_nvls) {
    channels = std::max(channels, NvlsChannels(spec, shape, environment));
  }
  return channels;
}

// As NCCL reads them: not searched for, not duplicated. LL128 goes by NVLink inside, and through no
// more than the bridges of a host (since Hopper: or a GPU beside the NIC) outside.
void Apply(const Graphs& graphs, Arch arch, int domains, bool plain_trees, Channels* channels) {
  const Graph& ring = graphs.ring.given ? graphs.ring : graphs.tree;
  const auto speed = [&](const Graph& g) { return domains <= 2 ? g.intra_GBps : g.inter_GBps; };
  channels->graph = static_cast<int>(ring.channels.size());
  if (graphs.ring.given && graphs.tree.given) {
    channels->graph =
        static_cast<int>(std::min(graphs.ring.channels.size(), graphs.tree.channels.size()));
  }
  channels->bandwidth_GBps = speed(ring);
  channels->tree_GBps = graphs.tree.given ? speed(graphs.tree) : channels->bandwidth_GBps;
  if (graphs.tree.given) channels->plain_trees = plain_trees && graphs.tree.plain;
  channels->latency_us = domains > 1 ? ring.latency_us : 0;
  channels->near_nvlink = ring.intra <= PathType::kNvlink;
  const PathType worst = arch >= Arch::kHopper ? PathType::kPxn : PathType::kBridges;
  channels->ll128 = ring.intra <= PathType::kNvlinkThroughGpu && ring.inter <= worst;
}

// The trees' own search, over several domains, for as many channels as the rings have. NCCL spreads
// a tree's NIC over the first two GPUs of its chain; where the second one does not reach that NIC
// as the first one does, Hopper and Blackwell take chains that begin and end at one GPU instead, of
// which NCCL expects less. What is left of NVLink then makes the channels faster inside a domain,
// as long as that is less than twice a NIC's step: what two domains count with.
void SearchTrees(const cluster::Spec& spec, const GroupShape& shape, const Environment& environment,
                 double nvlink, Channels* found) {
  const Arch arch = spec.device.arch;
  const int gpus = shape.ranks_per_domain;
  const bool own_nic = shape.nics >= gpus && !spec.cpu_is_grace;
  found->plain_trees =
      ReleaseOf(environment).plain_trees && (gpus == 1 || (arch >= Arch::kHopper && own_nic));
  if (shape.domains != 2) return;
  const std::span<const double> steps = Steps(ReleaseOf(environment).on(arch), true);
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
  const Release& release = ReleaseOf(environment);
  const Generation& gpu = release.on(arch);
  const double nvlink = NvlinkGBps(spec, shape, release);
  // The packet model makes rates a fraction of a percent smaller than NCCL's: 1 % keeps 240 GB/s
  // enough for six rings of 40.
  const auto through = [](double rate, double step) { return static_cast<int>(rate / step); };
  Found found;
  if (shape.domains == 1) {
    found = BestStep(Steps(gpu, false), nvlink,
                     [&](double step) { return through(nvlink * 1.01, step); });
  } else {
    const double nic = NicGBps(spec, shape);
    const int gpus = shape.ranks_per_domain;
    found = BestStep(Steps(gpu, true), gpus > 1 ? nvlink : nic * shape.nics, [&](double step) {
      const int by_nic = shape.nics * through(nic, step);
      // Each ring leaves over NVLink from all of a domain's GPUs but the one at its NIC.
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
    result.latency_us =
        environment.efa_latency_us > 0 ? environment.efa_latency_us : gpu.efa_latency;
  }
  if (Takes(environment.graphs, shape))
    Apply(environment.graphs, arch, shape.domains, release.plain_trees, &result);
  result.channels = ChannelsOf(spec, shape, environment, result);
  return result;
}

}  // namespace orrery::collective::nccl

namespace orrery::collective {

int ReleaseOn(cluster::Arch arch, const Environment& environment) {
  if (environment.version_stated) return environment.version;
  return std::max(environment.version, nccl::ReleaseOf(environment).on(arch).release);
}

}  // namespace orrery::collective
