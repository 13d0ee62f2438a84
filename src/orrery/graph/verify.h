// What every graph must satisfy before anything runs it: the invariants of graph.h.
//
// kQuick runs on every plan: all indices in range; streams, batches, blocking and events of blocks;
// every waited event recorded before in its program; every slot that a program uses bound; groups
// non-empty, of distinct ranks that name them back; the members of a group agree on the ordered
// list of their collectives; sends match receives per (pair, tag) in order and bytes; blocks
// sealed. kFull, for graphs from outside and in tests, adds: content hashes recomputed, descriptors
// sane, buffers allocated and freed as their lifetimes say, numeric slots resolved rank by rank
// before collectives and messages are compared, logical ranks unique.
//
// Sequences are compared by 64-bit polynomial digests (equal sequences cut into blocks differently
// have equal digests; unequal ones collide once in about 2^60 pairs). Where a block's sizes are
// numeric slots, kQuick compares kinds and types only.
//
// Cost of kQuick: O(operations of blocks + calls + ranks · slots); about 50 us for 1,024 ranks and
// 8 programs of 600 calls. kFull: O(operations of programs · layers), and per rank if slots hold
// sizes.
#pragma once

#include <cstdint>

#include "orrery/base/status.h"
#include "orrery/graph/graph.h"

namespace orrery::graph {

enum class VerifyLevel : std::uint8_t { kQuick, kFull };

// The first violation, naming program, call, block and operation.
Status Verify(const Graph& graph, VerifyLevel level = VerifyLevel::kQuick);

}  // namespace orrery::graph
