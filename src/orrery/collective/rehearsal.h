// Trees and NVLS: the first rounds, message by message, when they are planned.
//
// What goes up and what comes down, what is scattered and what is stored meets in FIFO ports, in
// bursts whose phases decide who waits for whom: no sum of a few terms has that. So a plan carries
// what its first rounds take beyond the formula's terms (Plan::phases).
//
// What is alike is played once. Inside a domain all GPUs do the same in turn: a tree's chains begin
// at each of them, NVLS has a head in each, so one GPU's ports carry the messages of all places of
// a chain, or the parts of all heads, and into a GPU one comes at a time. Of the domains there is
// one for each level of the tree between them: a parent's two children are alike, and the second
// tree is the first one mirrored, so that a domain inside one of them is a leaf of the other.
// Chains of trees are played in three of those, at the bottom, above it and at the root.
//
// Simplifications: an odd number of domains is mirrored, too (NCCL shifts there); channels of one
// head beyond three, and of NVLS beyond what a plan may take, are played in batches; where channels
// do not divide by heads, a port carries what the busiest one does, and a little more.
//
// Cost: some 28 ns a message; at most 3,000 of a tree, 400 of NVLS, 1,000 of NVLSTree. Plans whose
// ports are busy for less than 0.7 of a lane's time are not played (PhasesOf).
#pragma once

#include "orrery/collective/collective.h"
#include "orrery/collective/white_box.h"

namespace orrery::collective {

// Full rounds that were played, all or the first ones, and when the last step ends, the smaller
// last chunk included; from the first step on. Time 0: there was nothing to play (a tree of one
// chunk, NVLS of many rounds, heads that are not all GPUs, domains of more
// messages than a plan may take).
struct Rehearsed {
  std::int64_t rounds = 0;
  SimTime time = 0;
};
Rehearsed RehearseTree(const Plan& plan, const model::WhiteBox& box);
Rehearsed RehearseNvls(const Plan& plan, const model::WhiteBox& box);

}  // namespace orrery::collective
