#include "orrery/workload/schedules/algorithms.h"

namespace orrery::workload {

void LinearGather(ScheduleWriter* w, Team team, int root, std::int64_t bytes) {
  if (team.rank != root) {
    w->Send(bytes, root);
    return;
  }
  // In the order of the tree's places, where the root and member 0 have changed theirs.
  for (int i = 1; i < team.size; ++i) w->Recv(bytes, i == root ? 0 : i);
}

void LinearScatter(ScheduleWriter* w, Team team, int root, std::int64_t bytes) {
  if (team.rank != root) {
    w->Recv(bytes, root);
    return;
  }
  for (int i = 1; i < team.size; ++i) w->Send(bytes, i == root ? 0 : i);
}

void LinearBarrier(ScheduleWriter* w, Team team) {
  if (team.rank > 0) {
    w->Send(1, 0);
    w->Recv(1, 0);
    return;
  }
  const ScheduleWriter::Op all = w->Calc(0);
  for (int i = 1; i < team.size; ++i) {
    w->Require(all, w->Recv(1, i));
    w->Require(w->Send(1, i), all);
  }
}

void LinearAllToAll(ScheduleWriter* w, Team team, std::int64_t bytes) {
  for (int step = 1; step < team.size; ++step) {
    w->Send(bytes, (team.rank + step) % team.size);
    w->Recv(bytes, (team.rank - step + team.size) % team.size);
  }
}

void PairwiseAllToAll(ScheduleWriter* w, Team team, std::int64_t bytes) {
  const bool power = PowerBelow(team.size) == team.size;
  for (int step = 1; step < team.size; ++step) {
    w->Step();
    w->Send(bytes, power ? team.rank ^ step : (team.rank + step) % team.size);
    w->Recv(bytes, power ? team.rank ^ step : (team.rank - step + team.size) % team.size);
  }
}

}  // namespace orrery::workload
