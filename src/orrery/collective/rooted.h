// Gather to a group's first member and scatter from it, as PyTorch runs them over NCCL: a group of
// sends and receives between the root and everybody else.
//
// The messages are those of an all-to-all's rounds (p2p_rounds.h) that the root has a part in: same
// order, channels and parts, eight a channel at a time, which share the root's CTA; the others have
// one message each. What leaves the domain goes over NVLink to the GPU beside the receiver's rail
// first (PXN): a gather comes in through the root's own NIC, a scatter leaves through all of them.
// Bytes are the whole buffer of the root, as nccl-tests counts them; parts are equal.
//
// Price: the messages' chunks through the root's lanes and ports, chunk by chunk; 32 chunks and the
// last, smaller one are gone through, what lies between grows by the time of the last eight. Over
// more than one batch a channel (ranks above 8 times the channels) batches are taken one after the
// other. O(ranks * parts): 1 us a message.
#pragma once

#include "orrery/collective/collective.h"

namespace orrery::collective {

// REQUIRES: plan.collective is kGather or kScatter, plan.shape.ranks > 1.
Cost RootedCost(const Plan& plan, const cluster::Spec& spec);

}  // namespace orrery::collective
