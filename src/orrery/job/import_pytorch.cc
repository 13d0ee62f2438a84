#include "orrery/job/import_pytorch.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "orrery/base/file.h"
#include "orrery/base/text.h"
#include "orrery/formats/execution_trace.h"
#include "orrery/formats/gzip.h"
#include "orrery/formats/kineto.h"
#include "orrery/graph/verify/verify.h"
#include "orrery/workload/importers/pytorch/pytorch.h"

namespace orrery::job {
namespace {

constexpr std::size_t kProfileStart =
    65536;  // tables of process groups may stand before the events

std::string StartOf(const std::string& path) {
  std::string start(kProfileStart, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  start.resize(static_cast<std::size_t>(file.gcount()));
  return formats::IsGzip(start) ? formats::GunzipStart(start, kProfileStart) : start;
}

bool IsNamedJson(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  return name.ends_with(".json") || name.ends_with(".json.gz");
}

// The files named, and those in folders named, in order.
Result<std::vector<std::string>> Expand(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code error;
    if (!std::filesystem::is_directory(path, error)) {
      files.push_back(path);
      continue;
    }
    std::vector<std::string> inside;
    for (auto at = std::filesystem::directory_iterator(path, error);
         !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
      if (!at->is_regular_file(error) || !IsNamedJson(at->path())) continue;
      const std::string start = StartOf(at->path().string());
      if (formats::IsKineto(start) || formats::IsExecutionTrace(start)) {
        inside.push_back(at->path().string());
      }
    }
    if (error) return InvalidInput("'{}': {}", Printable(path), error.message());
    std::sort(inside.begin(), inside.end());
    files.insert(files.end(), inside.begin(), inside.end());
  }
  return files;
}

struct Read {
  std::vector<workload::PyTorchRank> ranks;
  std::vector<std::pair<std::string, formats::ExecutionTrace>> executions;
};

Status ReadOne(const std::string& path, Read* read) {
  ORRERY_ASSIGN_OR_RETURN(std::string text, ReadFile(path, formats::kMostKinetoBytes));
  if (formats::IsGzip(text)) {
    ORRERY_ASSIGN_OR_RETURN(text, formats::Gunzip(text, formats::kMostKinetoBytes, path));
  }
  const std::string_view start = std::string_view(text).substr(0, kProfileStart);
  if (formats::IsExecutionTrace(start)) {
    ORRERY_ASSIGN_OR_RETURN(formats::ExecutionTrace trace,
                            formats::ParseExecutionTrace(std::move(text), path));
    read->executions.emplace_back(path, std::move(trace));
    return {};
  }
  if (!formats::IsKineto(start)) {
    return InvalidInput("'{}' is neither a Kineto trace nor an execution trace of PyTorch",
                        Printable(path));
  }
  workload::PyTorchRank rank;
  rank.path = path;
  ORRERY_ASSIGN_OR_RETURN(rank.profile, formats::ParseKineto(std::move(text), path));
  read->ranks.push_back(std::move(rank));
  return {};
}

// Each execution trace to the profile of its process; where these say nothing, in order.
Status Join(Read* read) {
  const bool in_order = read->executions.size() == read->ranks.size();
  for (std::size_t i = 0; i < read->executions.size(); ++i) {
    auto& [path, trace] = read->executions[i];
    const auto same = [&trace = trace](const workload::PyTorchRank& r) {
      return trace.process >= 0 && r.profile.process == trace.process;
    };
    auto rank = std::find_if(read->ranks.begin(), read->ranks.end(), same);
    const bool once = rank != read->ranks.end() &&
                      std::find_if(rank + 1, read->ranks.end(), same) == read->ranks.end();
    if (!once && in_order) rank = read->ranks.begin() + static_cast<std::ptrdiff_t>(i);
    if (!once && !in_order) {
      return InvalidInput(
          "'{}': process {} is that of no Kineto trace given, or of several: give as many Kineto "
          "traces as execution traces, in the same order",
          Printable(path), trace.process);
    }
    rank->execution = std::move(trace);
  }
  return {};
}

}  // namespace

bool IsPyTorch(const TraceFiles& files) {
  const Result<std::vector<std::string>> expanded = Expand(files.paths);
  if (!expanded.ok() || expanded->empty()) return false;
  const std::string start = StartOf(expanded->front());
  return formats::IsKineto(start) || formats::IsExecutionTrace(start);
}

Result<ImportedTrace> ReadPyTorch(const TraceFiles& files, const ImportOptions& options) {
  ORRERY_ASSIGN_OR_RETURN(const std::vector<std::string> paths, Expand(files.paths));
  Read read;
  for (const std::string& path : paths) ORRERY_RETURN_IF_ERROR(ReadOne(path, &read));
  if (read.ranks.empty()) {
    return InvalidInput(
        "'{}' is an execution trace of PyTorch, which has no times: give the Kineto trace of the "
        "same run beside it",
        Printable(files.paths.front()));
  }
  ORRERY_RETURN_IF_ERROR(Join(&read));
  return ImportProfiles(std::move(read.ranks), files.paths.front(), options);
}

Result<ImportedTrace> ImportProfiles(std::vector<workload::PyTorchRank> ranks,
                                     const std::string& name, const ImportOptions& options) {
  workload::PyTorchOptions chosen;
  chosen.step = options.options->Integer("step");
  chosen.replicas = options.options->Integer("replicas");
  ORRERY_ASSIGN_OR_RETURN(workload::PyTorchImport import,
                          workload::ImportPyTorch(std::move(ranks), chosen, name));
  if (options.strict && !import.missing.empty()) {
    std::string list;
    for (const std::string& m : import.missing) list += "\n  " + m;
    return InvalidInput("--strict: the profiles do not say{}", list);
  }
  ImportedTrace trace;
  trace.graph = std::move(import.graph);
  trace.assumed = std::move(import.assumed);
  trace.measured = import.measured;
  trace.gpu = std::move(import.gpu);
  for (const std::string& m : import.missing) {
    trace.warnings.push_back("the profiles do not say " + m);
  }
  ORRERY_RETURN_IF_ERROR(graph::Verify(trace.graph).In(fmt::format("'{}'", Printable(name))));
  return trace;
}

}  // namespace orrery::job
