// Graphs of several jobs joined into one.
#pragma once

#include "orrery/base/status.h"
#include "orrery/graph/graph.h"

namespace orrery::graph {

// Adds the jobs of `from` behind those of `to`: ranks, programs, blocks, groups and names are
// numbered on. Streams that are not in order of issue keep their order under numbers that `to` does
// not use. Columns that lie in a mapped file stay there: it must outlive `to`. An error where a
// numbered thing runs out. O(operations of blocks + ranks + members).
Status Append(Graph&& from, Graph* to);

}  // namespace orrery::graph
