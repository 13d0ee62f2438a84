// Rows of a sweep as JSON and back. Internal to `sweep`.
#pragma once

#include <nlohmann/json.hpp>

#include "orrery/search/sweep/sweep.h"

namespace orrery::search {

nlohmann::ordered_json RowToJson(const SweepRow& row, const std::vector<std::string>& keys);
// Throws nlohmann's exceptions where it is no row of these keys; callers turn them into a Status.
SweepRow RowFromJson(const nlohmann::ordered_json& json, const std::vector<std::string>& keys);
std::string HexOf(std::uint64_t value);

}  // namespace orrery::search
