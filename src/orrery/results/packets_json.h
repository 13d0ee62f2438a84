// What network packet saw, as JSON: `packets` of a result.
#pragma once

#include <nlohmann/json.hpp>

#include "orrery/results/packets.h"

namespace orrery::results {

nlohmann::ordered_json PacketsJson(const PacketUse& use, std::size_t most_links);

}  // namespace orrery::results
