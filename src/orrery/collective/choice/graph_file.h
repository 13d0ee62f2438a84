// NCCL's graphs as it dumps and reads them (NCCL_GRAPH_DUMP_FILE, NCCL_GRAPH_FILE): what its search
// would else find.
//
//   <graphs version="1">
//     <graph id="0" pattern="4" crossnic="0" nchannels="2" speedintra="40" speedinter="24"
//            latencyinter="0" typeintra="NVL" typeinter="PXB" samechannels="1">
//       <channel><net dev="0"/><gpu dev="0" rank="0"/> … <net dev="0"/></channel>
//
// Graph 0 is of rings, 1 of trees; 2 and 4 (CollNet) and 3 (NVLS) are checked and not used. Speeds
// are GB/s a channel, latencies microseconds; `dev` is hexadecimal, above 56 bits the host's number
// among hosts that are one to NCCL. A file is of one host: all hosts take it alike.
//
// It stands for communicators that hold its GPUs in every NVLink domain. NCCL stops with an error
// at any other one; here those are searched for, and the plan's note says so. Source: NVIDIA/nccl
// src/graph/search.cc, src/graph/xml.cc, release 2.30.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"

namespace orrery::collective {

// How two GPUs, or a GPU and its NIC, are joined; best first, as NCCL ranks them.
enum class PathType : std::uint8_t {
  kLocal,
  kNvlink,
  kNvlinkThroughGpu,
  kChipToChip,
  kOneBridge,
  kBridges,
  kChipToNic,
  kPxn,
  kHostBridge,
  kSystem,
  kNet,
  kNone
};

struct GraphChannel {
  std::vector<int> gpus;  // of the host, in order
  std::vector<int> nets;  // where it comes in and where it leaves; empty: one host
};
struct Graph {
  bool given = false;
  double intra_GBps = 0, inter_GBps = 0, latency_us = 0;
  PathType intra = PathType::kNvlink, inter = PathType::kOneBridge;
  bool plain = false;  // trees: a chain from one NIC's GPU, not spread over two (pattern 3)
  std::vector<GraphChannel> channels;
};
struct Graphs {
  Graph ring, tree;
  bool others = false;     // CollNet's or NVLS's stand in the file, too
  std::uint64_t hash = 0;  // of the file
  bool given() const { return ring.given || tree.given; }
  // The GPUs of a host that take part.
  std::size_t gpus() const {
    const Graph& first = ring.given ? ring : tree;
    return first.channels.empty() ? 0 : first.channels[0].gpus.size();
  }
};

// Errors name file:line, attribute, value and what is valid.
Result<Graphs> ParseGraphFile(std::string_view text, const std::string& name);

}  // namespace orrery::collective
