// NCCL's search for rings and trees, by the tables of its releases (releases.h): how many channels,
// and how much each carries. Bandwidths in GB/s = 1e9 byte/s.
// Sources: NVIDIA/nccl src/graph/search.cc, src/graph/connect.cc.
#pragma once

#include <span>

#include "orrery/cluster/cluster.h"
#include "orrery/collective/choice/releases.h"
#include "orrery/collective/collective.h"

namespace orrery::collective::nccl {

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

// Channels of NVLS and NVLSTree.
int NvlsChannels(const cluster::Spec& spec, const GroupShape& shape,
                 const Environment& environment);

// The highest bandwidth step of a search, inside one domain or between several, that `limit`
// carries.
double SearchStep(const Generation& gpu, bool inter, double limit_GBps);

// Effective rate of a GPU's NVLinks and of its NIC, as NCCL's topology has them. The first is of
// PCIe where peers go over it; both are then those of the farthest ways that `shape` takes.
double NvlinkGBps(const cluster::Spec& spec, const GroupShape& shape, const Release& release);
double NicGBps(const cluster::Spec& spec, const GroupShape& shape);

}  // namespace orrery::collective::nccl
