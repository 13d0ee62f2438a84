// The part of a result that is of requests (requests.h).
#pragma once

#include <nlohmann/json.hpp>

#include "orrery/results/requests.h"

namespace orrery::results {

nlohmann::ordered_json RequestsJson(const RequestResult& result);

}  // namespace orrery::results
