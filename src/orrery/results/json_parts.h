// Parts that several documents share. Internal to `results`.
#pragma once

#include <nlohmann/json.hpp>

#include "orrery/results/result.h"

namespace orrery::results {

nlohmann::ordered_json SimulationJson(const Simulation& simulation);

}  // namespace orrery::results
