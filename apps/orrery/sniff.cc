#include "sniff.h"

#include <filesystem>
#include <fstream>
#include <system_error>

#include "orrery/base/text.h"
#include "orrery/cluster/readers/readers.h"
#include "orrery/formats/goal.h"
#include "orrery/formats/pickle.h"
#include "orrery/formats/tree.h"
#include "orrery/recipes/import.h"

namespace orrery::app {
namespace {

FileKind SniffTree(const formats::Node& root) {
  if (const formats::Node* schema = root.Find("schema")) {
    if (schema->text.starts_with("orrery.result/")) return FileKind::kResult;
  }
  if (root.Find("model_type") != nullptr) return FileKind::kModel;
  for (const char* key : {"model", "training", "parallel", "jobs"}) {
    if (root.Find(key) != nullptr) return FileKind::kJob;
  }
  for (const char* key : {"device", "gpus_per_node", "nic_bandwidth", "preset", "cluster"}) {
    if (root.Find(key) != nullptr) return FileKind::kCluster;
  }
  return FileKind::kUnknown;
}

}  // namespace

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
  std::ifstream file(path, std::ios::binary);
  std::string start(4096, '\0');
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  start.resize(static_cast<std::size_t>(file.gcount()));
  if (start.find("\"orrery.result/") != std::string::npos) {
    return InvalidInput("'{}' is a result; what it holds as 'config' is the job file of it",
                        Printable(path));
  }
  constexpr std::size_t kMostBytes = 4 << 20;  // a recipe's
  start.resize(kMostBytes);
  file.clear();
  file.seekg(0);
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  start.resize(static_cast<std::size_t>(file.gcount()));
  return recipes::Sniff(start, path) != nullptr ? FileKind::kRecipe : FileKind::kJob;
}

}  // namespace orrery::app
