// The fixed course of a block that meets nobody: a small run of the engine's rules for one rank
// alone.
#pragma once

#include "orrery/engine/prices.h"

namespace orrery::engine {

// Sets price->inlinable and the fields under it. The course found here is, to the picosecond, the
// one that the main loop produces for a rank with no other communication in flight. O(kernels).
void InlineBlock(const View& view, SimTime launch, BlockPrice* price);

// Fingerprint constants of a communication: arrival, start and end enter with these weights.
inline constexpr std::uint64_t kArrivalWeight = 0x9e3779b97f4a7c15ULL;
inline constexpr std::uint64_t kStartWeight = 0xc2b2ae3d27d4eb4fULL;
inline constexpr std::uint64_t kEndWeight = 0x165667b19e3779f9ULL;

}  // namespace orrery::engine
