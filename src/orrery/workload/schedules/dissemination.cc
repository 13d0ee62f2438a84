#include <vector>

#include "orrery/workload/schedules/algorithms.h"

namespace orrery::workload {

using Op = ScheduleWriter::Op;

void Dissemination(ScheduleWriter* w, Team team, std::int64_t bytes) {
  Op received = ScheduleWriter::kNone;
  for (std::int64_t distance = 1; distance < team.size; distance *= 2) {
    w->Step();
    const auto d = static_cast<int>(distance);
    w->Require(w->Send(bytes, static_cast<int>((team.rank + distance) % team.size)), received);
    received = w->Recv(bytes, (team.rank - d + team.size) % team.size);
  }
}

void WayDissemination(ScheduleWriter* w, Team team, int ways, std::int64_t bytes,
                      std::int64_t reduce_ns) {
  const auto n = static_cast<std::size_t>(ways);
  std::vector<Op> sent(n), received(n, ScheduleWriter::kNone);
  for (std::int64_t distance = 1; distance < team.size; distance *= ways + 1) {
    w->Step();
    const auto to = [&](std::size_t i) { return static_cast<std::int64_t>(i + 1) * distance; };
    for (std::size_t i = 0; i < n; ++i) {
      sent[i] = w->Send(bytes, static_cast<int>((team.rank + to(i)) % team.size));
    }
    if (distance > 1) {
      Op combined = received[0];
      for (std::size_t i = 1; i < n; ++i) {
        const Op next = w->Calc(reduce_ns);
        w->Require(next, received[i]);
        w->Require(next, combined);
        combined = next;
      }
      const Op last = w->Calc(reduce_ns);
      w->Require(last, received[0]);
      w->Require(sent[n - 1], combined);
      for (std::size_t i = 0; i < n; ++i) w->Require(sent[i], last);
    }
    for (std::size_t i = 0; i < n; ++i) {
      const std::int64_t from = (team.rank - to(i) % team.size + team.size) % team.size;
      received[i] = w->Recv(bytes, static_cast<int>(from));
    }
  }
}

}  // namespace orrery::workload
