// Ranks' operations, file by file, as programs of a graph: ranks whose operations differ in nothing
// but numbers share a block.
//
// An importer gives each rank a block whose amounts (a time's ps, a communication's bytes) and
// peers it leaves out and hands over beside it. Equal blocks (Block::content_hash) become one; a
// number that all of its ranks have alike stands in the block, others become a column, a peer that
// all count alike from their own rank an offset.
//
// Cost: O(operations); memory one block a distinct structure, 8 bytes a number that differs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "orrery/graph/graph.h"

namespace orrery::workload {

// One number of an operation over the ranks of a structure: all the same, or by row.
struct RankNumbers {
  std::int64_t first = 0;
  std::vector<std::int64_t> rows;  // empty while all are `first`

  void Add(std::int64_t value, std::size_t row);
  graph::Quantity Amount(graph::Columns* columns) const;
  // Where the numbers are offsets of peers, counted round `world` ranks.
  graph::Peer Peer(std::span<const std::uint32_t> ranks, std::int64_t world,
                   graph::Columns* columns) const;
};

// Adds a job that runs once, its ranks, and the group of all of them in slot kPp; programs follow.
// REQUIRES: an empty graph.
void AddWorld(const std::string& name, std::uint32_t ranks, graph::Graph* graph);

// Adds the block, and a program that calls it once, for these ranks; row i is ranks[i]'s.
void AddRankProgram(graph::Block&& block, graph::Columns&& columns,
                    std::span<const std::uint32_t> ranks, graph::Graph* graph);

struct RankOps {
  static constexpr std::int64_t kNone = -1;
  graph::Block block;                 // not sealed
  std::vector<std::int64_t> amounts;  // by operation; kNone: it has none
  std::vector<std::int64_t> peers;    // ranks, by operation; kNone: none, or the block names it
};

class RankPrograms {
 public:
  // `graph` has one binding a rank; each group that a peer counts in is the world.
  RankPrograms(graph::Graph* graph, std::size_t ranks);

  // REQUIRES: ranks come in order, once.
  void Add(std::uint32_t rank, RankOps&& ops);
  // Makes blocks and programs, and binds the ranks.
  void Finish();

 private:
  struct Structure {
    graph::Block block;
    std::vector<std::uint32_t> ranks;
    std::vector<RankNumbers> amounts, offsets;
  };
  void Make(Structure* structure);

  graph::Graph& graph_;
  std::int64_t ranks_;
  std::vector<std::unique_ptr<Structure>> structures_;
  std::unordered_map<std::uint64_t, std::size_t> by_hash_;
};

}  // namespace orrery::workload
