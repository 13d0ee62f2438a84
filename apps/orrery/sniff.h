// What kind of file is this? Decided by its first bytes, and for JSON by its keys.
#pragma once

#include <string>
#include <string_view>

#include "orrery/base/status.h"

namespace orrery::app {

enum class FileKind {
  kJob,
  kCluster,
  kModel,
  kResult,
  kTimeline,
  kTopology,  // of another tool: cluster/readers
  kGoal,      // text or binary
  kRecipe,    // of a training framework: orrery/recipes
  kSnapshot,  // of PyTorch's memory: a pickle
  kUnknown
};
std::string_view Name(FileKind kind);

// What the first bytes alone tell: kUnknown for all that is YAML or JSON.
FileKind SniffStart(std::string_view start);
// By contents alone; `text` may be the beginning of the file.
FileKind Sniff(std::string_view text);

// What `simulate` is given where it is no trace (job/importers.h): kRecipe, or kJob for all that
// may be a job file; a named refusal for what cannot be simulated. A file that cannot be read is
// left to whoever reads it; a pipe holds a job.
Result<FileKind> SniffInput(const std::string& path);

}  // namespace orrery::app
