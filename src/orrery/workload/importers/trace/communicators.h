// Who talks to whom: the groups of traced ranks, carried over to the ranks that they stand for.
//
// A rank r of a class has the groups of the traced rank with every place moved to r's own along the
// dimensions of the mesh that the group does not span, and meets in each message the rank as many
// places on. Groups of the same members and name, seen from several programs, are one communicator.
//
// Without a mesh every rank must have been traced, but for one case: a single rank was traced, it
// sends no message, and its groups are planes of a mesh that follows from them. Then it stands for
// all ranks, and the result says so.
//
// A communicator's role in the breakdown follows from its description (Megatron's), the dimensions
// that it spans, or is any that is free; the last is said in the result.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/formats/rank_trace.h"
#include "orrery/graph/graph.h"

namespace orrery::workload {

class Communicators {
 public:
  // Fills the graph's groups and bindings; program p of the directory becomes ProgramId p.
  static Result<Communicators> Create(const formats::TraceDirectory& directory,
                                      graph::Graph* graph);

  // Where a communication of program `p` happens.
  graph::GroupSlot SlotOf(std::size_t p, const formats::TraceComm& comm) const;
  // Whom a message of it meets.
  graph::Peer PeerOf(std::size_t p, const formats::TraceComm& comm) const;
  // Those of all programs.
  std::set<graph::GroupSlot> Slots() const;
  std::size_t ranks(std::size_t p) const { return ranks_[p].size(); }
  const std::vector<std::string>& assumed() const { return assumed_; }

 private:
  // A group of a program as its communications use it. Collectives with a root have the group
  // turned so that the root comes first.
  struct Use {
    std::size_t group = 0;
    std::size_t root = 0;  // its place in the group
    bool messages = false;
    graph::GroupSlot slot = graph::GroupSlot::kDp;
    std::vector<std::size_t> spans;  // dimensions of the mesh, in which members differ
    std::size_t kind = 0;            // uses that share a communicator have one
  };

  explicit Communicators(const formats::TraceDirectory& directory) : directory_(directory) {}
  Status InferMesh();
  Status AssignRanks();
  void CollectUses();
  Status FindSpans(std::size_t p, Use* use) const;
  std::vector<std::uint32_t> MembersOf(std::size_t p, const Use& use, std::uint32_t rank) const;
  std::uint32_t Moved(std::uint32_t rank, std::uint32_t to,
                      const std::vector<std::size_t>& spans) const;
  Status Bind(graph::Graph* graph);
  void AssignSlots();
  void BindNeighbours(std::size_t p, graph::Graph* graph) const;
  std::size_t UseOf(std::size_t p, const formats::TraceComm& comm) const;

  const formats::TraceDirectory& directory_;
  std::vector<formats::TraceDirectory::Dimension> mesh_;
  std::vector<std::size_t> strides_;  // of mesh_, in ranks
  bool stands_for_all_ = false;
  std::vector<std::uint32_t> program_of_;          // by rank
  std::vector<std::vector<std::uint32_t>> ranks_;  // by program
  std::vector<std::vector<Use>> uses_;             // by program
  std::vector<std::string> assumed_;
};

}  // namespace orrery::workload
