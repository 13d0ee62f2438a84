#include "orrery/job/tenant.h"

#include <algorithm>

#include "orrery/base/text.h"
#include "orrery/cluster/catalog.h"
#include "orrery/job/reprice.h"

namespace orrery::job {
namespace {

using formats::Node;
using formats::Section;
using formats::Source;

Result<std::vector<std::string>> FilesOf(const Source& source, const Node& trace) {
  std::vector<std::string> files;
  if (trace.kind == Node::Kind::kScalar) files.push_back(source.Path(trace.text));
  for (const Node& item : trace.items) {
    if (item.kind == Node::Kind::kScalar) files.push_back(source.Path(item.text));
  }
  if (files.empty() || (trace.kind == Node::Kind::kList && files.size() != trace.items.size())) {
    return InvalidInput("{}: trace takes a file, a folder, a prefix or a list of files",
                        source.Where(trace));
  }
  return files;
}

// The importer of the entry's `trace`, or the generator that the entry names by its section.
Result<const Importer*> FindSource(const Source& source, const Node& entry,
                                   const TraceFiles& files) {
  if (!files.paths.empty()) {
    ORRERY_ASSIGN_OR_RETURN(const Importer* const found, FindImporter(files, ""));
    if (found != nullptr) return found;
    return InvalidInput("{}: '{}' is no trace of a known format ('orrery list formats')",
                        source.Where(*entry.Find("trace")), Printable(files.paths.front()));
  }
  const OptionTable* reads = nullptr;
  for (const Importer& importer : Importers()) {
    if (importer.options == nullptr || entry.Find(importer.options->path) == nullptr) continue;
    if (importer.generates) return &importer;
    reads = importer.options;
  }
  if (reads != nullptr) {
    return InvalidInput("{}: {} says how a trace is read; name the trace, too (trace: FILE)",
                        source.Where(*entry.Find(reads->path)), reads->path);
  }
  return InvalidInput("{}: jobs: an entry needs a job, a file, a trace or a pattern",
                      source.Where(entry));
}

}  // namespace

std::vector<std::string_view> GraphKeys() {
  std::vector<std::string_view> keys = {"trace"};
  for (const Importer& importer : Importers()) {
    if (importer.options == nullptr) continue;
    if (std::ranges::find(keys, importer.options->path) == keys.end()) {
      keys.push_back(importer.options->path);
    }
  }
  return keys;
}

bool HasGraph(const Node& entry) {
  return std::ranges::any_of(GraphKeys(),
                             [&](std::string_view key) { return entry.Find(key) != nullptr; });
}

Status ReadGraphOf(const Source& source, const Node& entry, const cluster::DeviceSpec& device,
                   Tenant* tenant, std::vector<std::string>* assumed,
                   std::vector<std::string>* warnings) {
  TraceFiles files;
  if (const Node* trace = entry.Find("trace")) {
    ORRERY_ASSIGN_OR_RETURN(std::vector<std::string> paths, FilesOf(source, *trace));
    files = OpenTrace(std::move(paths));
  }
  ORRERY_ASSIGN_OR_RETURN(tenant->importer, FindSource(source, entry, files));
  const Importer& importer = *tenant->importer;
  const OptionTable& table = KeysOf(importer);
  Section section(table);
  for (const std::string_view key : GraphKeys()) {
    const Node* node = entry.Find(key);
    if (key == "trace" || node == nullptr) continue;
    if (key != table.path) {
      return InvalidInput("{}: {} is not for {}; leave it out", source.Where(*node), key,
                          importer.title);
    }
    ORRERY_ASSIGN_OR_RETURN(section, Section::Read(*source.document, *node, table));
  }
  tenant->files = files.paths;
  for (const Option& option : table.options) {
    if (!section.Has(option.name)) continue;
    tenant->keys.emplace_back(option.name, FormatOption(option, section.Value(option.name)));
  }
  ORRERY_ASSIGN_OR_RETURN(const bool hosts, RanksAreHosts(section));
  tenant->placement.whole_nodes |= hosts;
  // Of what needs no file: the one that holds it, so that names inside are relative to it.
  if (files.paths.empty()) files.paths.push_back(source.name());
  Result<ImportedTrace> read = importer.read(files, {&section, false});
  if (!read.ok()) return std::move(read).TakeStatus().In(source.Where(entry));
  auto trace = std::make_shared<ImportedTrace>(*std::move(read));
  if (trace->graph.jobs.size() != 1) {
    return InvalidInput("{}: the graph holds {} jobs; an entry is one", source.Where(entry),
                        trace->graph.jobs.size());
  }
  if (const auto from = trace->gpu.empty()
                            ? std::nullopt
                            : cluster::Catalog::BuiltIn().FindDriverName(trace->gpu)) {
    MoveKernels(*from, device, trace.get());
  } else if (trace->measured >= 0) {
    trace->assumed.emplace_back(
        "work takes what it took: the trace names no GPU of data/devices.yaml");
  }
  assumed->insert(assumed->end(), trace->assumed.begin(), trace->assumed.end());
  warnings->insert(warnings->end(), trace->warnings.begin(), trace->warnings.end());
  tenant->ranks = trace->graph.bindings.size();
  tenant->trace = std::move(trace);
  return {};
}

}  // namespace orrery::job
