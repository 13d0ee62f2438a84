// Cost and goodput of a job, as JSON and as lines of the report.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "orrery/campaign/cost.h"
#include "orrery/campaign/goodput.h"

namespace orrery::results {

nlohmann::ordered_json CostJson(const campaign::Cost& cost);
nlohmann::ordered_json GoodputJson(const campaign::Goodput& goodput);
std::string CostText(const campaign::Cost& cost);
std::string GoodputText(const campaign::Goodput& goodput);
// JSON Schemas of the two.
nlohmann::ordered_json CostSchema();
nlohmann::ordered_json GoodputSchema();

}  // namespace orrery::results
