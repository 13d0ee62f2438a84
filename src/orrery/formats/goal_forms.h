// The two forms of GOAL behind ParseGoal, and the limits that both hold.
#pragma once

#include "orrery/formats/goal.h"

namespace orrery::formats {

inline constexpr std::int64_t kMaxGoalRanks = 1 << 24;
// Bytes of a message (4 PiB) and ns of a calc (52 days): sums stay within the clock.
inline constexpr std::int64_t kMaxGoalSize = std::int64_t{1} << 52;
inline constexpr std::int64_t kMaxGoalTag = 0x7FFFFFFF;  // as in a graph

Result<GoalSchedule> ParseGoalText(std::string_view text, const std::string& name);
Result<GoalSchedule> ParseGoalBinary(std::string_view bytes, const std::string& name);

}  // namespace orrery::formats
