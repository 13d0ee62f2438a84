// What kind of file is this? Decided by its first bytes, and for JSON by its keys.
#pragma once

#include <string>
#include <string_view>
#include <vector>

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
  kSweep,     // what 'orrery sweep --json' writes
  kPlan,      // what 'orrery plan --json' writes
  kAnswer,    // JSON of other commands: a queue, traffic, a calibration, …
  kUnknown
};
std::string_view Name(FileKind kind);
// What can be done with it, in a few words: "'orrery simulate' runs it".
std::string_view Uses(FileKind kind);

// A file that a command reads, and the kinds that it takes.
struct Reading {
  std::string path;
  std::vector<FileKind> kinds;
};
// Betters the error of a command that read these files: where one of them is of a kind that the
// command does not take, it says what the file is and which command takes it, in place of what its
// reader stumbled over. Any other status stays as it is.
Status ExplainWrongKind(Status status, const std::vector<Reading>& read);

// What the first bytes alone tell: kUnknown for all that is YAML or JSON.
FileKind SniffStart(std::string_view start);
// By contents alone, recipes aside (recipes::Sniff); `text` may be the beginning of the file.
FileKind Sniff(std::string_view text);

// What `simulate` is given where it is no trace (job/importers.h): kRecipe, or kJob for all that
// may be a job file; a named refusal for what cannot be simulated. A file that cannot be read is
// left to whoever reads it; a pipe holds a job.
Result<FileKind> SniffInput(const std::string& path);

}  // namespace orrery::app
