// A ratio as people write it of switches: "2:1".
#pragma once

#include <optional>
#include <string_view>

namespace orrery::cluster {

// The first number by the second, both above 0; nothing where the text is no ratio.
std::optional<double> ParseRatio(std::string_view text);

}  // namespace orrery::cluster
