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

// A CTA's warps by lane: reduce 5 to 7, scatter 8, gather 7 of 20 (all_reduce.h). The rate of a
// channel (white_box.cc) is of one whose 16 warps do one thing.
inline constexpr double kWarpsShare = 16.0 / 7;
// Streams of a copy, and of a load from the switch with the store of its result.
inline constexpr int kCopyStreams = 2;

constexpr bool Scatters(graph::Collective c) { return c != graph::Collective::kAllGather; }
constexpr bool Gathers(graph::Collective c) { return c != graph::Collective::kReduceScatter; }

}  // namespace orrery::collective::nvls
