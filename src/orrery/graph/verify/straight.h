// Whether a graph keeps to what the engine's fast machine assumes of every rank. Verified, never
// assumed: any other graph runs on the general machine.
//
// A straight program is issued by its host in order; its kernels run on the compute stream, its
// communications on streams of their own (1 to 255) and wait for the compute stream, which alone
// waits for their events. Its groups are the roles' slots, its peers the neighbours' slots, tags 0
// or 1; no size differs from rank to rank; nothing depends, holds, records, or is timed. Its blocks
// have at most 65,535 operations, its programs 32,767 events.
#pragma once

#include <string>

#include "orrery/graph/graph.h"

namespace orrery::graph {

inline constexpr int kStraightTags = 2;  // forward and backward

// Why it is not, naming block and operation; empty: it is straight. O(operations of blocks).
// REQUIRES: Verify(graph).ok().
std::string WhyNotStraight(const Graph& graph);

}  // namespace orrery::graph
