// What the command line says of a trace's run, read and checked. Internal to `job`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/formats/section.h"
#include "orrery/interference/learned.h"
#include "orrery/job/importers.h"
#include "orrery/job/trace.h"
#include "orrery/network/parameters.h"

namespace orrery::job {

struct TraceSettings {
  formats::Section import;  // the importer's
  network::Parameters network;
  bool whole_nodes = false;  // goal.rank=node, mpi.rank=node
  bool measured = true;      // communication takes what was measured
  std::string gpu;           // that the trace ran on
  std::int64_t replicas = 1;
  std::int64_t tp = 0, pp = 0;  // 0: as traced
  std::shared_ptr<const interference::Learned> slowdown;
  std::string slowdown_file;
  int iterations = 0;
  int link_steps = 0;  // 0: not said
  std::uint64_t seed = 1;
  std::vector<std::string> of_cluster;  // --set for ReadNetworkSetup
  std::string config;                   // JSON, for the result
};

// The network that is named, else the importer's.
std::string NetworkOf(const Importer& importer, const TraceOptions& options);
// Errors name the key and its place.
Result<TraceSettings> ReadTraceSettings(const Importer& importer, const TraceOptions& options);

}  // namespace orrery::job
