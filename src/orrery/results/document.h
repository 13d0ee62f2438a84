// A document that Orrery wrote, read back.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "orrery/base/status.h"

namespace orrery::results {

// Whether `json` is an object whose "schema" is this text.
bool HasSchema(const nlohmann::ordered_json& json, std::string_view schema);

// The JSON that `orrery COMMAND --json` wrote. InvalidInput where `text` is no JSON object of
// `schema`, or is nested deeper than any of Orrery's: whoever copies, compares or writes a value
// recurses into it. `name` stands for the file in errors.
Result<nlohmann::ordered_json> ReadDocument(std::string_view text, const std::string& name,
                                            std::string_view command, std::string_view schema);

}  // namespace orrery::results
