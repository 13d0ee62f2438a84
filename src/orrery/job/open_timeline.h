// The timeline that a run is asked to write. Internal to `job`.
#pragma once

#include <optional>
#include <string>

#include "orrery/base/status.h"
#include "orrery/graph/graph.h"
#include "orrery/results/timeline.h"

namespace orrery::job {

// Steps of the links' use over time in a timeline, where nobody says otherwise.
inline constexpr int kTimelineSteps = 256;

// `file`: to write; empty: there is none. `ranks`: "0,8,16-19"; empty: results::DefaultRanks.
// `graph` must outlive the result.
Result<std::optional<results::Timeline>> OpenTimeline(const std::string& file,
                                                      const std::string& ranks,
                                                      const graph::Graph& graph);

}  // namespace orrery::job
