// What a graph holds, for people: facts, and tables of operations, communications and messages.
#pragma once

#include <string>
#include <vector>

#include "orrery/graph/graph.h"
#include "orrery/job/inspect.h"

namespace orrery::job {

struct FactTable {
  std::string title;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
};
struct GraphFacts {
  Facts facts;
  std::vector<FactTable> tables;
};

// REQUIRES: Verify(graph).ok().
GraphFacts FactsOfGraph(const graph::Graph& graph);

}  // namespace orrery::job
