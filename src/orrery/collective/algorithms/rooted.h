// Gather to a group's first member and scatter from it, as PyTorch runs them over NCCL: a group of
// sends and receives between the root and everybody else.
//
// The messages are those of an all-to-all's rounds (p2p_rounds.h) that the root has a part in: same
// order, channels and parts, eight a channel at a time, which share the root's CTA; the others have
// one message each. What leaves the domain goes over NVLink to the GPU beside the receiver's rail
// first (PXN): a gather comes in through the root's own NIC, a scatter leaves through all of them.
// Bytes are the whole buffer of the root, as nccl-tests counts them; parts are equal.
//
// Price: the messages' chunks through the root's lanes and ports, in the order in which they come
// to them; what is ready at one time goes in the order of senders, or of the root's lanes. Played
// once, when it is planned (Plan::phases): up to 64 chunks of each message and the last, smaller
// one, what lies between grows by the pace of the last quarter. Some 80 ns a chunk and 600 chunks
// of a gather, 2,400 of a scatter, and three quarters of them again; four of each message of larger
// groups.
#pragma once

#include "orrery/collective/collective.h"
#include "orrery/collective/white_box.h"

namespace orrery::collective {

// When all is received, from the first step on. REQUIRES: plan.collective is kGather or kScatter,
// plan.shape.ranks > 1, plan.bytes > 0.
SimTime PlayRooted(const Plan& plan, const model::WhiteBox& box);
// O(1). REQUIRES: the same of plan; plan.phases is what PlayRooted says; plan.bytes >= 0.
Cost RootedCost(const Plan& plan, const cluster::Spec& spec);

}  // namespace orrery::collective
