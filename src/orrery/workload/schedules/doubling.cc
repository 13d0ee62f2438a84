#include <vector>

#include "orrery/workload/schedules/algorithms.h"

namespace orrery::workload {
namespace {

using Op = ScheduleWriter::Op;

// Among the largest power of two of a team's members: of the first 2·(size − power) the odd ones
// stand for themselves and the even one before them, the rest for themselves.
struct Core {
  int power = 1, extra = 0;
  int own = -1;                      // the member's number in the core; -1: it is not in it
  Op ready = ScheduleWriter::kNone;  // the last operation of the fold

  int member(int core) const { return core < extra ? 2 * core + 1 : core + extra; }
};

// Members outside the core hand their vector to one inside.
Core FoldIn(ScheduleWriter* w, Team team, std::int64_t bytes, std::int64_t reduce_ns) {
  Core core{.power = PowerBelow(team.size)};
  core.extra = team.size - core.power;
  if (team.rank >= 2 * core.extra) {
    core.own = team.rank - core.extra;
  } else if (team.rank % 2 == 0) {
    core.ready = w->Send(bytes, team.rank + 1);
  } else {
    core.own = team.rank / 2;
    core.ready = w->Recv(bytes, team.rank - 1);
    if (reduce_ns > 0) {
      const Op combine = w->Calc(reduce_ns);
      w->Require(combine, core.ready);
      core.ready = combine;
    }
  }
  return core;
}

// They get the result.
void FoldOut(ScheduleWriter* w, Team team, const Core& core, Op last, std::int64_t bytes) {
  if (team.rank >= 2 * core.extra) return;
  w->Step();
  if (team.rank % 2 == 0) {
    w->Recv(bytes, team.rank + 1);
  } else {
    w->Require(w->Send(bytes, team.rank - 1), last);
  }
}

// Sends what `last` gave, receives, combines; returns what the next send needs.
Op Exchange(ScheduleWriter* w, int partner, std::int64_t out, std::int64_t in,
            std::int64_t reduce_ns, Op last) {
  w->Step();
  w->Require(w->Send(out, partner), last);
  const Op received = w->Recv(in, partner);
  if (reduce_ns == 0) return received;
  const Op combine = w->Calc(reduce_ns);
  w->Require(combine, received);
  return combine;
}

}  // namespace

void RecursiveDoubling(ScheduleWriter* w, Team team, std::int64_t bytes, std::int64_t reduce_ns) {
  const Core core = FoldIn(w, team, bytes, reduce_ns);
  Op last = core.ready;
  if (core.own >= 0) {
    for (int mask = 1; mask < core.power; mask *= 2) {
      last = Exchange(w, core.member(core.own ^ mask), bytes, bytes, reduce_ns, last);
    }
  }
  FoldOut(w, team, core, last, bytes);
}

namespace {

struct Halving {
  std::int64_t kept_bytes, sent_bytes;
  int partner;
};

// Whom a member halves the whole message with first. MPICH and Open MPI: the nearest one in
// all-reduce and reduce, the farthest one in reduce-scatter, whose blocks are then in order.
enum class First : std::uint8_t { kNearest, kFarthest };

// Reduce-scatter within the core; the steps that were taken. `last`: what the first send needs,
// then what a send after the last step needs.
std::vector<Halving> Halve(ScheduleWriter* w, const Core& core, std::int64_t bytes,
                           std::int64_t reduce_ns, First first, Op* last) {
  // Of `power` blocks, whose borders are bytes·i/power, [begin, begin + count) are the member's.
  const auto size = [&](std::int64_t begin, std::int64_t count) {
    return bytes * (begin + count) / core.power - bytes * begin / core.power;
  };
  std::vector<Halving> steps;
  std::int64_t begin = 0, count = core.power;
  for (int step = 1; core.own >= 0 && step < core.power; step *= 2) {
    const int mask = first == First::kNearest ? step : core.power / 2 / step;
    count /= 2;
    const bool upper = (core.own & mask) != 0;
    const std::int64_t kept = upper ? begin + count : begin;
    const std::int64_t sent = upper ? begin : begin + count;
    steps.push_back({size(kept, count), size(sent, count), core.member(core.own ^ mask)});
    begin = kept;
    const std::int64_t part =
        bytes == 0 ? 0
                   : static_cast<std::int64_t>(static_cast<double>(reduce_ns) *
                                               static_cast<double>(steps.back().kept_bytes) /
                                               static_cast<double>(bytes));
    *last = Exchange(w, steps.back().partner, steps.back().sent_bytes, steps.back().kept_bytes,
                     part, *last);
  }
  return steps;
}

}  // namespace

void Rabenseifner(ScheduleWriter* w, Team team, std::int64_t bytes, std::int64_t reduce_ns) {
  const Core core = FoldIn(w, team, bytes, reduce_ns);
  Op last = core.ready;
  const std::vector<Halving> steps = Halve(w, core, bytes, reduce_ns, First::kNearest, &last);
  for (std::size_t i = steps.size(); i-- > 0;) {
    last = Exchange(w, steps[i].partner, steps[i].kept_bytes, steps[i].sent_bytes, 0, last);
  }
  FoldOut(w, team, core, last, bytes);
}

void HalvingReduceScatter(ScheduleWriter* w, Team team, std::int64_t bytes,
                          std::int64_t reduce_ns) {
  const Core core = FoldIn(w, team, bytes, reduce_ns);
  Op last = core.ready;
  Halve(w, core, bytes, reduce_ns, First::kFarthest, &last);
  FoldOut(w, team, core, last, bytes / team.size);
}

void HalvingReduce(ScheduleWriter* w, Team team, int root, std::int64_t bytes,
                   std::int64_t reduce_ns) {
  const Core core = FoldIn(w, team, bytes, reduce_ns);
  Op last = core.ready;
  const std::vector<Halving> steps = Halve(w, core, bytes, reduce_ns, First::kNearest, &last);
  // Towards the member of the core that is the root, or that stands for it.
  const int end = root >= 2 * core.extra ? root - core.extra : root / 2;
  int mask = core.power / 2;
  for (std::size_t i = steps.size(); i-- > 0; mask /= 2) {
    w->Step();
    if (((core.own ^ end) & mask) != 0) {
      w->Send(steps[i].kept_bytes, steps[i].partner);
      break;
    }
    last = w->Recv(steps[i].sent_bytes, steps[i].partner);
  }
  if (root >= 2 * core.extra || root % 2 != 0) return;
  w->Step();
  if (team.rank == root) w->Recv(bytes, root + 1);
  if (team.rank == root + 1) w->Send(bytes, root);
}

void HalvingDoubling(ScheduleWriter* w, Team team, std::int64_t bytes) {
  Op last = ScheduleWriter::kNone;
  std::int64_t part = bytes;
  for (int mask = 1; mask < team.size; mask *= 2) {
    part /= 2;
    last = Exchange(w, team.rank ^ mask, part, part, 0, last);
  }
  for (int mask = team.size / 2; mask >= 1; mask /= 2) {
    last = Exchange(w, team.rank ^ mask, part, part, 0, last);
    part *= 2;
  }
}

}  // namespace orrery::workload
