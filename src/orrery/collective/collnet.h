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
// The sum over domains stands with the head of the first one: it takes a message from every head of
// the rail and answers each, at no cost of its own. Only the first domain under a leaf sends beyond
// it and hears from beyond it: the leaf adds up and copies for the others.
// Source: NVIDIA/nccl src/device/all_reduce.h, src/graph/connect.cc, src/transport/coll_net.cc,
// release 2.30; SHARP: Graham et al., COMHPC 2016.
#pragma once

#include <cstdint>

#include "orrery/collective/collective.h"
#include "orrery/collective/nvls.h"
#include "orrery/collective/white_box.h"

namespace orrery::collective::collnet {

// Lanes of a channel; a chain has but those that go up, come down and sum.
enum Lane : int { kScatter, kReduce, kBroadcast, kGather, kSum, kLanes };
enum ChainLane : int { kUp, kDown, kChainSum, kChainLanes };

// CollNetDirect runs in domains of so many GPUs at most (NCCL_MAX_DIRECT_ARITY + 1).
inline constexpr int kMostRanks = 8;

constexpr bool Direct(const Plan& plan) { return plan.algorithm == Algorithm::kCollNetDirect; }

// A CTA's warps that copy, by lane (of 20; some only wait or flag).
constexpr int Warps(const Plan& plan, Lane lane, bool head) {
  constexpr int kNvls[] = {8, 3, 2, 7};
  constexpr int kHead[] = {3, 8, 3, 3};       // among others
  constexpr int kOnlyHead[] = {0, 11, 6, 0};  // of its domain
  constexpr int kOther[] = {9, 0, 0, 6};
  if (!Direct(plan)) return kNvls[lane];
  return (!head ? kOther : plan.heads == 1 ? kOnlyHead : kHead)[lane];
}
// Streams: a head that is not helped by the switch reads or writes one for each GPU.
constexpr int Streams(const Plan& plan, Lane lane) {
  const bool fans = Direct(plan) && (lane == kReduce || lane == kBroadcast);
  return fans ? 1 + plan.shape.ranks_per_domain : nvls::kCopyStreams;
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

}  // namespace orrery::collective::collnet
