// Names of how tokens come to their experts, as plan_keys.h.
#pragma once

#include <array>

#include "orrery/job/plan_keys.h"
#include "orrery/workload/model_keys.h"

namespace orrery::job {

using workload::kActivations;
using workload::kModelSizes;
using workload::kModelSwitches;
using workload::kPositions;
using workload::ModelSize;
using workload::ModelSwitch;

inline constexpr std::array<Named<workload::Dispatcher>, 4> kDispatchers = {
    {{"allgather", workload::Dispatcher::kAllGather},
     {"alltoall", workload::Dispatcher::kAllToAll},
     {"deepep", workload::Dispatcher::kDeepEp},
     {"hybridep", workload::Dispatcher::kHybridEp}}};
inline constexpr std::array<Named<workload::Routing>, 6> kRoutings = {
    {{"balanced", workload::Routing::kBalanced},
     {"round-robin", workload::Routing::kRoundRobin},
     {"zipf", workload::Routing::kZipf},
     {"natural", workload::Routing::kNatural},
     {"dirichlet", workload::Routing::kDirichlet},
     {"drawn-zipf", workload::Routing::kDrawnZipf}}};

}  // namespace orrery::job
