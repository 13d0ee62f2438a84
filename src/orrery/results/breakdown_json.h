// A breakdown out of a document that Orrery wrote.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "orrery/engine/engine.h"

namespace orrery::results {

// `suffix` stands behind each part's name in `row`: "_ps". Results of earlier versions have no
// `noise`, which stood under the kernels; that another part is missing throws, as json.at does.
engine::Breakdown BreakdownFrom(const nlohmann::ordered_json& row, std::string_view suffix);

}  // namespace orrery::results
