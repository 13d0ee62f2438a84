// Progress through a piece of work (kernels in a row) while the interference class changes and the
// host may lag behind. Exact integers: position is (kernel, elapsed in the class it was counted
// in).
#pragma once

#include "orrery/base/int128.h"
#include "orrery/engine/prices.h"

namespace orrery::engine {

struct WorkProgress {
  SimTime time = 0;          // the position holds at this time
  SimTime start = 0;         // of the item
  SimTime host = 0;          // host clock when it came to the item
  SimTime issued = 0;        // host time of the kernels before `kernel`
  SimTime idle = 0;          // so far, waiting for launches
  SimTime idle_ahead = 0;    // and until the end now foreseen
  SimTime extra = 0;         // jitter, added at the end
  SimTime elapsed = 0;       // of `kernel`, in class `counted`
  std::uint32_t kernel = 0;  // within the item
  interference::Class counted = 0;
};

// Elapsed time of a kernel, told in another class's duration.
inline SimTime Convert(SimTime elapsed, SimTime from, SimTime to) {
  if (from == to || elapsed == 0) return elapsed;
  return static_cast<SimTime>(static_cast<Int128>(elapsed) * to / from);
}

// When the item ends if class `now` holds from p.time on; adds the launch gaps ahead to *idle.
// O(kernels).
inline SimTime Finish(const BlockPrice& block, const Item& item, const WorkProgress& p,
                      interference::Class now, SimTime launch, SimTime* idle) {
  SimTime t = p.time;
  SimTime issued = p.issued;
  for (std::uint32_t k = p.kernel; k < item.count; ++k) {
    const KernelPrice& kernel = block.kernels[item.first + k];
    issued += kernel.host;
    SimTime left = kernel.duration[now];
    if (k == p.kernel && p.elapsed > 0) {
      left -= Convert(p.elapsed, kernel.duration[p.counted], kernel.duration[now]);
    } else if (const SimTime ready = p.host + issued + launch; ready > t) {
      *idle += ready - t;
      t = ready;
    }
    t += left;
  }
  return t;
}

// Moves the position on to time `to` under class `now`. REQUIRES: p->time <= to. O(kernels passed).
inline void Advance(const BlockPrice& block, const Item& item, WorkProgress* p, SimTime to,
                    interference::Class now, SimTime launch) {
  if (to == p->time) return;
  SimTime t = p->time;
  while (p->kernel < item.count) {
    const KernelPrice& kernel = block.kernels[item.first + p->kernel];
    const SimTime done = Convert(p->elapsed, kernel.duration[p->counted], kernel.duration[now]);
    if (p->elapsed == 0) {
      const SimTime ready = p->host + p->issued + kernel.host + launch;
      if (ready > t) {
        const SimTime until = ready < to ? ready : to;
        p->idle += until - t;
        t = until;
        if (t == to) break;
      }
    }
    p->counted = now;
    const SimTime end = t + kernel.duration[now] - done;
    if (end > to) {
      p->elapsed = done + (to - t);
      break;
    }
    t = end;
    p->issued += kernel.host;
    p->elapsed = 0;
    ++p->kernel;
  }
  p->time = to;
}

}  // namespace orrery::engine
