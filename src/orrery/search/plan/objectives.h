// What a search makes small: scores of plans, and what a job must ask for to have them. Internal to
// `plan`.
#pragma once

#include <cstdint>
#include <vector>

#include "orrery/search/plan/open.h"
#include "orrery/search/plan/plan.h"

namespace orrery::search {

// Of a step, or a bound of it, to a million tokens.
double SecondsPerMillion(double step_s, double tokens);

// A job that asks for what the objectives need.
Result<OpenJob> Asking(OpenJob open, const std::vector<Objective>& objectives);

}  // namespace orrery::search
