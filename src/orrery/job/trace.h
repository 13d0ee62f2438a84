// From a trace (a file that brings its own operations) to its result, on any network.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "orrery/base/schema.h"
#include "orrery/base/status.h"
#include "orrery/constants/set.h"
#include "orrery/engine/engine.h"
#include "orrery/job/importers.h"
#include "orrery/results/trace.h"

namespace orrery::job {

struct TraceOptions {
  std::string network;  // empty: the importer's
  std::string
      cluster;    // a preset or a file; empty: none, which loggops with joint endpoints allows
  int nodes = 0;  // 0: as many as the ranks need
  // key=value below the importer's section, loggops, simulation, nccl, collective, cluster and
  // perturb.
  std::vector<std::string> set;
  std::string timeline, timeline_ranks;
  bool strict = false;  // what a trace does not say is an error
  const constants::Set* constants = nullptr;
};

// Runs a trace of one of the formats of importers.h. Code::kInfeasible for a deadlock.
Result<results::TraceResult> SimulateTrace(const Importer& importer, const TraceFiles& files,
                                           const TraceOptions& given);

// Reads a trace and makes it ready to run, without running it; `use` gets what the engine would.
// `given.network` plays no part.
Status WithTrace(const Importer& importer, const TraceFiles& files, const TraceOptions& given,
                 const std::function<Status(const engine::Inputs&)>& use);

}  // namespace orrery::job
