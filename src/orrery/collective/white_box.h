// The physical model behind both readings of a plan: what one step of one channel costs.
//
// A CTA moves a slice through its registers (work: `sync` plus bytes over its rate), then the
// message is posted (fence and flag, or the network proxy: `post`), then it crosses the links. All
// else — rings, trees, pipelines — follows from the plan. Constants, their meaning and sources:
// docs/collectives.md. Times are picoseconds in double; only + - * / are used.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "orrery/cluster/cluster.h"
#include "orrery/collective/collective.h"

namespace orrery::collective::model {

// One kind of connection: inside an NVLink domain, or through NICs.
struct Edge {
  double latency = 0;         // Σ of the links' latencies
  double per_byte = 0;        // of the slowest link
  double mean_per_byte = 0;   // of a connection's own slowest link, where they differ (PCIe)
  double other_per_byte = 0;  // Σ over the other links, for the head that is cut through
  double mtu = 0;             // bytes of that head at most
  std::int64_t payload = 1, header = 0;
  double post = 0;
  double diluted = 1;  // bytes that the link is busy for, for a byte of message (LL128, NVLink)
  // Behind a message of more than `unsent_above` bytes: what the link would have sent while it
  // idles.
  std::int64_t unsent = 0, unsent_above = 0;

  std::int64_t Unsent(std::int64_t bytes) const { return bytes > unsent_above ? unsent : 0; }
  // As messages and flows of the network have it.
  std::int64_t Message(std::int64_t bytes) const {
    return static_cast<std::int64_t>(static_cast<double>(bytes) * diluted);
  }
  // With packet headers.
  std::int64_t Packed(std::int64_t bytes) const {
    return bytes + (bytes + payload - 1) / payload * header;
  }
  // What of the link a message takes.
  std::int64_t Wire(std::int64_t bytes) const { return Packed(Message(bytes) + Unsent(bytes)); }
  // On the slowest link.
  double Serial(std::int64_t bytes) const { return static_cast<double>(Wire(bytes)) * per_byte; }
  // From the end of work to the arrival.
  double Delay(std::int64_t bytes) const {
    const auto wire = static_cast<double>(Wire(bytes));
    return post + latency + wire * mean_per_byte + std::min(mtu, wire) * other_per_byte;
  }
};

struct WhiteBox {
  double setup = 0;     // launch: from the last arrival to the first step
  double sync = 0;      // per slice, holds the lane
  double per_byte = 0;  // one stream (a read or a write) of a CTA; a copy or a reduction has
                        // kStreams of them at the channel's rate
  double in_step = 1;   // a ring's first round: a send's bytes take so many times `per_byte`
  Edge intra, inter;
  Edge wrap;  // the crossing that closes a ring; `inter` unless it leaves its rail there
  std::int64_t switch_extra = 0;  // NVLS: bytes more on NVLink for 1000 of data
};

// A ring step reads its own buffer and the received slice and writes one: the rate that NCCL's
// tables give is of such a step. Each further source or destination adds one stream.
inline constexpr int kStreams = 3;
// The head of a domain passes up and down all the time, each with half of its CTA, whose 18 warps
// work where a ring's CTA has 16 (NCCL's runTreeSplit: 384 and 256 threads, a warp of each posts).
// So a stream takes so many times what it takes a ring. Members of the chain wait for the head, and
// the root turns round in one go. What LL and LL128 take is in their rate.
// A half whose other way idles is not slowed by it: before the first chunk comes down, which is a
// chunk's time for each edge up and down the tree and one to turn, and as long at the end.
constexpr double TreeHeadShare(const Plan& plan) {
  if (plan.protocol != Protocol::kSimple) return 1;
  const double chunks = std::max(
      1.0, static_cast<double>(plan.bytes) / plan.channels / static_cast<double>(plan.chunk_bytes));
  const int levels = std::bit_width(static_cast<unsigned>(std::max(0, plan.shape.domains - 1)));
  const double both = std::max(0.0, 1 - (2 * levels + 1) / chunks);
  return 1 + both * (16.0 / 9 - 1);
}

WhiteBox MakeWhiteBox(const Plan& plan, const cluster::Spec& spec);

// Data bytes to message bytes: LL sends 8 in 16, LL128 120 in 128.
constexpr std::int64_t OnWire(Protocol protocol, std::int64_t data) {
  switch (protocol) {
    case Protocol::kLL:
      return (data + 7) / 8 * 16;
    case Protocol::kLL128:
      return (data + 119) / 120 * 128;
    case Protocol::kSimple:
      return data;
  }
  return data;
}

// LL, LL128: what the threads of a CTA read or write at once, 8 B of data each or 1,920 B a warp.
// In an NVLink domain warps do not wait for each other: two halves stand for all of them.
constexpr std::int64_t PassBytes(const Plan& plan) {
  const std::int64_t threads = plan.threads;
  const std::int64_t all = plan.protocol == Protocol::kLL ? threads * 8 : threads / 32 * 1920;
  return plan.shape.ranks_per_domain > 1 ? all / 2 : all;
}

constexpr bool IsRotating(graph::Collective c) {
  return c == graph::Collective::kAllReduce || c == graph::Collective::kAllGather ||
         c == graph::Collective::kReduceScatter;
}
// Groups of sends and receives between pairs.
constexpr bool IsExchange(graph::Collective c) {
  return c == graph::Collective::kAllToAll || c == graph::Collective::kGather ||
         c == graph::Collective::kScatter;
}
// With the network's switches (collnet.h); NVLS over several domains, too.
constexpr bool IsCollNet(const Plan& plan) {
  return plan.algorithm == Algorithm::kCollNetDirect ||
         plan.algorithm == Algorithm::kCollNetChain ||
         (plan.algorithm == Algorithm::kNvls && plan.shape.domains > 1);
}
constexpr bool IsNvls(const Plan& plan) {
  return (plan.algorithm == Algorithm::kNvls || plan.algorithm == Algorithm::kNvlsTree) &&
         !IsCollNet(plan);
}
// Chains and trees of LL and LL128: a member passes lines on as they come, what its CTA's threads
// read at once, not a whole chunk.
constexpr bool PassesLines(const Plan& plan) {
  const bool chain = plan.algorithm == Algorithm::kRing && !IsRotating(plan.collective);
  return plan.protocol != Protocol::kSimple && (plan.algorithm == Algorithm::kTree || chain);
}
// Over NVLink: what the switch reduces and multicasts takes more than its bytes.
constexpr std::int64_t OnSwitch(const WhiteBox& box, std::int64_t data) {
  return data + (data * box.switch_extra + 999) / 1000;
}

// One channel's share of the data (exchanges, PAT: of one rank's part), cut into rounds (a ring's
// loop; elsewhere a chunk) of equal chunks, the last of them smaller, and each chunk into at most
// two slices.
struct Chunk {
  std::int64_t bytes = 0;
  std::int64_t slice = 0;  // of all slices but the last
  int slices = 0;
  std::int64_t last() const { return bytes - (slices - 1) * slice; }
};
struct Pieces {
  std::int64_t share = 0;   // of one channel
  std::int64_t rounds = 0;  // of `full`
  Chunk full, tail;         // tail.slices == 0: none
};
Pieces Cut(const Plan& plan);
// Of one message of an exchange. O(1).
Pieces CutMessage(const Plan& plan, std::int64_t bytes);

// Steps of one member in a round of a ring, and messages it sends: 2R - 1 and 2R - 2 for
// all-reduce, R and R - 1 for all-gather and reduce-scatter.
constexpr std::int64_t RingSteps(const Plan& plan) {
  const std::int64_t ranks = plan.shape.ranks;
  return plan.collective == graph::Collective::kAllReduce ? 2 * ranks - 1 : ranks;
}

}  // namespace orrery::collective::model
