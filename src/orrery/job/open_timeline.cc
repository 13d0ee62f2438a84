#include "orrery/job/open_timeline.h"

#include <utility>
#include <vector>

namespace orrery::job {

Result<std::optional<results::Timeline>> OpenTimeline(const std::string& file,
                                                      const std::string& ranks,
                                                      const graph::Graph& graph) {
  if (file.empty()) return std::optional<results::Timeline>();
  std::vector<RankId> shown = results::DefaultRanks(graph);
  if (!ranks.empty()) {
    ORRERY_ASSIGN_OR_RETURN(shown, results::ParseRanks(ranks, graph.bindings.size()));
  }
  ORRERY_ASSIGN_OR_RETURN(results::Timeline timeline,
                          results::Timeline::Create(file, graph, shown));
  return std::optional<results::Timeline>(std::move(timeline));
}

}  // namespace orrery::job
