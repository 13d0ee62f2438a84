// All-to-all(v) as NCCL runs it: every pair's message is a send and a receive, all in one group.
//
// A rank holds R parts of S/R bytes and gives one to every rank; its own part is copied in HBM.
// What bounds it, with p ranks in each of N NVLink domains and the planned P2P channels C:
//   NVLink  the (p-1)/R of S to ranks of the domain, and, with PXN, (p-1)/p of what leaves it: NCCL
//           hands a message to the local GPU beside the NIC on the receiver's rail
//   NIC     (R-p)/R of S a rank; NICs that several ranks share carry all of theirs
//   lanes   a CTA moves its share of all parts in chunks, up to 8 messages at a time
//   window  a chunk leaves when the one a buffer's length before it has come
//   batches ceil(messages / (8 · C)), each begun with one step's latency
// An analysis of the steps of lowering_all_to_all.cc, within 3 % of them when uncontended. Assumes
// equal parts, all ranks there at once, no congestion in the fabric. Uneven ones (Plan::uneven):
// docs/collectives.md. Times in picoseconds. Sources: NCCL's p2p schedule and batching
// (src/init.cc, src/enqueue.cc), PXN (src/graph/paths.cc); docs/collectives.md has the constants
// of a step.
#pragma once

#include "orrery/cluster/cluster.h"
#include "orrery/collective/collective.h"

namespace orrery::collective {

// REQUIRES: plan.collective is kAllToAll and plan.shape.ranks > 1. O(channels).
Cost AllToAllCost(const Plan& plan, const cluster::Spec& spec);

}  // namespace orrery::collective
