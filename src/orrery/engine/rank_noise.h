// Equal ranks are not equally fast, and a step waits for the slow ones.
//
// A pass of a stage takes as long as the slowest of the n ranks that meet in every pass (those of
// tp and cp, of dp where parameters are sharded), sqrt(2 ln n) deviations above the mean. Replicas
// that meet at the end of the step alone are pipelines of their own: the one with the slowest rank
// holds the others up, and its other stages are as fast as anybody's. Stages give each other slack
// where one has more to do: the head's, mostly. The most loaded stage bounds the step, but for a
// slower rank elsewhere: among the N ranks of the k most loaded stages, of which each has at least
// the k-th one's load L, one is expected to take L (1 + deviation · sqrt(2 ln N)). The largest of
// these bounds is what the most loaded stage takes; with equal stages it is that of the slowest of
// all ranks. Ranks wait for that stage alone: a pipeline fills and drains at the others' pace.
#pragma once

#include <vector>

#include "orrery/engine/engine.h"
#include "orrery/engine/prices.h"

namespace orrery::engine {

// How many times longer kernels take than the mean rank's, by program. A stage's load is its kernel
// time. Cost: O(calls of all programs), and a price of each block's kernels the first time.
std::vector<double> RankPaces(const graph::Graph& graph, double deviation, PriceCache* prices);

// What kernels take longer than the mean rank's is time that ranks wait for the slowest: in the
// breakdown of a rank whose kernels have this pace it goes from kernels to kNoise.
void CountAsNoise(double pace, Breakdown* parts);

}  // namespace orrery::engine
