// Tensor- and expert-parallel groups that lie in several scale-up domains: what a result warns of.
//
// A domain is what reaches each other over NVLink, or the host where that is larger. Every
// tensor-parallel group should lie in one. An expert-parallel one should where it is no larger than
// a domain: larger ones (wide expert parallelism over hosts of 8) exchange over NICs by design.
// Cost: linear in the members of those groups.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "orrery/cluster/cluster.h"
#include "orrery/graph/graph.h"

namespace orrery::job {

// The most GPUs of a rack, whole hosts of it, that groups of `group` ranks fill; 0: there are none.
std::int64_t FilledByGroups(std::int64_t rack, std::int64_t host, std::int64_t group);

// A sentence a kind of group and job: which, of how many ranks, how many of them straddle, and what
// keeps them whole.
std::vector<std::string> StraddlingGroups(const graph::Graph& graph,
                                          const cluster::Cluster& cluster,
                                          const cluster::Placement& placement);

}  // namespace orrery::job
