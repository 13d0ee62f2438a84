// The result as JSON, "schema": "orrery.result/1"; errors as "orrery.error/1"
// (docs/formats/result.md).
#pragma once

#include <string>
#include <string_view>

#include "orrery/base/status.h"
#include "orrery/results/result.h"

namespace orrery::results {

inline constexpr std::string_view kResultSchema = "orrery.result/1";
inline constexpr std::string_view kErrorSchema = "orrery.error/1";

// One document, indented, with a newline at its end. Keys stand in a fixed order.
std::string ToJson(const RunResult& result);
std::string ErrorToJson(const Status& status);

// "invalid_input", "infeasible", "resource", "interrupted".
std::string_view CodeName(Code code);

}  // namespace orrery::results
