// NCCL's own tuning tables: what its choice of algorithm and protocol is made from. They decide,
// they do not price (white_box.h prices).
//
// Sources: NVIDIA/nccl src/graph/tuning.cc, src/graph/search.cc, one tag of each release from 2.10
// to 2.30 and every tag from 2.27.3 on. Latencies in microseconds, bandwidths in GB/s = 1e9 byte/s,
// both as NCCL writes them.
#pragma once

#include <array>
#include <cstdint>

#include "orrery/cluster/cluster.h"
#include "orrery/collective/collective.h"

namespace orrery::collective::nccl {

using ByProtocol = std::array<double, 3>;  // LL, LL128, Simple
struct Latencies {
  ByProtocol base[2];  // by Algorithm (tree, ring)
  ByProtocol nvlink[2];
  ByProtocol pci[2];
  ByProtocol net[2];
  double nvls_nvlink, nvls_net, nvls_tree_net;                     // Simple only
  double collnet_direct_nvlink = 3.7, collnet_chain_nvlink = 2.8;  // the same in all of them
  double collnet_direct_net = 31, collnet_chain_net = 30;
};
// By release: up to 2.17, 2.18, to 2.20, to 2.22, to 2.28.8, later.
const Latencies& LatenciesOf(int version);

// Columns: one domain, two, more.
using BySpan = std::array<double, 3>;
struct Bandwidths {
  BySpan ring_ll128, tree_ll128, tree_simple, nvls_tree;  // per channel
  double nvls_efficiency;
};
// By release for Blackwell alone: twice Hopper's when it came (2.25), measured ones from 2.28 on.
const Bandwidths& BandwidthsOf(cluster::Arch arch, int version);
// What a ring's LL gets of all channels at most, beside MaxLL.
double RingShareOfLL(graph::Collective collective, int domains, int version);
// All channels together. One domain: by GPU; several: by CPU vendor.
double MaxLL(cluster::Arch arch, bool cpu_is_amd, int domains, int version);

// Correction of the tree's bandwidth by size: index log2(bytes / 64), 0 to 23.
double TreeCorrection(Protocol protocol, int log_size);

// What the search for rings and trees ends with.
struct Channels {
  int graph = 1;              // channels of the graph, after duplication
  double bandwidth_GBps = 0;  // of each
  int channels = 1;           // of the communicator
  double tree_GBps = 0;       // of a channel of the trees' graph
  bool plain_trees = false;   // each of one NIC and GPU, not spread over the first two
  // What a file of graphs says beside (graph_file.h).
  double latency_us = 0;    // of a crossing more
  bool near_nvlink = true;  // GPUs of a domain reach each other by NVLink
  bool ll128 = true;        // no path is worse than it allows
};
// Whether a communicator takes the graphs of a file: its domains are the file's GPUs.
bool Takes(const Graphs& graphs, const GroupShape& shape);
Channels SearchChannels(const cluster::Spec& spec, const GroupShape& shape,
                        const Environment& environment);

// Channels of NVLS and NVLSTree: by architecture and release; the tuning of several nodes on
// Blackwell came with 2.27.
int NvlsChannels(const cluster::Spec& spec, const GroupShape& shape,
                 const Environment& environment);

// The highest bandwidth step of a search, inside one domain or between several, that `limit`
// carries.
double SearchStep(cluster::Arch arch, bool inter, int version, double limit_GBps);

// Effective rate of a GPU's NVLinks and of its NIC, as NCCL's topology has them. The first is of
// PCIe where peers go over it; both are then those of the farthest ways that `shape` takes.
double NvlinkGBps(const cluster::Spec& spec, const GroupShape& shape, int version);
double NicGBps(const cluster::Spec& spec, const GroupShape& shape);

}  // namespace orrery::collective::nccl
