// Equal ranks are not equally fast, and a step waits for the slow ones.
//
// A pipeline stage goes at the pace of the slowest of its n ranks (those of tp, cp and dp: they
// meet in every layer or at the end of the step), sqrt(2 ln n) deviations above the mean. Stages
// give each other slack where one has more to do: the head's, mostly. The most loaded stage bounds
// the step, but for a slower rank elsewhere: among the N ranks of the k most loaded stages, of
// which each has at least the k-th one's load L, one is expected to take L (1 + deviation ·
// sqrt(2 ln N)). The largest of these bounds is what the most loaded stage takes; with equal
// stages it is that of the slowest of all ranks. Ranks wait for that stage alone: a pipeline fills
// and drains at the others' pace.
#pragma once

#include <vector>

#include "orrery/engine/engine.h"
#include "orrery/engine/prices.h"

namespace orrery::engine {

// How many times longer kernels take than the mean rank's, by program. A stage's load is its kernel
// time. Cost: O(calls of all programs), and a price of each block's kernels the first time.
std::vector<double> RankPaces(const graph::Graph& graph, double deviation, PriceCache* prices);

}  // namespace orrery::engine
