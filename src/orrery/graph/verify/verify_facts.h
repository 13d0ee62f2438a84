// Internal to verify: what a block or a program does to groups, peers and events, as digests.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "orrery/graph/graph.h"

namespace orrery::graph::verify {

// Digest of a sequence: a polynomial in an odd base, modulo 2^64, so that the digest of a
// concatenation follows from those of its parts.
struct Sequence {
  static constexpr std::uint64_t kBase = 0x9e3779b97f4a7c15ULL;
  std::uint64_t hash = 0;
  std::uint64_t power = 1;

  static Sequence Of(std::uint64_t element) { return {element, kBase}; }
  void Append(const Sequence& other) {
    hash = hash * other.power + other.hash;
    power *= other.power;
  }
  friend bool operator==(const Sequence&, const Sequence&) = default;
};

using GroupSequences = std::array<Sequence, kGroupSlots>;

// Messages are kept per direction, tag and non-empty set of peer slots: two slots may name one
// rank, whose messages then come in the order of both together.
inline constexpr std::size_t kPeerSets = std::size_t{1} << kPeerSlots;
constexpr std::size_t MessageIndex(bool send, std::size_t tag, std::size_t set) {
  return (2 * tag + (send ? 1 : 0)) * kPeerSets + set;
}

// What a block adds to one of a program's message sequences.
struct Messages {
  std::size_t index = 0;
  Sequence sequence;
};
struct EventUse {
  std::uint32_t op = 0;
  std::int32_t event = kNoEvent;
  bool wait = false;
};

struct BlockFacts {
  std::uint32_t groups = 0, peers = 0;  // slots used, as bits
  GroupSequences collectives;
  std::vector<Messages> messages;  // one entry an index
  std::vector<EventUse> events;
  // The last `repeat` asked for.
  std::uint16_t repeat = 1;
  GroupSequences repeated;
};

struct ProgramFacts {
  std::uint32_t groups = 0, peers = 0;
  GroupSequences collectives;
  std::vector<Sequence> messages;  // by MessageIndex; empty without messages
};

// REQUIRES: the block is straight (straight.h) and its indices are in range.
BlockFacts FactsOf(const Block& block);
ProgramFacts FactsOf(const Program& program, std::span<BlockFacts> blocks, std::size_t tags);

constexpr bool IsShaped(const Call& call) {
  return call.repeat > 0 && call.microbatch >= -1 && call.chunk >= 0 && call.first_layer >= 0;
}

// The events that a program has recorded up to a call; it may name 2^31 of them.
using RecordedEvents = std::unordered_set<std::int32_t>;
// A call has its shape, and every event that it waits for was recorded before; adds those that it
// records.
Status CheckCall(const Program& program, const Call& call, std::span<const EventUse> uses,
                 RecordedEvents* recorded);

// Members of groups, and peers, agree.
struct Matching {
  const Graph& graph;
  std::span<const ProgramFacts> facts;  // by program
  std::size_t tags = 0;

  const ProgramFacts& of(std::size_t rank) const {
    return facts[graph.bindings[rank].program.index()];
  }
};
Status MatchGroups(const Matching& matching);
Status MatchPeers(const Matching& matching);

// The size of the table that the index of an operation of `kind` points into; 0: it has none.
std::size_t TableOf(const Block& block, OpKind kind);

// An order in which all operations may run that streams in order and dependencies let run; shorter
// than the block where some wait for each other. O(operations + dependencies).
std::vector<std::uint32_t> RunnableOrder(const Graph& graph, const Block& block);

// A block alone: indices, streams, dependencies, group calls.
Status CheckBlock(const Graph& graph, const Block& block);
// Whatever the blocks are: programs, bindings and groups by the rules of graph.h.
Status CheckGeneral(const Graph& graph, bool fully);
Status VerifyFully(const Graph& graph, bool hashes);

// "block 3 'layer.forward'", "program 1 'stage 1'", … for messages.
std::string NameOf(const Graph& graph, NameId name);
std::string Where(const Graph& graph, BlockId block);
std::string Where(const Graph& graph, ProgramId program);
std::string Where(const Graph& graph, ProgramId program, const Call& call, std::size_t number,
                  bool prologue);

}  // namespace orrery::graph::verify
