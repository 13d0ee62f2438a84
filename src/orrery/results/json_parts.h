// Parts that several documents share. Internal to `results`.
#pragma once

#include <nlohmann/json.hpp>

#include "orrery/results/packets_json.h"
#include "orrery/results/result.h"

namespace orrery::results {

inline constexpr std::size_t kPacketLinks = 20;  // of network packet, in JSON

nlohmann::ordered_json SimulationJson(const Simulation& simulation);
// What links carried, by class, and the worst of them.
nlohmann::ordered_json NetworkJson(const std::string& backend,
                                   const std::vector<engine::LinkClassUse>& classes,
                                   const std::vector<WorstLink>& worst_links);

}  // namespace orrery::results
