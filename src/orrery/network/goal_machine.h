// Runs a GOAL schedule in the LogGOPS model: no topology, every pair of ranks alike.
//
// Model. A rank has processors (cpu) and network interfaces (nic), each in use or free; a nic sends
// and receives independently. With s bytes of a message, e = max(s - 1, 0):
//   calc     needs its cpu and holds it for its time;
//   send     needs its cpu and nic; from its start t it holds the cpu for o + e·O and the nic for
//            g + e·G; the message's first byte arrives at t + o + L;
//   message  on arrival needs the cpu and nic of the sender's numbers at the receiver, whether a
//            receive was posted or not; from t it holds the cpu for o + max(e·O, e·G) and the nic
//            for g + e·G;
//   recv     takes no time by itself: it is posted once it is ready and what its cpu did when it
//            became ready is over.
// A send of at most S bytes is done at t + o; a longer one once message and receive have met. A
// receive is done when its message has been taken in. What waits for an operation may start at its
// end, or at its start (irequires).
//
// Matching is MPI's: a message takes the first posted receive that fits, a receive the first
// message that came. -1 fits any. Operations that become ready at once are posted in the order
// send, recv, calc, then by their place in the schedule; what waits for a processor goes in the
// order in which it began to wait. Nothing depends on the order of a container.
//
// `receiver_bandwidth = false` charges no bandwidth at the receiver (as ATLAHS' copy does): a
// message arrives whole at t + o + e·O + L + e·G, holds the nic for g, then the matched receive's
// cpu for o + e·O; a long send is done when its receive is.
//
// Source: Hoefler, Schneider, Lumsdaine, "LogGOPSim", HPDC'10 (LSAP workshop); charging rules as
// spcl/LogGOPSim applies them. Finish times equal its own where it does not deadlock.
//
// Units. Times in ps; G and O in 10⁻¹⁸ s a byte, a product rounded up once.
//
// Cost. A calc is one event, a send or receive one each and a message one; an event that finds its
// processor busy waits in a heap of that processor and comes back once, not at every change.
// Memory: 13 bytes an operation beside the schedule's own, 40 a rank and 48 a processor; 24 for
// each receive or message that waits.
#pragma once

#include <cstdint>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/base/time.h"
#include "orrery/formats/goal.h"
#include "orrery/network/parameters.h"

namespace orrery::network {

struct GoalRank {
  SimTime finish = 0;
  // How long its processors were held.
  SimTime calc = 0, send = 0, receive = 0;
};
struct GoalRun {
  SimTime finish = 0;
  std::vector<GoalRank> ranks;
  std::uint64_t events = 0, messages = 0;
  std::int64_t bytes = 0;
  std::uint64_t unexpected = 0;   // messages that came before their receive was posted
  std::uint64_t truncated = 0;    // messages longer than the receive that took them
  std::uint64_t fingerprint = 0;  // of all operations' ends; moving one by 1 ps changes it
};

// Code::kInfeasible when operations are left that nothing can release; the message names the first
// of them and what it waits for.
Result<GoalRun> RunGoal(const formats::GoalSchedule& schedule, const LogGops& parameters);

}  // namespace orrery::network
