// Reads a user's own pipeline schedule (docs/formats/schedule.md).
#pragma once

#include <string_view>

#include "orrery/base/status.h"
#include "orrery/workload/plan.h"

namespace orrery::workload {

// `name` is what errors and results call it. Checks form only; Validate checks the rest.
Result<GivenSchedule> ParseSchedule(std::string_view name, std::string_view text);

}  // namespace orrery::workload
