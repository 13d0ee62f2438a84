// All-to-alls of uneven shares: all messages chunk by chunk, when they are planned.
//
// Who waits for whom at a FIFO port follows from the sizes of all messages: those of one chunk come
// to every port in the order of their sizes, the largest last and all at once to whoever gets it; a
// large one goes on at its lane's pace when the others of its port are through, and its receiver
// copies what has queued up. So the steps of lowering_all_to_all.cc are played: lanes that send and
// lanes that receive, credits, NVLink's ports of every GPU (those beside NICs hand over, PXN), PCIe
// where NICs are shared, both ways of every NIC. Beyond NICs nothing is contended.
//
// Simplifications. Beyond kWhole chunks the parts of a message go as one, where neighbouring
// channels run equally many messages. Beyond kMost chunks, or 8 a message (4 of more than 64
// ranks): all messages are made smaller in proportion, twice, the second time to half of that, and
// what is left out takes the pace of the difference. Beyond kMostRanks nothing is played: the
// formula of all_to_all.cc prices it.
//
// Cost (bench/spine_bench, PlanUneven; shares by receiver, from 16 KiB a message to the most, 8
// MiB): 8 ranks 0.02 to 0.08 ms, 16: 0.04 to 1.1, 32: 0.3 to 3.7, 64: 2 to 18, 128: 9 to 56. Some
// 0.2 to 0.4 us a chunk. Without it, the sums of 256 ranks take 2 ms, those of 1,024 34.
#pragma once

#include "orrery/cluster/cluster.h"
#include "orrery/collective/collective.h"

namespace orrery::collective {

// When the last step ends, from the first one on; 0: nothing is played. REQUIRES: plan.uneven has
// shares, members fill NVLink domains one after the other, equally many in each.
SimTime PlayUneven(const Plan& plan, const cluster::Spec& spec);

}  // namespace orrery::collective
