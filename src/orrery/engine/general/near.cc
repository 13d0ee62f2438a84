// LogGOPS with joint endpoints, messages between ranks of one host: through its memory, without an
// interface. The sender copies a message of at most S bytes into a buffer that both see, and the
// receiver copies it out when it comes, whether a receive was posted or not; of a longer one the
// sender tells its address, and once both have met the receiver copies it from there (Linux' cross
// memory attach). With c = s / copy:
//   send      holds its cpu for o + c (o alone where the receiver copies), is done then, or with
//             the receiver's copy; the receiver sees it L later;
//   message   holds the receiver's cpu for o + c, or o alone;
//   take in   holds the receiver's cpu for c.
// A copy reads and writes its bytes: it lasts at least until the host's memory, which serves copies
// in the order in which they begin, has done so. Caches are not seen.
//
// Source of the defaults: Open MPI's shared memory in osu_latency (0.28 us for a byte,
// github.com/ofiwg/libfabric/issues/6480) and osu_bw (14.23 MB/s for a byte, so 70 ns a message;
// 23,413 MB/s for 4 MiB, github.com/ofiwg/libfabric/pull/8221); its eager limit
// (opal/mca/btl/sm/btl_sm_component.c).
#include <algorithm>

#include "orrery/base/time.h"
#include "orrery/engine/general/machine.h"

namespace orrery::engine::general {

// How long a processor of the rank's host copies `size` bytes from `start` on.
SimTime Machine::Copy(std::uint32_t rank, std::int64_t size, SimTime start) {
  const network::SharedHosts& p = in_.loggops.hosts;
  const SimTime alone = TransferTime(size, p.copy_Bps);
  if (p.memory_Bps == 0) return alone;
  SimTime& free = memory_free_[HostOf(rank)];
  free = std::min(kMaxDuration, std::max(free, start) + TransferTime(2 * size, p.memory_Bps));
  return std::max(alone, free - start);
}

void Machine::NearSend(const Event& event, const Node& n, std::uint32_t to) {
  Cpu& c = cpu(event.rank, n.cpu);
  if (!TakeCpu(event, &c)) return;
  const network::SharedHosts& p = in_.loggops.hosts;
  const std::int64_t size = AmountOf(event.rank, n);
  const bool copied = size <= p.S;
  const SimTime held = p.o + (copied ? Copy(event.rank, size, event.time + p.o) : 0);
  const SimTime end = event.time + held;
  ranks_[event.rank].held.send += held;
  ++messages_;
  bytes_ += size;
  Started(event.rank, event.node, event.time);
  Emit(event.rank, n, event.time, end, 0, size, "shared memory");
  Push(Make(Step::kMessage, event.rank, event.node, to), end + p.L);
  LeaveQueue(event, &c, end);
  if (copied) Finish(event.rank, event.node, event.time, end);
}

void Machine::NearArrive(const Event& event, const Node& n) {
  Cpu& c = cpu(event.a, n.cpu);
  if (!TakeCpu(event, &c)) return;
  const network::SharedHosts& p = in_.loggops.hosts;
  const std::int64_t size = AmountOf(event.rank, n);
  const SimTime held = p.o + (size <= p.S ? Copy(event.a, size, event.time + p.o) : 0);
  ranks_[event.a].held.receive += held;
  LeaveQueue(event, &c, event.time + held);
  JointCame(event, n, event.time + held);
}

void Machine::NearTakeIn(const Event& event) {
  const Node& n = node_of(event.rank, event.node);
  Cpu& c = cpu(event.rank, n.cpu);
  if (!TakeCpu(event, &c)) return;
  const std::int64_t size = AmountOf(event.b, node_of(event.b, event.a));
  const SimTime held = Copy(event.rank, size, event.time);
  ranks_[event.rank].held.receive += held;
  LeaveQueue(event, &c, event.time + held);
  Finish(event.b, event.a, event.time, event.time + held);
  Finish(event.rank, event.node, event.time, event.time + held);
}

}  // namespace orrery::engine::general
