// A learned slowdown from the file that tools/slowdown wrote: XGBoost's own JSON (learner,
// gradient_booster, trees), regression trees on named numeric features. Errors name file and field.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "orrery/base/status.h"
#include "orrery/interference/learned.h"

namespace orrery::job {

Result<std::shared_ptr<const interference::Learned>> ReadSlowdown(const std::string& path);
// Its trees, without a look at what the features are; `name` is for messages.
Result<interference::Trees> ParseTrees(std::string_view json, const std::string& name);

}  // namespace orrery::job
