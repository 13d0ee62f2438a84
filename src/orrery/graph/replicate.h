// A job's graph several times over: replicas of a data-parallel job of which fewer were traced.
//
// Every copy has the ranks, programs and numbers of the job. Groups that data parallelism makes are
// joined across copies: those of the roles dp, replica and expert dp, and those that span all ranks
// of the job, but for groups that only messages name; all others stay within a copy. The members of
// a joined group are those of the first copy, then those of the second, and so on.
//
// Cost: O(copies · (ranks + members of groups + numbers)).
#pragma once

#include <cstddef>

#include "orrery/base/status.h"
#include "orrery/graph/graph.h"

namespace orrery::graph {

struct Replicated {
  std::size_t joined = 0, kept = 0;  // groups that collectives use, of one copy
};

// Refused: several jobs, messages within a group that is joined, more than 2^20 ranks.
// REQUIRES: a verified graph; copies >= 1. It is verified again.
Result<Replicated> Replicate(std::size_t copies, Graph* graph);

}  // namespace orrery::graph
