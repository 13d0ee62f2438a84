// Trees and NVLS: the first rounds, message by message, when they are planned.
//
// What goes up and what comes down, what is scattered and what is stored meets in FIFO ports, in
// bursts whose phases decide who waits for whom: no sum of a few terms has that. So a plan carries
// what its rounds take beyond the formula's terms (Plan::phases).
//
// What is alike is played once. Inside a domain all GPUs do the same in turn: a tree's chains begin
// at each of them, NVLS has a head in each, so one GPU's ports carry the messages of all places of
// a chain, or the parts of all heads, and into a GPU one comes at a time. Of the domains there is
// one for each level of the tree between them: a parent's two children are alike, and the second
// tree is the first one mirrored, so that a domain inside one of them is a leaf of the other.
// Chains of trees are played in three of those, at the bottom, above it and at the root. All
// domains are played where they are 3, 5 or 7 (the second tree is then the first one shifted), and
// where a tree's rounds are so few that there is room.
//
// Where ports are slower than lanes, what goes up a tree gets ahead of what comes down, a window of
// credits a hop. That takes windows times hops, and what is left in the end comes down at the
// lanes' pace, not at the ports'. Such trees are played to the end, or until the windows are full,
// several rounds as one batch where they are many: a batch has the time of its first and of its
// last message, and what comes between them goes between them. After that a round takes what the
// slowest of lanes, ports and credits does.
//
// Simplifications: odd numbers of domains from 9 on are mirrored, too; channels of one head that do
// not fit, and of NVLS beyond what a plan may take, are played as fewer, larger ones; where
// channels do not divide by heads and rounds are many, one GPU is the busiest one.
//
// Cost: some 30 ns a message; at most 3,000 of a tree, 400 of NVLS, 4,000 of NVLSTree. Plans whose
// ports are busy for less than 0.7 of a lane's time are not played (PhasesOf).
#pragma once

#include "orrery/collective/collective.h"
#include "orrery/collective/white_box.h"

namespace orrery::collective {

// Full rounds that were played, all or the first ones, and when the last step ends, the smaller
// last chunk included; from the first step on. Time 0: there was nothing to play (one chunk in one
// domain, NVLS of many rounds, heads that are not all GPUs, domains of more messages than a plan
// may take).
struct Playback {
  std::int64_t rounds = 0;
  SimTime time = 0;
};
Playback PlayTree(const Plan& plan, const model::WhiteBox& box);
Playback PlayNvls(const Plan& plan, const model::WhiteBox& box);
Playback PlayCollNet(const Plan& plan, const model::WhiteBox& box);

}  // namespace orrery::collective
