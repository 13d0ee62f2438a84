// NCCL's expectations (expected.h).
#include "orrery/collective/choice/expected.h"

#include "orrery/collective/algorithms/collnet.h"

namespace orrery::collective {
namespace {

using cluster::Arch;
using graph::Collective;

double Steps(const Question& q) {
  switch (q.collective) {
    case Collective::kAllReduce:
      return 2.0 * (q.ranks() - 1);
    case Collective::kAllGather:
    case Collective::kReduceScatter:
      return q.ranks() - 1;
    default:
      return q.ranks();
  }
}

double NetOverheadUs(const Question& q, int protocol) {
  if (q.domains() == 1 || !q.release().net_overhead) return 0;
  double us = q.spec->cpu_is_amd ? 2 : 1;
  if (q.environment->net_overhead_ns >= 0) us = q.environment->net_overhead_ns * 1e-3;
  return protocol == 2 ? 3 * us : us;
}

double LatencyUs(const Question& q, Algorithm algorithm, int protocol) {
  const nccl::Release& table = q.release();
  const auto a = static_cast<std::size_t>(algorithm);
  const auto p = static_cast<std::size_t>(protocol);
  const int ppn = q.shape->ranks_per_domain;
  const bool nvlink =
      q.spec->gpus_per_nvlink_domain > 1 && !q.over_pcie(Ways::kRings) && q.found.near_nvlink;
  double intra = (nvlink ? table.nvlink : table.pci)[a][p];
  if (p == 0 && q.domains() > 1) intra *= table.ll_step_factor;
  const double inter = table.net[ppn == 1 && table.lone_gpu_as_tree ? 0 : a][p] +
                       q.found.latency_us * (protocol == 2 ? 2 : 1);
  const double base = table.base[a][p];
  if (algorithm == Algorithm::kTree) {
    return base + 2 * ((ppn - 1) * intra + Log2(q.domains()) * inter);
  }
  const double steps = Steps(q);
  if (q.collective == Collective::kBroadcast) {
    return base + steps * (q.domains() > 1 ? inter : protocol == 2 ? table.nvlink[0][2] : intra);
  }
  const double crossings = q.domains() == 1                         ? 0
                           : q.collective == Collective::kAllReduce ? 2.0 * (q.domains() - 1)
                                                                    : q.domains() - 1;
  double us =
      base + (steps - crossings) * std::max(intra, NetOverheadUs(q, protocol)) + crossings * inter;
  const bool plateau = protocol == 2 && q.domains() > 1 && q.collective == Collective::kAllReduce &&
                       q.bytes / (static_cast<std::int64_t>(q.found.channels) * q.ranks()) >= 64;
  return plateau ? us * q.gpu().plateau : us;
}

bool AllowsSimple(const Question& q, Algorithm algorithm) {
  const auto c = static_cast<std::size_t>(q.collective);
  return q.environment->algorithm_allowed[c][static_cast<std::size_t>(algorithm)] &&
         q.environment->protocol_allowed[c][2];
}

// Algorithm bandwidth in GB/s.
double BandwidthGBps(const Question& q, Algorithm algorithm, int protocol) {
  const nccl::Release& release = q.release();
  const nccl::Generation& table = q.gpu();
  const double graph = q.found.graph;
  double bus = graph * q.found.bandwidth_GBps;
  if (table.most_bus > 0) bus = std::min(bus, table.most_bus);
  const double max_ll =
      q.domains() == 1 ? table.most_ll : release.most_ll[q.spec->cpu_is_amd ? 1 : 0][q.span() - 1];
  if (algorithm == Algorithm::kRing) {
    if (protocol == 0) {
      const bool shared = q.domains() > 1 || q.collective == Collective::kAllReduce;
      bus = std::min(max_ll, (shared ? release.ll_share : release.ll_share_inside) * bus);
    }
    if (protocol == 1) {
      const bool lone = q.shape->ranks_per_domain < 2;
      bus = std::min((lone ? release.lone_ll128_share : 0.92) * bus,
                     graph * table.ring_ll128[q.span()]);
    }
    return bus * q.ranks() / Steps(q);
  }
  bus = std::min(0.92 * graph * q.found.tree_GBps, graph * table.tree_simple[q.span()]);
  if (protocol == 0) bus = std::min(bus / 3.8, max_ll);
  if (protocol == 1) {
    bus = std::min(bus * (q.domains() == 1 ? 7.0 / 9 : 120.0 / 128),
                   graph * table.tree_ll128[q.span()]);
  }
  if (q.found.plain_trees) bus *= 0.85;  // NCCL's own discount
  const int log_size = Log2(q.bytes / 64);
  if (log_size >= 0 && log_size < 23) {
    bus *= release.TreeCorrection(protocol, log_size);
  }
  return 0.5 * bus;
}

// NCCL's default for LL128: peers over NVLink, and between domains nothing through a root complex.
// A Grace's NICs stand behind the CPU, over NVLink-C2C.
bool HasLL128(const Question& q) {
  if (q.spec->gpus_per_nvlink_domain < 2 || q.over_pcie(Ways::kRings)) return false;
  if (q.domains() == 1) return true;
  if (q.spec->cpu_is_grace && !q.release().ll128_of_grace) return false;
  const bool root = q.shape->nic_path > static_cast<int>(cluster::PcieDistance::kPhb);
  return !root && q.spec->fabric != cluster::Fabric::kTcp;
}

bool Allowed(const Question& q, Algorithm algorithm, int protocol) {
  const auto c = static_cast<std::size_t>(q.collective);
  const Environment& e = *q.environment;
  if (!e.algorithm_allowed[c][static_cast<std::size_t>(algorithm)]) return false;
  if (!e.protocol_allowed[c][static_cast<std::size_t>(protocol)]) return false;
  if (algorithm == Algorithm::kTree && q.collective != Collective::kAllReduce) return false;
  return protocol != 1 || e.protocol_forced || (HasLL128(q) && q.found.ll128);
}

double TimeUs(const Question& q, Algorithm algorithm, int protocol) {
  return LatencyUs(q, algorithm, protocol) +
         static_cast<double>(q.bytes) / (1000 * BandwidthGBps(q, algorithm, protocol));
}

// One GPU a domain (NCCL_PAT_ENABLE = 2).
double PatTimeUs(const Question& q) {
  const bool fits =
      q.collective == Collective::kAllGather || q.collective == Collective::kReduceScatter;
  if (!fits || !q.release().pat || !q.environment->pat) return kNotAvailable;
  if (q.shape->ranks_per_domain != 1 || q.domains() < 2) return kNotAvailable;
  if (!AllowsSimple(q, Algorithm::kPat)) return kNotAvailable;
  // Not turned from bus into algorithm bandwidth: NCCL does that for rings alone.
  const double bus = 0.75 * q.found.graph * q.found.bandwidth_GBps;
  const double net = q.release().net[0][2] + 2 * q.found.latency_us;
  return 8 + Log2(q.domains()) * net / 3.5 + 2.8 * q.ranks() +
         static_cast<double>(q.bytes) / (1000 * bus);
}

// A head's channel takes its bandwidth from every GPU's NVLinks once, from its own twice; between
// domains the search tries what NICs carry.
struct HeadsOfNvls {
  double count = 1, step_GBps = 0, nic_GBps = 0;
};
HeadsOfNvls HeadsOf(const Question& q, bool tree) {
  HeadsOfNvls heads;
  heads.count = std::min(q.shape->ranks_per_domain, kMostHeads);
  const double share = nccl::NvlinkGBps(*q.spec, *q.shape, q.release()) * 1.01 / (heads.count + 1);
  const double nic = nccl::NicGBps(*q.spec, *q.shape) * q.shape->nics / heads.count;
  heads.step_GBps = nccl::SearchStep(q.gpu(), tree, tree ? std::min(share, nic) : share);
  heads.nic_GBps = tree ? nccl::SearchStep(q.gpu(), true, nic) : heads.step_GBps;
  return heads;
}

// Algorithm bandwidths. What the search finds, of which 5/6 are expected.
double NvlsBusBySearch(const Question& q, bool tree) {
  const HeadsOfNvls heads = HeadsOf(q, tree);
  const bool two = q.domains() <= 2;
  const bool all_reduce = q.collective == Collective::kAllReduce;
  if (!tree)
    return heads.count * heads.step_GBps * (all_reduce ? 5.0 / 6 : q.release().nvls_gather_share);
  if (q.release().nvls_tree_by_domains) {
    const double nodes = q.domains();
    return heads.count * (two ? heads.step_GBps : heads.nic_GBps) * 0.7 * nodes / (2 * (nodes - 1));
  }
  return heads.count * std::min(heads.step_GBps, heads.nic_GBps / (two ? 1 : 2)) * 5 / 6;
}

double NvlsBus(const Question& q, const nccl::Generation& table, bool tree) {
  const HeadsOfNvls heads = HeadsOf(q, tree);
  const double ppn = q.shape->ranks_per_domain;
  const bool all_reduce = q.collective == Collective::kAllReduce;
  double each = heads.step_GBps * table.nvls_efficiency * (heads.count - 1) / heads.count;
  each *= all_reduce ? 2 : (ppn - 1) / ppn;
  if (tree) {
    each = std::min(each, heads.nic_GBps * (q.domains() <= 2 ? 2 : 1));
    const double cap = table.nvls_tree[q.span()];
    if (cap > 0) each = std::min(each, cap);
  }
  return heads.count * each * (all_reduce ? q.ranks() / Steps(q) : 1);
}

}  // namespace

double NvlsTimeUs(const Question& q, bool tree) {
  const nccl::Generation& table = q.gpu();
  const nccl::Release& release = q.release();
  const int ppn = q.shape->ranks_per_domain;
  const bool all_reduce = q.collective == Collective::kAllReduce;
  // Two GPUs that are bridged have no switch that multicasts.
  if (table.nvls_efficiency == 0 || !q.environment->nvls || ppn < 2) return kNotAvailable;
  if (q.spec->gpus_per_nvlink_domain < 4 || !q.shape->uniform) return kNotAvailable;
  if (q.spec->pcie_tree.peers) return kNotAvailable;  // PCIe, whether or not its tree is modelled
  if (q.collective == Collective::kBroadcast) return kNotAvailable;
  if (tree != (q.domains() > 1) || (tree && !all_reduce)) return kNotAvailable;
  if (!AllowsSimple(q, tree ? Algorithm::kNvlsTree : Algorithm::kNvls)) return kNotAvailable;
  // An all-gather's or reduce-scatter's parts are one a GPU: each must be a head.
  if (!all_reduce && ppn > kMostHeads) return kNotAvailable;
  if (!(tree ? release.nvls_several : release.nvls_single)) return kNotAvailable;
  if (ppn == 2 && !release.nvls_of_two) return kNotAvailable;
  double us = release.nvls_nvlink;
  const double said = release.nvls_says_network ? 2 * q.found.latency_us : 0;
  if (tree) us += 2.0 * Log2(q.domains()) * (release.nvls_tree_net + said);
  double bus = release.nvls_by_search ? NvlsBusBySearch(q, tree) : NvlsBus(q, table, tree);
  // What trees do at medium sizes, where a Blackwell's host is an x86.
  const int log_size = Log2(q.bytes / 64);
  const bool corrected = release.nvls_corrected && q.spec->device.arch == Arch::kBlackwell &&
                         !q.spec->cpu_is_grace && log_size >= 0;
  if (tree && corrected) bus *= release.TreeCorrection(2, log_size);
  return us + static_cast<double>(q.bytes) / (1000 * bus);
}

bool HasCollNet(const Question& q) {
  const Environment& e = *q.environment;
  return e.collnet && q.spec->sharp && q.shape->uniform && q.domains() > 1 &&
         q.domains() >= e.collnet_domains;
}

namespace {

// The search's graph of CollNetDirect: a star from each head, its bandwidth shared by all ways to
// the other GPUs, so that a GPU's links carry its own star and its part in the others.
struct Stars {
  double count = 1, GBps = 0;
};
Stars StarsOf(const Question& q) {
  const cluster::Spec& spec = *q.spec;
  const int ppn = q.shape->ranks_per_domain;
  Stars stars{.count = static_cast<double>(CollNetHeads(*q.shape))};
  double limit = nccl::NicGBps(spec, *q.shape);
  if (ppn > 1) {
    const double at_gpu = 1 + (stars.count - 1) / (ppn - 1);
    limit = std::min(limit, nccl::NvlinkGBps(spec, *q.shape, q.release()) * 1.01 / at_gpu);
  }
  stars.GBps = nccl::SearchStep(q.gpu(), true, limit);
  const bool old = spec.device.arch == Arch::kVolta || spec.device.arch == Arch::kAmpere;
  if (stars.GBps >= 25 && (old || stars.GBps >= 50 || stars.count <= 4)) {
    stars.count *= 2;
    stars.GBps /= 2;
  }
  return stars;
}

double CollNetGBps(const Question& q, Algorithm algorithm, double ppn, bool all_reduce) {
  const bool hopper = q.spec->device.arch >= Arch::kHopper;
  if (algorithm == Algorithm::kCollNetChain) {
    return 0.5 * q.found.graph * q.found.bandwidth_GBps;
  }
  const Stars stars = StarsOf(q);
  if (algorithm == Algorithm::kCollNetDirect) {
    if (!all_reduce) return ppn * 0.9 * stars.GBps;
    double factor = ppn / stars.count;
    factor -= (factor - 1) / 2;
    return 0.5 * stars.count * stars.GBps / factor * (hopper ? 0.85 : 1);
  }
  // NVLS: between domains what a head's NIC carries, inside as in one domain.
  const double heads = CollNetHeads(*q.shape);
  const double share = nccl::NvlinkGBps(*q.spec, *q.shape, q.release()) * 1.01 / (heads + 1);
  const double nic = nccl::SearchStep(q.gpu(), true, nccl::NicGBps(*q.spec, *q.shape));
  double each = nccl::SearchStep(q.gpu(), true, std::min(share, nic)) * q.gpu().nvls_efficiency *
                (heads - 1) / heads;
  each *= all_reduce ? 2 : (ppn - 1) / ppn;
  return heads * std::min(each, nic) * (all_reduce ? q.ranks() / Steps(q) : 1);
}

}  // namespace

double CollNetAllReduceGBps(const Question& q) {
  return CollNetGBps(q, Algorithm::kNvls, q.shape->ranks_per_domain, true);
}

double CollNetTimeUs(const Question& q, Algorithm algorithm) {
  const int ppn = q.shape->ranks_per_domain;
  const bool all_reduce = q.collective == Collective::kAllReduce;
  if (!HasCollNet(q) || !AllowsSimple(q, algorithm)) return kNotAvailable;
  if (q.collective == Collective::kBroadcast) return kNotAvailable;
  const bool nvls = algorithm == Algorithm::kNvls;
  const bool chain = algorithm == Algorithm::kCollNetChain;
  const bool nvswitch = q.spec->gpus_per_nvlink_domain >= 4 && !q.spec->pcie_tree.peers;
  if (!chain && ppn > 1 && !nvswitch) return kNotAvailable;
  if (chain ? !all_reduce : !all_reduce && ppn > CollNetHeads(*q.shape)) return kNotAvailable;
  const nccl::Release& table = q.release();
  if (!all_reduce && !(nvls ? table.collnet_nvls_gathers : table.collnet_gathers)) {
    return kNotAvailable;
  }
  if (nvls) {
    if (q.gpu().nvls_efficiency == 0 || !q.environment->nvls || CollNetHeads(*q.shape) < 2)
      return kNotAvailable;
  } else if (ppn > collnet::kMostRanks) {
    return kNotAvailable;
  }
  const double near =
      nvls    ? table.nvls_nvlink
      : chain ? 2 * (ppn - 1) * table.collnet_chain_nvlink
              : 2 * (std::min(1, ppn - 1) * table.collnet_direct_nvlink + (ppn - 1) * 0.4);
  const double net = ppn == 1 ? table.net[0][2]
                     : nvls   ? table.nvls_net
                     : chain  ? table.collnet_chain_net
                              : table.collnet_direct_net;
  return near + net +
         static_cast<double>(q.bytes) / (1000 * CollNetGBps(q, algorithm, ppn, all_reduce));
}

double ExpectedUs(const Question& q, Algorithm algorithm, Protocol protocol, bool direct) {
  const int p = static_cast<int>(protocol);
  const bool tree = algorithm == Algorithm::kNvlsTree;
  if (algorithm == Algorithm::kTree || algorithm == Algorithm::kRing) {
    return Allowed(q, algorithm, p) ? TimeUs(q, algorithm, p) : kNotAvailable;
  }
  if (algorithm == Algorithm::kPat && protocol == Protocol::kSimple) return PatTimeUs(q);
  const bool collnet = algorithm == Algorithm::kCollNetDirect ||
                       algorithm == Algorithm::kCollNetChain ||
                       (algorithm == Algorithm::kNvls && q.domains() > 1);
  if (collnet && protocol == Protocol::kSimple && !direct) {
    return CollNetTimeUs(q, algorithm);
  }
  if ((algorithm != Algorithm::kNvls && !tree) || protocol != Protocol::kSimple || direct) {
    return kNotAvailable;
  }
  return tree && q.shape->ranks_per_domain > kMostHeads ? kNotAvailable : NvlsTimeUs(q, tree);
}

}  // namespace orrery::collective
