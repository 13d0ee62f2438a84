// One entry of `jobs` beside others that need not train: what it runs, where, when and how often.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/base/time.h"
#include "orrery/cluster/cluster.h"
#include "orrery/formats/section.h"
#include "orrery/job/importers.h"
#include "orrery/job/place_jobs.h"

namespace orrery::job {

// When a job of several begins and ends.
struct Turn {
  SimTime start = 0;
  std::optional<int> iterations;  // steps of training, runs of a graph
  bool background = false;        // repeats until every job that is not has ended
  int priority = 0;               // of its messages: 0, the highest, to 2

  bool plain() const { return start == 0 && !iterations && !background && priority == 0; }
};

struct Tenant {
  std::string name;
  Turn turn;
  PlacementRequest placement;
  std::size_t ranks = 0;
  std::optional<std::size_t> workload;  // training: its place in Job::workloads
  // Any other source of a graph: a trace or a generator of importers.h.
  const Importer* importer = nullptr;
  std::vector<std::string> files;
  std::vector<std::pair<std::string, std::string>> keys;  // of the importer's section, as given
  std::shared_ptr<const ImportedTrace> trace;
};

// Keys of an entry of `jobs` that name a graph: `trace`, and the sections of all importers.
std::vector<std::string_view> GraphKeys();
// Whether an entry has one of them.
bool HasGraph(const formats::Node& entry);

// Reads the graph that an entry names, and rescales kernels that another GPU has timed to `device`.
// Fills importer, files, keys, ranks and trace; what was assumed goes to `assumed`, without the
// job's name.
Status ReadGraphOf(const formats::Source& source, const formats::Node& entry,
                   const cluster::DeviceSpec& device, Tenant* tenant,
                   std::vector<std::string>* assumed, std::vector<std::string>* warnings);

}  // namespace orrery::job
