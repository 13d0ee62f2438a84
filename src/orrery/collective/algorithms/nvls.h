// NVLS: how a plan's channel moves data through the NVLink switch, for both readings.
//
// A payload is cut among `heads`, GPUs of the domain. Per chunk of a head: every GPU copies its
// part into a buffer that the switch can see (scatter); the head loads the sum of all of them, each
// of which the switch pulls over that GPU's NVLink once, and stores it to all, over its own NVLink
// once and over everyone's the other way (reduce); every GPU copies it to its destination (gather).
// So over NVLink a GPU sends S (1 + 1/heads) of an all-reduce of S, and receives as much; of a
// reduce-scatter S and S/heads; of an all-gather S/heads and S.
//
// NVLSTree does this in every domain, and between the heads of one rail a double binary tree.
// Source: NVIDIA/nccl src/device/all_reduce.h, src/transport/nvls.cc, release 2.22.3.
#pragma once

#include <cstdint>

#include "orrery/collective/collective.h"

namespace orrery::collective::nvls {

// Lanes of a channel. Without trees the reducing lane stores what it has loaded.
enum Lane : int { kScatter, kReduce, kBroadcast, kGather, kLanes };

// Streams of a copy, and of a load from the switch with the store of its result.
inline constexpr int kCopyStreams = 2;
// What a warp loads before it stores: 8 times 16 bytes a thread.
inline constexpr std::int64_t kHunk = 4096;

// A CTA's 20 warps by lane, of GPUs that are not the root of their tree.
constexpr int Warps(const Plan& plan, Lane lane) {
  if (plan.algorithm == Algorithm::kNvlsTree) {
    constexpr int kTree[kLanes] = {6, 5, 4, 5};
    return kTree[lane];
  }
  if (plan.collective == graph::Collective::kAllGather) return lane == kGather ? 16 : 4;
  const int reduce = plan.shape.ranks <= 6 ? 7 : 5;
  if (lane == kReduce) return reduce;
  if (plan.collective == graph::Collective::kReduceScatter) return 20 - reduce;
  return (20 - reduce + (lane == kScatter ? 1 : 0)) / 2;
}
// Bytes that each warp of a lane moves of so many, in whole hunks.
constexpr std::int64_t OfWarp(const Plan& plan, Lane lane, std::int64_t bytes) {
  const std::int64_t pass = Warps(plan, lane) * kHunk;
  return (bytes + pass - 1) / pass * kHunk;
}

constexpr bool Scatters(graph::Collective c) { return c != graph::Collective::kAllGather; }
constexpr bool Gathers(graph::Collective c) { return c != graph::Collective::kReduceScatter; }
// Hunks that follow one another for the least data: a GPU scatters to and gathers from every head,
// which reduces one.
constexpr int Hunks(const Plan& plan) {
  return 1 + plan.heads * (Scatters(plan.collective) + Gathers(plan.collective));
}

}  // namespace orrery::collective::nvls
