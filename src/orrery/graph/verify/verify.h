// What every graph must satisfy before anything runs it: the invariants of graph.h.
//
// Every level: all indices in range; streams, holds, dependencies (no cycle of them), group calls
// and events of blocks; every waited event recorded before in its program; every slot and column
// that a program uses bound, and of a rank that is a member; shares that fit their groups; blocks
// sealed.
// Straight graphs (graph/verify/straight.h), at every level: the members of a group agree on the
// ordered list of their collectives and on the stream of each, sends match receives per (pair,
// tag) in order and bytes. Of other graphs, which may take messages from anybody and sizes from
// columns, kRead and kFull compare how many collectives of which kind the members of a group
// have, in order where a host issues them all; sizes and messages are compared when they run.
// kRead, for readers that have just sealed the blocks, adds: descriptors sane, communications of at
// most 2^52 bytes, buffers allocated
// and freed as their lifetimes say, logical ranks unique. kFull, for graphs from elsewhere and
// in tests, adds: content hashes recomputed.
//
// Sequences are compared by 64-bit polynomial digests (equal sequences cut into blocks differently
// have equal digests; unequal ones collide once in about 2^60 pairs).
//
// Cost of kQuick: O(operations of blocks + calls + ranks · slots); about 50 us for 1,024 ranks and
// 8 programs of 600 calls. kFull: O(operations of programs · layers).
#pragma once

#include <cstdint>

#include "orrery/base/status.h"
#include "orrery/graph/graph.h"

namespace orrery::graph {

enum class VerifyLevel : std::uint8_t { kQuick, kRead, kFull };

// The first violation, naming program, call, block and operation.
Status Verify(const Graph& graph, VerifyLevel level = VerifyLevel::kQuick);

}  // namespace orrery::graph
