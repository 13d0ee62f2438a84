// Rows of a sweep as JSON and back. Internal to `sweep`.
#pragma once

#include <nlohmann/json.hpp>
#include <span>

#include "orrery/search/sweep/sweep.h"

namespace orrery::search {

// Columns that a row has where the job says what they need; 0: it does not.
struct OptionalColumn {
  const char* name;
  double SweepRow::*member;
};
std::span<const OptionalColumn> OptionalColumns();

nlohmann::ordered_json RowToJson(const SweepRow& row, const std::vector<std::string>& keys);
// Throws nlohmann's exceptions where it is no row of these keys; callers turn them into a Status.
SweepRow RowFromJson(const nlohmann::ordered_json& json, const std::vector<std::string>& keys);
std::string HexOf(std::uint64_t value);

}  // namespace orrery::search
