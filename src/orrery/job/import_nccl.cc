#include "orrery/job/import_nccl.h"

#include <fmt/format.h>

#include <fstream>

#include "orrery/base/file.h"
#include "orrery/base/text.h"
#include "orrery/formats/gzip.h"
#include "orrery/formats/nccl_calls.h"
#include "orrery/formats/nsys.h"
#include "orrery/graph/verify/verify.h"
#include "orrery/workload/importers/nccl/nccl.h"
#include "orrery/workload/importers/nsys/join_calls.h"

namespace orrery::job {
namespace {

constexpr std::int64_t kLargestLog = std::int64_t{4} << 30;

Status AddCalls(const std::string& path, formats::NcclCalls* calls) {
  ORRERY_ASSIGN_OR_RETURN(std::string text, ReadFile(path, kLargestLog));
  if (formats::IsGzip(text)) {
    ORRERY_ASSIGN_OR_RETURN(text, formats::Gunzip(text, kLargestLog, path));
  }
  const std::string_view start = std::string_view(text).substr(0, 65536);
  if (!formats::IsNcclLog(start) && !formats::IsNcclInspector(start)) {
    return InvalidInput("'{}' is neither a log of NCCL's (NCCL_DEBUG=INFO) nor its inspector's",
                        Printable(path));
  }
  return formats::ParseNcclCalls(text, path, calls);
}

}  // namespace

bool IsNsys(const TraceFiles& files) { return formats::IsSqlite(files.start); }

Result<ImportedTrace> ReadNsysReports(const TraceFiles& files, const ImportOptions& options) {
  std::vector<formats::ProfileTrace> profiles;
  formats::NcclCalls calls;
  std::string log;
  for (const std::string& path : files.paths) {
    std::string start(16, '\0');
    std::ifstream(path, std::ios::binary).read(start.data(), 16);
    if (!formats::IsSqlite(start)) {
      ORRERY_RETURN_IF_ERROR(AddCalls(path, &calls));
      log = path;
      continue;
    }
    ORRERY_ASSIGN_OR_RETURN(std::vector<formats::ProfileTrace> read, formats::ReadNsys(path));
    for (formats::ProfileTrace& p : read) profiles.push_back(std::move(p));
  }
  if (!log.empty()) ORRERY_RETURN_IF_ERROR(workload::JoinCalls(calls, log, &profiles));
  std::vector<workload::PyTorchRank> ranks;
  for (formats::ProfileTrace& p : profiles) {
    ranks.push_back({files.paths.front(), std::move(p), {}});
  }
  return ImportProfiles(std::move(ranks), files.paths.front(), options);
}

bool IsNccl(const TraceFiles& files) {
  const std::string start =
      formats::IsGzip(files.start) ? formats::GunzipStart(files.start, 65536) : files.start;
  return formats::IsNcclLog(start) || formats::IsNcclInspector(start);
}

Result<ImportedTrace> ReadNccl(const TraceFiles& files, const ImportOptions&) {
  formats::NcclCalls calls;
  for (const std::string& path : files.paths) ORRERY_RETURN_IF_ERROR(AddCalls(path, &calls));
  const std::string& name = files.paths.front();
  ORRERY_ASSIGN_OR_RETURN(workload::NcclImport import, workload::ImportNccl(calls, name));
  ImportedTrace trace;
  trace.graph = std::move(import.graph);
  trace.assumed = std::move(import.assumed);
  ORRERY_RETURN_IF_ERROR(graph::Verify(trace.graph).In(fmt::format("'{}'", Printable(name))));
  return trace;
}

}  // namespace orrery::job
