// PAT, parallel aggregated trees: all-gather and reduce-scatter of one GPU a domain in log2(ranks)
// dimensions.
//
// A block is what one rank has of a channel's loop. Block s of an all-gather is the data of the
// rank s places before; a rank gets it along the bits of s, from the highest to the lowest, each
// over the connection of that dimension, 2^d places on. Blocks whose s differ in the upper bits
// alone go together: `blocks` of them, as many as fill eight buffer slots. First come the upper
// dimensions (1, 2, 4 … blocks), then, in the order of a depth-first walk over the lower bits, one
// stage for each value, whose messages are waited for before the next stage can pass them on. A
// message holds `per_message` blocks, what fits into one slot: small payloads take log2(ranks)
// messages in all. A reduce-scatter is the same backwards in time. Ranks all do the same.
// Source: NVIDIA/nccl src/include/collectives.h (PatAGAlgorithm, PatRSAlgorithm), release 2.30.7.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "orrery/collective/collective.h"
#include "orrery/collective/white_box.h"

namespace orrery::collective::pat {

// One action of a lane within a loop. Dimensions: -1 for none.
struct Action {
  std::int8_t send = -1, receive = -1;
  std::int32_t send_blocks = 0, receive_blocks = 0;
};

struct Pattern {
  int ranks = 1;
  int dims = 0;         // ceil(log2(ranks))
  int blocks = 1;       // of a stage at most; a power of two
  int per_message = 1;  // the same
  int values = 1;       // of the lower bits
  bool backwards = false;

  // REQUIRES: plan.algorithm is kPat.
  explicit Pattern(const Plan& plan)
      : ranks(plan.shape.ranks), backwards(plan.collective == graph::Collective::kReduceScatter) {
    dims = std::bit_width(static_cast<unsigned>(ranks - 1));
    const std::int64_t share = std::max<std::int64_t>(1, model::Cut(plan).share);
    while (plan.chunk_bytes / (share * blocks) >= 2 && blocks < ranks / 2) blocks *= 2;
    per_message = blocks;
    for (int slots = plan.credits; slots > 1 && blocks < ranks / 2; slots /= 2) blocks *= 2;
    values = (1 << dims) / blocks;
  }
  int upper() const { return std::bit_width(static_cast<unsigned>(blocks)) - 1; }
  // Stage `j` of the upper dimensions goes over dimension dims - 1 - j.
  int UpperBlocks(int j) const {
    const int step = (1 << dims) >> (j + 1);
    return ((ranks - 1) / step + 1) / 2;
  }
  int Blocks(int value) const { return value < ranks ? (ranks - 1 - value) / values + 1 : 0; }
  int Messages(int count) const { return (count + per_message - 1) / per_message; }

  // A loop's actions. O(ranks / blocks * messages of a stage).
  std::vector<Action> Actions() const;
};

// The plan's time without set-up, by one member's lanes: all members do the same at the same times,
// so what it sends is what it receives. Four loops and the last, smaller one are gone through, what
// lies between grows by the fourth one's time. Once a plan (Plan::phases). O(ranks * channels
// squared).
SimTime Play(const Plan& plan, const model::WhiteBox& box);

}  // namespace orrery::collective::pat
