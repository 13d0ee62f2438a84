// When another plan would be the best: the change of a resource that turns the order.
//
// The best plans are run again with the NICs' and NVLink's bandwidth halved and doubled. Where
// another comes first, the change at which it does is found by bisection, to about 1 %. Plans
// beside the best ones are not looked at: with another resource still others may be better.
#pragma once

#include "orrery/search/plan/plan.h"

namespace orrery::search {

// Fills turns and steady of `result`, whose rows are ranked.
Status FindTurns(const OpenJob& open, Evaluator* evaluator, PlanResult* result);

}  // namespace orrery::search
