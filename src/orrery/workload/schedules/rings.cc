#include <algorithm>

#include "orrery/workload/schedules/algorithms.h"

namespace orrery::workload {

using Op = ScheduleWriter::Op;

void RingAllReduce(ScheduleWriter* w, Team team, std::int64_t bytes, std::int64_t reduce_ns) {
  Op last = ScheduleWriter::kNone;
  const std::int64_t part = bytes / team.size;
  const int next = (team.rank + 1) % team.size;
  const int previous = (team.rank - 1 + team.size) % team.size;
  for (int step = 0; step < 2 * (team.size - 1); ++step) {
    w->Step();
    w->Require(w->Send(part, next), last);
    last = w->Recv(part, previous);
    if (reduce_ns / team.size > 0 && step < team.size - 1) {
      const Op combine = w->Calc(reduce_ns / team.size);
      w->Require(combine, last);
      last = combine;
    }
  }
}

void PipelinedRing(ScheduleWriter* w, Team team, int root, std::int64_t bytes, std::int64_t segment,
                   bool in_turn) {
  const auto swapped = [root](int v) { return v == 0 ? root : v == root ? 0 : v; };
  const int own = swapped(team.rank);
  Op sent = ScheduleWriter::kNone;
  for (std::int64_t begin = 0; begin < bytes; begin += segment) {
    const std::int64_t size = std::min(segment, bytes - begin);
    Op received = ScheduleWriter::kNone;
    if (own > 0) received = w->Recv(size, swapped(own - 1));
    if (in_turn) w->Require(received, sent);
    if (own + 1 < team.size) {
      sent = w->Send(size, swapped(own + 1));
      w->Require(sent, received);
    }
  }
}

void DoubleRing(ScheduleWriter* w, Team team, std::int64_t bytes) {
  const int next = (team.rank + 1) % team.size;
  const int previous = (team.rank - 1 + team.size) % team.size;
  for (const auto& [to, from] : {std::pair(next, previous), std::pair(previous, next)}) {
    const Op send = w->Send(bytes, to);
    const Op received = w->Recv(bytes, from);
    if (team.rank > 0) w->Require(send, received);
  }
}

}  // namespace orrery::workload
