// Programs of many iterations, as one rank's operations: what HPC codes do between their
// collectives.
#pragma once

#include <array>
#include <cstdint>

#include "orrery/workload/schedules/writer.h"

namespace orrery::workload {

// Ranks in a grid, the first dimension fastest; all of 1 in dimensions that are not there.
struct Grid {
  std::array<int, 3> extent{1, 1, 1};
  int ranks() const { return extent[0] * extent[1] * extent[2]; }
};

// As near to a cube (a square) as the factors of `ranks` allow, the longest dimension first.
Grid NearestGrid(int ranks, int dimensions);

struct Loop {
  int steps = 1;
  std::int64_t bytes = 0;       // of a message
  std::int64_t compute_ns = 0;  // of a step
  int ways = 1;                 // messages of a superstep
};

// A step: compute, then a message to each neighbour on a torus and one from each; all of them are
// over before the next. Directions have tags of their own, steps share them.
void NearestNeighbours(ScheduleWriter* w, int rank, const Grid& grid, const Loop& loop);
// A step is a wavefront over the grid from one of its corners, which take turns: receive from both
// (in three dimensions all three) sides before, compute, send to those behind. Koch, Baker,
// Alcouffe, Trans. Am. Nucl. Soc. 1992.
void Sweeps(ScheduleWriter* w, int rank, const Grid& grid, const Loop& loop);
// A superstep: compute, a message to each of the next `ways` ranks, a barrier by dissemination.
// Valiant, CACM 1990.
void Supersteps(ScheduleWriter* w, Team team, const Loop& loop);

}  // namespace orrery::workload
