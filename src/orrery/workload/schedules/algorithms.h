// Algorithms of collective communication, as one member's operations. One file a family; patterns
// (patterns.h) and imported MPI programs (workload/importers/mpi) share them.
//
// Sizes are bytes. `reduce_ns` is what combining a received vector of `bytes` takes, 0 where it is
// free. Roots and peers are members' places in the team.
//
// Sources: Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in
// MPICH", IJHPCA 2005; Rabenseifner, "Optimization of collective reduction operations", ICCS 2004;
// Bruck et al., IEEE TPDS 1997 (dissemination); Hensgen et al., 1988; and what Schedgen
// (spcl/LogGOPSim) does, which its patterns are equal to.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "orrery/workload/schedules/writer.h"

namespace orrery::workload {

// The largest power of two that is not above n. REQUIRES: n >= 1.
int PowerBelow(int n);

// trees.cc. Member v's parent is v without its highest bit; the root and member 0 change places.
void BinomialBroadcast(ScheduleWriter* w, Team team, int root, std::int64_t bytes);
void BinomialReduce(ScheduleWriter* w, Team team, int root, std::int64_t bytes);
void BinaryBroadcast(ScheduleWriter* w, Team team, int root, std::int64_t bytes);

// dissemination.cc. log2 rounds, round r over a distance of 2^r; with `ways` messages a round,
// which are combined (reduce_ns each), of (ways + 1)^r.
void Dissemination(ScheduleWriter* w, Team team, std::int64_t bytes);
void WayDissemination(ScheduleWriter* w, Team team, int ways, std::int64_t bytes,
                      std::int64_t reduce_ns);

// doubling.cc. Members beyond the largest power of two hand their vector to a neighbour first and
// get the result last.
void RecursiveDoubling(ScheduleWriter* w, Team team, std::int64_t bytes, std::int64_t reduce_ns);
// Reduce-scatter by halving, all-gather by doubling, as MPICH and Open MPI (largest halves with the
// nearest member).
void Rabenseifner(ScheduleWriter* w, Team team, std::int64_t bytes, std::int64_t reduce_ns);
// The same without combining, as Schedgen has it. REQUIRES: size is a power of two.
void HalvingDoubling(ScheduleWriter* w, Team team, std::int64_t bytes);

// rings.cc
void RingAllReduce(ScheduleWriter* w, Team team, std::int64_t bytes, std::int64_t reduce_ns);
// From the root once through all members, in segments; `in_turn`: a segment is received once the
// one before it was sent on.
void PipelinedRing(ScheduleWriter* w, Team team, int root, std::int64_t bytes, std::int64_t segment,
                   bool in_turn);
// A token round the ring from member 0, and one the other way.
void DoubleRing(ScheduleWriter* w, Team team, std::int64_t bytes);

// linear.cc
void LinearGather(ScheduleWriter* w, Team team, int root, std::int64_t bytes);
void LinearScatter(ScheduleWriter* w, Team team, int root, std::int64_t bytes);
void LinearBarrier(ScheduleWriter* w, Team team);
// All messages at once, to the next member first.
void LinearAllToAll(ScheduleWriter* w, Team team, std::int64_t bytes);
// One partner a step: by exclusive or where size is a power of two, else by distance.
void PairwiseAllToAll(ScheduleWriter* w, Team team, std::int64_t bytes);

// segmented.cc. Trees of MPI libraries, in segments (0: whole). A segment goes to all children at
// once, or is combined as it comes from each. Members count from the root on.
struct Tree {
  int parent = -1;
  std::vector<int> children;  // in the order in which they are served
};
Tree BinomialTree(Team team, int root);  // the child with the largest subtree first
Tree BinaryTree(Team team, int root);
Tree Chain(Team team, int root);
Tree Star(Team team, int root);
void TreeBroadcast(ScheduleWriter* w, const Tree& tree, std::int64_t bytes, std::int64_t segment);
void TreeReduce(ScheduleWriter* w, const Tree& tree, std::int64_t bytes, std::int64_t segment,
                std::int64_t reduce_ns);
// Halves of the message down the halves of a binary tree in segments, then exchanged in pairs; who
// has no partner gets its half from the root.
void SplitBinaryBroadcast(ScheduleWriter* w, Team team, int root, std::int64_t bytes,
                          std::int64_t segment);

// gathers.cc. `bytes`: of one member's block, where there is no other word.
void BinomialGather(ScheduleWriter* w, Team team, int root, std::int64_t bytes);
void BinomialScatter(ScheduleWriter* w, Team team, int root, std::int64_t bytes);
// REQUIRES: size is a power of two.
void DoublingAllGather(ScheduleWriter* w, Team team, std::int64_t bytes);
void BruckAllGather(ScheduleWriter* w, Team team, std::int64_t bytes);
// `sizes`: of each member's block.
void RingAllGather(ScheduleWriter* w, Team team, std::span<const std::int64_t> sizes);
// REQUIRES: size is even.
void NeighbourAllGather(ScheduleWriter* w, Team team, std::int64_t bytes);
// `bytes` of the whole message: scattered over a binomial tree, then gathered by all.
void ScatterGatherBroadcast(ScheduleWriter* w, Team team, int root, std::int64_t bytes, bool ring);
void BruckAllToAll(ScheduleWriter* w, Team team, std::int64_t bytes);
// What a member sends each, and gets from each.
void LinearAllToAllV(ScheduleWriter* w, Team team, std::span<const std::int64_t> out,
                     std::span<const std::int64_t> in);
void PairwiseAllToAllV(ScheduleWriter* w, Team team, std::span<const std::int64_t> out,
                       std::span<const std::int64_t> in);
void LinearGatherV(ScheduleWriter* w, Team team, int root, std::int64_t own,
                   std::span<const std::int64_t> sizes);
void LinearScatterV(ScheduleWriter* w, Team team, int root, std::int64_t own,
                    std::span<const std::int64_t> sizes);
// `bytes` of the whole vector; every member keeps its share. The largest halves go to the farthest
// member.
void HalvingReduceScatter(ScheduleWriter* w, Team team, std::int64_t bytes, std::int64_t reduce_ns);
void PairwiseReduceScatter(ScheduleWriter* w, Team team, std::int64_t bytes,
                           std::int64_t reduce_ns);
// Rabenseifner's reduce: halves with the nearest member first, then a binomial gather to the root.
void HalvingReduce(ScheduleWriter* w, Team team, int root, std::int64_t bytes,
                   std::int64_t reduce_ns);
// From member to member.
void LinearScan(ScheduleWriter* w, Team team, std::int64_t bytes, std::int64_t reduce_ns);
void DoublingScan(ScheduleWriter* w, Team team, std::int64_t bytes, std::int64_t reduce_ns);

}  // namespace orrery::workload
