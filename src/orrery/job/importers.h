// Every format of files that bring their own operations: one row each. `orrery simulate` and
// `inspect` find theirs by what the files hold.
//
// To add a format: an importer under workload/importers/, a row in importers.cc, a line in
// docs/formats/.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/mapped_file.h"
#include "orrery/base/schema.h"
#include "orrery/base/status.h"
#include "orrery/base/time.h"
#include "orrery/formats/section.h"
#include "orrery/graph/graph.h"
#include "orrery/graph/requests.h"
#include "orrery/graph/services.h"
#include "orrery/job/trace_storages.h"
#include "orrery/workload/importers/trace/lowering.h"

namespace orrery::job {

// A schedule or graph in memory takes about as much again.
inline constexpr std::int64_t kLargestTrace = std::int64_t{16} << 30;

// What a user named, and how its first file begins.
struct TraceFiles {
  std::vector<std::string> paths;
  std::string start;  // empty where the first path is no file
};

struct ImportOptions {
  const formats::Section* options = nullptr;  // of Importer::options, where it has some
  bool strict = false;          // what a trace does not say is an error, not a warning
  std::int64_t tp = 0, pp = 0;  // trace.tp and trace.pp, where Importer::resizes; 0: as traced
  bool compact = false;  // requests of a service may stand in `services` instead of the graph
};

struct ImportedTrace {
  std::optional<MappedFile> file;  // that the graph's columns lie in
  graph::Graph graph;              // verified
  std::vector<std::string> assumed, warnings;
  std::vector<ProgramStorages> storages;  // where the trace has allocations
  // A step of GPUs: equal ones differ in speed as those of jobs do, by what the graph's jobs say,
  // or else by the cluster's constant.
  bool training = false;
  SimTime measured = -1;  // what the traced run took, if the trace says; picoseconds
  std::string gpu;        // that it ran on, as the trace names it
  std::vector<workload::MeasuredKernel> timed;  // by it, of kernels that the graph has priced
  graph::Requests requests;  // where it serves some: their completion times are the result
  // Their operations, if they do not stand in the graph (ImportOptions::compact).
  std::optional<graph::Services> services;
  // Where the files have an operation of a rank (engine::Inputs::place).
  std::function<std::string(std::uint32_t rank, std::uint32_t op)> place;
};

struct Importer {
  std::string_view name;         // of --format
  std::string_view title;        // in results: "GOAL"
  std::string_view description;  // one sentence
  std::string_view network;      // that it runs on unless --network says otherwise
  const OptionTable* options;    // keys of --set of its own; may be null
  bool (*sniff)(const TraceFiles& files);
  Result<ImportedTrace> (*read)(const TraceFiles& files, const ImportOptions& options);
  bool generates = false;  // the section alone makes a graph, no file
  bool resizes = false;    // its files tell enough for other tensor-parallel and pipeline sizes
};

std::span<const Importer> Importers();
// Of `format` if it is not empty (else an unknown name is an error), or by content; null: the paths
// are no trace.
Result<const Importer*> FindImporter(const TraceFiles& files, const std::string& format);
// Of paths that FindImporter knows no format of: the error of what is a folder, or not there, that
// names what is missing. OK where the first path is a file.
Status CheckNoTrace(const TraceFiles& files);

// The keys of the importer's section; an empty table where it has none.
const OptionTable& KeysOf(const Importer& importer);
// Whether the key `rank` says that a rank is a host; false where the importer has no such key.
Result<bool> RanksAreHosts(const formats::Section& keys);
// Keys of --set below the importer's section; others are errors.
Result<formats::Section> ReadImporterKeys(const Importer& importer,
                                          const std::vector<std::string>& set);

// Whether the first key of a YAML text is this one, behind comments and empty lines.
bool StartsWithKey(std::string_view text, std::string_view key);

// Reads the beginning of the first path.
TraceFiles OpenTrace(std::vector<std::string> paths);

}  // namespace orrery::job
