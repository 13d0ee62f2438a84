#include "orrery/job/import_storage.h"

#include <filesystem>

#include "orrery/base/file.h"
#include "orrery/base/text.h"
#include "orrery/formats/spc.h"
#include "orrery/graph/verify/verify.h"
#include "orrery/workload/importers/storage/load.h"
#include "orrery/workload/importers/storage/storage.h"

namespace orrery::job {
namespace {

using formats::Section;

constexpr std::size_t kMostRequests = workload::kMostStorageRequests;

Result<ImportedTrace> Import(const workload::StorageLoad& load,
                             const workload::StorageSettings& settings, const std::string& name,
                             bool compact) {
  ORRERY_ASSIGN_OR_RETURN(workload::StorageImport import,
                          workload::ImportStorage(load, settings.service, name));
  ImportedTrace trace;
  if (!compact) WriteOut(&import);
  trace.graph = std::move(import.graph);
  if (compact) trace.services = std::move(import.services);
  trace.requests = std::move(import.requests);
  trace.warnings = load.warnings;
  ORRERY_RETURN_IF_ERROR(graph::Verify(trace.graph).In(Printable(name)));
  return trace;
}

Result<ImportedTrace> ImportSpc(const std::string& path, const Section& section, bool compact) {
  ORRERY_ASSIGN_OR_RETURN(const workload::StorageSettings settings,
                          workload::ReadStorageSettings(section, true));
  ORRERY_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  const auto asked = static_cast<std::size_t>(settings.load.requests);
  ORRERY_ASSIGN_OR_RETURN(
      const std::vector<formats::SpcRequest> requests,
      formats::ParseSpc(file.bytes(), path, asked > 0 ? asked : kMostRequests + 1));
  if (requests.size() > kMostRequests) {
    return InvalidInput("'{}': more than {} requests; --set storage.requests=N takes the first N",
                        Printable(path), HumanCount(kMostRequests));
  }
  Result<workload::StorageLoad> load = workload::LoadOfTrace(requests, settings.load);
  if (!load.ok()) return std::move(load).TakeStatus().In(Printable(path));
  return Import(*load, settings, path, compact);
}

}  // namespace

bool IsSpcTrace(const TraceFiles& files) {
  return formats::IsSpc(files.start) ||
         (files.paths.front().ends_with(".spc") && !files.start.empty());
}

Result<ImportedTrace> ReadSpcTrace(const TraceFiles& files, const ImportOptions& options) {
  if (files.paths.size() != 1) {
    return InvalidInput("'{}': an SPC trace is one file", Printable(files.paths[1]));
  }
  if (options.options->Has("trace")) {
    return InvalidInput("{}: is for a file of these keys; here '{}' is the trace",
                        options.options->Where("trace"), Printable(files.paths.front()));
  }
  return ImportSpc(files.paths.front(), *options.options, options.compact);
}

bool IsStorageFile(const TraceFiles& files) { return StartsWithKey(files.start, "storage"); }

Result<ImportedTrace> ReadStorageFile(const TraceFiles& files, const ImportOptions& options) {
  if (files.paths.size() != 1) {
    return InvalidInput("'{}': a storage load is one file", Printable(files.paths[1]));
  }
  const std::string& path = files.paths.front();
  const OptionTable& table = workload::StorageOptions();
  Section section(table);
  if (!files.start.empty()) {
    constexpr std::int64_t kLargest = 1 << 20;
    ORRERY_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kLargest));
    ORRERY_ASSIGN_OR_RETURN(section, workload::ParseStorage(text, path));
  }
  for (const Option& option : table.options) {
    const formats::Setting* const set = options.options->Find(option.name);
    if (set != nullptr) section.Set(option.name, set->value, set->where);
  }
  if (section.Has("trace")) {
    const std::filesystem::path folder = std::filesystem::path(path).parent_path();
    return ImportSpc((folder / section.Text("trace")).string(), section, options.compact);
  }
  ORRERY_ASSIGN_OR_RETURN(const workload::StorageSettings settings,
                          workload::ReadStorageSettings(section, false));
  return Import(workload::DrawLoad(settings.load, settings.service.slice), settings, path,
                options.compact);
}

}  // namespace orrery::job
