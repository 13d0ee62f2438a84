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
// Reduce-scatter by halving (the far half first), all-gather by doubling.
void Rabenseifner(ScheduleWriter* w, Team team, std::int64_t bytes, std::int64_t reduce_ns);
// The same with the near neighbour first, as Schedgen has it. REQUIRES: size is a power of two.
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

}  // namespace orrery::workload
