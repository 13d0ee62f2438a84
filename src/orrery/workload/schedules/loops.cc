#include "orrery/workload/schedules/loops.h"

#include <algorithm>

#include "orrery/workload/schedules/algorithms.h"

namespace orrery::workload {
namespace {

using Op = ScheduleWriter::Op;

std::array<int, 3> PlaceOf(int rank, const Grid& grid) {
  return {rank % grid.extent[0], rank / grid.extent[0] % grid.extent[1],
          rank / grid.extent[0] / grid.extent[1]};
}
int RankAt(const std::array<int, 3>& at, const Grid& grid) {
  return (at[2] * grid.extent[1] + at[1]) * grid.extent[0] + at[0];
}
// One place on in a direction, round the torus.
int Neighbour(int rank, std::size_t dimension, int direction, const Grid& grid) {
  std::array<int, 3> at = PlaceOf(rank, grid);
  const int extent = grid.extent[dimension];
  at[dimension] = (at[dimension] + direction + extent) % extent;
  return RankAt(at, grid);
}

}  // namespace

Grid NearestGrid(int ranks, int dimensions) {
  Grid grid;
  int left = ranks;
  for (int d = dimensions; d > 1; --d) {
    // The largest factor whose d-th power is not above what is left.
    int best = 1;
    for (int f = 1; f <= left; ++f) {
      std::int64_t power = 1;
      for (int i = 0; i < d; ++i) power *= f;
      if (power > left) break;
      if (left % f == 0) best = f;
    }
    grid.extent[static_cast<std::size_t>(d - 1)] = best;
    left /= best;
  }
  grid.extent[0] = left;
  std::sort(grid.extent.begin(), grid.extent.end(), std::greater<>());
  return grid;
}

void NearestNeighbours(ScheduleWriter* w, int rank, const Grid& grid, const Loop& loop) {
  for (int step = 0; step < loop.steps; ++step) {
    if (loop.compute_ns > 0) {
      w->Step();
      w->Calc(loop.compute_ns);
    }
    w->Step();
    for (std::size_t d = 0; d < grid.extent.size(); ++d) {
      if (grid.extent[d] == 1) continue;
      for (const int direction : {-1, 1}) {
        w->set_tag(static_cast<std::uint32_t>(2 * d + (direction > 0 ? 1 : 0)));
        w->Send(loop.bytes, Neighbour(rank, d, direction, grid));
        w->Recv(loop.bytes, Neighbour(rank, d, -direction, grid));
      }
    }
  }
}

void Sweeps(ScheduleWriter* w, int rank, const Grid& grid, const Loop& loop) {
  const std::array<int, 3> at = PlaceOf(rank, grid);
  for (int step = 0; step < loop.steps; ++step) {
    w->Step();
    const auto direction = [&](std::size_t d) { return (step >> d & 1) != 0 ? -1 : 1; };
    const auto inside = [&](std::size_t d, int way) {
      const int to = at[d] + way;
      return to >= 0 && to < grid.extent[d];
    };
    for (std::size_t d = 0; d < grid.extent.size(); ++d) {
      w->set_tag(static_cast<std::uint32_t>(d));
      if (inside(d, -direction(d))) w->Recv(loop.bytes, Neighbour(rank, d, -direction(d), grid));
    }
    w->Step();
    if (loop.compute_ns > 0) w->Calc(loop.compute_ns);
    w->Step();
    for (std::size_t d = 0; d < grid.extent.size(); ++d) {
      w->set_tag(static_cast<std::uint32_t>(d));
      if (inside(d, direction(d))) w->Send(loop.bytes, Neighbour(rank, d, direction(d), grid));
    }
  }
}

void Supersteps(ScheduleWriter* w, Team team, const Loop& loop) {
  for (int step = 0; step < loop.steps; ++step) {
    w->Step();
    if (loop.compute_ns > 0) w->Calc(loop.compute_ns);
    w->Step();
    w->set_tag(0);
    for (int i = 1; i <= loop.ways; ++i) {
      w->Send(loop.bytes, (team.rank + i) % team.size);
      w->Recv(loop.bytes, (team.rank - i + team.size) % team.size);
    }
    w->Step();
    w->set_tag(1);
    Dissemination(w, team, 1);
  }
}

}  // namespace orrery::workload
