#include "sniff.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "orrery/base/text.h"
#include "orrery/cluster/readers/readers.h"
#include "orrery/formats/goal.h"
#include "orrery/formats/pickle.h"
#include "orrery/formats/tree.h"
#include "orrery/job/plan_keys.h"
#include "orrery/job/tables.h"
#include "orrery/recipes/import.h"

namespace orrery::app {
namespace {

bool IsJobKey(std::string_view key) {
  return std::ranges::find(job::TopKeys(), key) != job::TopKeys().end() ||
         FindOption(job::TopOptions().options, key) != nullptr;
}

// Files of frameworks have a `model`, too: most of a job's keys are a job's.
bool ReadsLikeJob(const formats::Node& root) {
  const bool sections =
      std::ranges::any_of(std::array{"training", "parallel", "jobs"},
                          [&](const char* key) { return root.Find(key) != nullptr; });
  const auto known = std::ranges::count_if(
      root.fields, [](const formats::Field& field) { return IsJobKey(field.key); });
  const auto others = static_cast<std::ptrdiff_t>(root.fields.size()) - known;
  return sections ? known >= others : root.Find("model") != nullptr && others == 0;
}

FileKind SniffTree(const formats::Node& root) {
  if (const formats::Node* schema = root.Find("schema")) {
    if (schema->text.starts_with("orrery.result/")) return FileKind::kResult;
    if (schema->text.starts_with("orrery.sweep/")) return FileKind::kSweep;
    if (schema->text.starts_with("orrery.plan/")) return FileKind::kPlan;
    if (schema->text.starts_with("orrery.")) return FileKind::kAnswer;
  }
  if (root.Find("model_type") != nullptr) return FileKind::kModel;
  if (ReadsLikeJob(root)) return FileKind::kJob;
  for (const char* key : {"device", "gpus_per_node", "nic_bandwidth", "preset", "cluster"}) {
    if (root.Find(key) != nullptr) return FileKind::kCluster;
  }
  return FileKind::kUnknown;
}

constexpr std::size_t kMostSniffed = 4 << 20;  // a recipe's

// The file's first bytes; none of what is no regular file.
std::string Beginning(const std::string& path, std::size_t bytes) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return {};
  std::ifstream file(path, std::ios::binary);
  std::string start(bytes, '\0');
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  start.resize(static_cast<std::size_t>(file.gcount()));
  return start;
}

}  // namespace

std::string_view Uses(FileKind kind) {
  switch (kind) {
    case FileKind::kJob:
      return "'orrery simulate' runs it, 'orrery plan' and 'orrery sweep' vary it";
    case FileKind::kCluster:
    case FileKind::kTopology:
      return "a job names it as its cluster, 'orrery inspect' shows it";
    case FileKind::kModel:
      return "a job file names it, as in 'model: config.json' (docs/start.md)";
    case FileKind::kResult:
      return "'orrery explain', 'compare' and 'inspect' read it; what it holds as 'config' is its "
             "job file";
    case FileKind::kTimeline:
      return "open it at ui.perfetto.dev";
    case FileKind::kGoal:
      return "'orrery simulate' runs it";
    case FileKind::kRecipe:
      return "'orrery simulate' runs it, 'orrery import' makes a job file of it";
    case FileKind::kSnapshot:
      return "'orrery inspect' shows it";
    case FileKind::kSweep:
      return "'orrery merge' reads it";
    case FileKind::kPlan:
      return "'orrery plan --write FOLDER' writes its plans as job files";
    case FileKind::kAnswer:
      return "it is for other programs";
    case FileKind::kUnknown:
      break;
  }
  return "";
}

Status ExplainWrongKind(Status status, const std::vector<Reading>& read) {
  if (status.code() != Code::kInvalidInput || status.message().starts_with("cannot ")) {
    return status;  // "cannot read …": a file is not there
  }
  for (const Reading& one : read) {
    const std::string start = Beginning(one.path, kMostSniffed);
    const FileKind kind =
        recipes::Sniff(start, one.path) != nullptr ? FileKind::kRecipe : Sniff(start);
    if (kind == FileKind::kUnknown || std::ranges::find(one.kinds, kind) != one.kinds.end()) {
      continue;
    }
    const bool vowel = Name(kind).find_first_of("AEIOUaeiou") == 0;
    return InvalidInput("'{}' is {} {}, which this command does not read: {}", Printable(one.path),
                        vowel ? "an" : "a", Name(kind), Uses(kind));
  }
  return status;
}

std::string_view Name(FileKind kind) {
  switch (kind) {
    case FileKind::kJob:
      return "job file";
    case FileKind::kCluster:
      return "cluster definition";
    case FileKind::kModel:
      return "Hugging Face config.json";
    case FileKind::kResult:
      return "Orrery result";
    case FileKind::kTimeline:
      return "Perfetto timeline";
    case FileKind::kTopology:
      return "topology";
    case FileKind::kGoal:
      return "GOAL schedule";
    case FileKind::kRecipe:
      return "recipe of a training framework";
    case FileKind::kSnapshot:
      return "PyTorch memory snapshot";
    case FileKind::kSweep:
      return "table of a sweep";
    case FileKind::kPlan:
      return "list of plans";
    case FileKind::kAnswer:
      return "answer of another command, as its schema says";
    case FileKind::kUnknown:
      return "unknown";
  }
  return "unknown";
}

FileKind SniffStart(std::string_view start) {
  if (start.starts_with("\x0a") &&
      FindInvalidUtf8(start.substr(0, 256)) != std::string_view::npos) {
    return FileKind::kTimeline;
  }
  if (formats::Pickle::Sniff(start)) return FileKind::kSnapshot;
  if (formats::SniffGoal(start) != formats::GoalForm::kNone) return FileKind::kGoal;
  if (cluster::SniffTopology(start) != cluster::TopologyFile::kUnknown) return FileKind::kTopology;
  return FileKind::kUnknown;
}

FileKind Sniff(std::string_view text) {
  if (const FileKind kind = SniffStart(text); kind != FileKind::kUnknown) return kind;
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool json = first != std::string_view::npos && text[first] == '{';
  const formats::Limits limits{.bytes = 64 << 20, .depth = 64, .values = 5'000'000};
  Result<formats::Document> document =
      json ? formats::ParseJson(text, "", limits) : formats::ParseYaml(text, "");
  if (json && !document.ok()) document = formats::ParseYaml(text, "");  // {preset: h100-ib-400g}
  return document.ok() ? SniffTree(document->root) : FileKind::kUnknown;
}

Result<FileKind> SniffInput(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_other(path, error)) return FileKind::kJob;  // a pipe is read once
  if (path.ends_with(".toml")) return FileKind::kRecipe;              // no job is written so
  const std::string start = Beginning(path, kMostSniffed);
  if (start.substr(0, 4096).find("\"orrery.result/") != std::string::npos) {
    return InvalidInput("'{}' is a result; what it holds as 'config' is the job file of it",
                        Printable(path));
  }
  if (recipes::Sniff(start, path) != nullptr) return FileKind::kRecipe;
  const bool yaml = path.ends_with(".yaml") || path.ends_with(".yml");
  if (yaml && !recipes::LooksLike(start, path).empty() && Sniff(start) != FileKind::kJob) {
    return recipes::UnknownRecipe(start, path);
  }
  return FileKind::kJob;
}

}  // namespace orrery::app
