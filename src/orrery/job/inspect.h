// What a file holds, as pairs of name and value for people.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/graph/graph.h"

namespace orrery::job {

using Facts = std::vector<std::pair<std::string, std::string>>;

Facts GraphFacts(const graph::Graph& graph);
Result<Facts> JobFacts(const std::string& path);
Result<Facts> ClusterFacts(const std::string& path);
Result<Facts> ModelFacts(const std::string& path);
Result<Facts> ResultFacts(std::string_view text, const std::string& name);

}  // namespace orrery::job
