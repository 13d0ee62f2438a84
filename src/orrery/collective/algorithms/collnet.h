// CollNet: how a plan's channel moves data where the network's switches reduce (SHARP), for both
// readings.
//
// A payload is cut among heads, GPUs beside NICs; what heads of one rail hold is summed by the
// switches above them and comes back to all of them: a NIC sends and receives what its heads have,
// once. What lies between a head and the other GPUs of its domain:
//   CollNetDirect  every GPU writes its part to each head over NVLink (scatter), the head adds them
//                  and sends (reduce), hands what returns on to all (broadcast), who copy it to its
//                  place (gather)
//   NVLS           the same through the NVLink switch, which adds and multicasts (nvls.h)
//   CollNetChain   a channel's chain of the domain, as in a tree: sums go up to its one head, the
//                  result comes down
//
// An all-gather or reduce-scatter (CollNetDirect, NVLS) needs every GPU to be a head. A rail's part
// is what its heads have, domain by domain: of each chunk the domain that has it sends, or gets the
// sum (Owned), the others say and hear that they are there. All of a rail goes through the NIC one
// way, a domain's own the other way. An all-gather's head sends from its buffer, and hands on what
// the switches multicast; a reduce-scatter's sends sums, and keeps what returns.
//
// The sum over domains stands with the head of the first one: it takes a message from every head of
// the rail and answers each, at no cost of its own. Only the first domain under a leaf sends beyond
// it and hears from beyond it: the leaf adds up and copies for the others.
// Source: NVIDIA/nccl src/device/{all_reduce,all_gather,reduce_scatter}.h, src/graph/connect.cc,
// src/transport/coll_net.cc, release 2.30; SHARP: Graham et al., COMHPC 2016.
#pragma once

#include <algorithm>
#include <cstdint>

#include "orrery/collective/algorithms/nvls.h"
#include "orrery/collective/collective.h"
#include "orrery/collective/white_box.h"

namespace orrery::collective::collnet {

// Lanes of a channel; a chain has but those that go up, come down and sum.
enum Lane : int { kScatter, kReduce, kBroadcast, kGather, kSum, kLanes };
enum ChainLane : int { kUp, kDown, kChainSum, kChainLanes };

// CollNetDirect runs in domains of so many GPUs at most (NCCL_MAX_DIRECT_ARITY + 1).
inline constexpr int kMostRanks = 8;

constexpr bool Direct(const Plan& plan) { return plan.algorithm == Algorithm::kCollNetDirect; }

// A CTA's warps that copy, by lane (of 20; some only wait or flag). What a gather's heads send is
// their reduce lane's, what a reduce-scatter's get their broadcast lane's.
constexpr int Warps(const Plan& plan, Lane lane, bool head) {
  constexpr int kNvls[3][4] = {{8, 3, 2, 7}, {0, 6, 6, 8}, {8, 6, 6, 0}};
  constexpr int kHead[3][4] = {{3, 8, 3, 3}, {0, 4, 8, 8}, {8, 8, 4, 0}};           // among others
  constexpr int kOnlyHead[3][4] = {{0, 11, 6, 0}, {0, 10, 10, 0}, {0, 10, 10, 0}};  // of its domain
  constexpr int kOther[] = {9, 0, 0, 6};
  const int which = !nvls::Scatters(plan.collective) ? 1 : !nvls::Gathers(plan.collective) ? 2 : 0;
  if (!Direct(plan)) return kNvls[which][lane];
  if (!head) return kOther[lane];
  return (plan.heads == 1 ? kOnlyHead : kHead)[which][lane];
}
// Streams: a head that is not helped by the switch reads or writes one for each GPU.
constexpr int Streams(const Plan& plan, Lane lane) {
  const bool fans = (lane == kReduce && nvls::Scatters(plan.collective)) ||
                    (lane == kBroadcast && nvls::Gathers(plan.collective));
  return Direct(plan) && fans ? 1 + plan.shape.ranks_per_domain : nvls::kCopyStreams;
}
// Bytes that each warp moves, in whole hunks.
constexpr std::int64_t OfWarp(const Plan& plan, Lane lane, bool head, std::int64_t bytes) {
  const std::int64_t pass = Warps(plan, lane, head) * nvls::kHunk;
  return (bytes + pass - 1) / pass * nvls::kHunk;
}
// Parts of heads that a GPU writes or copies: CollNetDirect leaves a head's own in its place.
constexpr int Parts(const Plan& plan, bool head) {
  return plan.heads - (Direct(plan) && head ? 1 : 0);
}

// A channel's chunk on the rail of an all-gather or a reduce-scatter: the rail's bytes stand domain
// by domain, `part` of each, a round's chunks channel by channel. Rounds count from 0, the smaller
// last one is number pieces.rounds.
struct OnRail {
  std::int64_t begin = 0, size = 0, part = 1;
  std::int64_t first() const { return begin / part; }  // domain of those whose it is
  std::int64_t last() const { return (begin + std::max<std::int64_t>(size, 1) - 1) / part; }
  // What of it is one domain's.
  std::int64_t Of(std::int64_t domain) const {
    const std::int64_t from = std::max(begin, domain * part);
    return std::max<std::int64_t>(0, std::min(begin + size, (domain + 1) * part) - from);
  }
};
constexpr OnRail ChunkOnRail(const Plan& plan, const model::Pieces& pieces, int channel,
                             std::int64_t round) {
  const std::int64_t whole = pieces.rounds * pieces.full.bytes;  // of a channel
  const bool full = round < pieces.rounds;
  OnRail chunk;
  chunk.size = full ? pieces.full.bytes : pieces.tail.bytes;
  chunk.begin = full ? (round * plan.channels + channel) * chunk.size
                     : whole * plan.channels + channel * chunk.size;
  const std::int64_t rail = (whole + pieces.tail.bytes) * plan.channels;
  chunk.part = std::max<std::int64_t>(1, (rail + plan.shape.domains - 1) / plan.shape.domains);
  return chunk;
}

}  // namespace orrery::collective::collnet
