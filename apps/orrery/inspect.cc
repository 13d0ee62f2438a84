#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "arguments.h"
#include "interrupt.h"
#include "orrery/base/file.h"
#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/cluster/draw.h"
#include "orrery/cluster/readers/readers.h"
#include "orrery/formats/goal.h"
#include "orrery/formats/tree.h"
#include "orrery/job/importers.h"
#include "orrery/job/inspect.h"
#include "orrery/job/inspect_graph.h"
#include "orrery/job/inspect_snapshot.h"
#include "orrery/recipes/import.h"
#include "orrery/results/table.h"
#include "sniff.h"
#include "verb.h"

namespace orrery::app {
namespace {

constexpr std::int64_t kLargestFile = std::int64_t{4} << 30;
constexpr std::int64_t kLargestText = 4 << 20;  // a recipe's

// How many bytes are read at most of a file that begins so.
std::int64_t LimitOf(std::string_view start) {
  const FileKind kind = SniffStart(start);
  if (kind == FileKind::kTopology) return cluster::kTopologyBytes;
  if (kind != FileKind::kUnknown) return kLargestFile;
  const std::size_t first = start.find_first_not_of(" \t\r\n");
  const bool json = first == std::string_view::npos || start[first] == '{';
  return json ? kLargestResult : kLargestText;
}

class InspectVerb final : public Verb {
 public:
  std::string_view name() const override { return "inspect"; }
  std::string_view examples() const override {
    return "  orrery inspect job.yaml\n"
           "  orrery inspect h100-ib-400g --nodes 16 --svg cluster.svg\n"
           "  orrery inspect trace.goal\n";
  }
  std::string_view description() const override {
    return "show what a file contains; draw a topology";
  }
  void Declare(CLI::App* app) override {
    app->add_option(
           "FILE", path_,
           "Job, cluster, topology, model, graph, GOAL schedule or result; or a cluster's name")
        ->required();
    app->add_option("--nodes", nodes_, "Hosts of a cluster whose definition leaves them open")
        ->transform(WholeIn(1, 1 << 20));
    app->add_option("--svg", svg_, "Draw the cluster's network to FILE");
    app->add_option("--dot", dot_, "The same for Graphviz");
    app->add_option("--set", set_, "Traces: key.path=value of their importer, as for simulate")
        ->allow_extra_args(false);
    app->add_option("--data", data_folders_, "Folder of tables of your own, known beside the rest")
        ->allow_extra_args(false);
    app->add_option("--json", json_, "As JSON to FILE, or to stdout (-)");
  }
  Status Run(Session* session) override {
    ORRERY_ASSIGN_OR_RETURN(data_, job::ReadData(data_folders_));
    ORRERY_RETURN_IF_ERROR(CheckFiles({{"FILE", IsPreset() ? "" : path_}},
                                      {{"--json", json_}, {"--svg", svg_}, {"--dot", dot_}}));
    std::int64_t limit = 0;
    if (!IsPreset()) {
      const job::TraceFiles files = job::OpenTrace({path_});
      limit = LimitOf(files.start);
      ORRERY_ASSIGN_OR_RETURN(const job::Importer* const importer, job::FindImporter(files, ""));
      if (importer != nullptr && importer->name != "goal") {
        return InspectTrace(session, *importer, files);
      }
    }
    std::string text;
    FileKind kind = FileKind::kCluster;
    if (!IsPreset()) {
      ORRERY_RETURN_IF_ERROR(CheckName());
      ORRERY_ASSIGN_OR_RETURN(text, ReadFile(path_, limit));
      kind = recipes::Sniff(text, path_) != nullptr ? FileKind::kRecipe : Sniff(text);
    }
    if (WantsCluster()) {
      if (kind == FileKind::kJob) kind = FileKind::kCluster;  // of the job
      if (kind != FileKind::kCluster && kind != FileKind::kTopology && kind != FileKind::kUnknown) {
        return NoCluster(Name(kind));
      }
    }
    if (kind == FileKind::kSnapshot) {
      ORRERY_ASSIGN_OR_RETURN(const job::GraphFacts found, job::SnapshotFacts(text, path_));
      return Answer(session, Name(kind), found.facts, found.tables);
    }
    ORRERY_ASSIGN_OR_RETURN(const job::Facts facts, FactsOf(kind, text));
    return Answer(session, Name(kind), facts, {});
  }

 private:
  bool WantsCluster() const { return nodes_ > 0 || !svg_.empty() || !dot_.empty(); }
  Status NoCluster(std::string_view kind) const {
    return InvalidInput(
        "'{}' is no cluster ({}); --nodes, --svg and --dot are for clusters, topologies and jobs",
        Printable(path_), kind);
  }

  Status Answer(Session* session, std::string_view kind, const job::Facts& facts,
                std::span<const job::FactTable> tables) const {
    results::TextTable table;
    nlohmann::ordered_json holds = nlohmann::ordered_json::object();
    table.Row({Printable(path_, 60), std::string(kind)});
    for (const auto& [what, value] : facts) {
      table.Row({"  " + what, Printable(value, 400)});
      holds[what] = value;
    }
    std::string shown = table.Render("");
    nlohmann::ordered_json listed = nlohmann::ordered_json::array();
    for (const job::FactTable& t : tables) {
      results::TextTable text;
      text.Row(t.columns);
      for (const std::vector<std::string>& row : t.rows) text.Row(row);
      for (std::size_t c = 0; c < t.columns.size(); ++c) {
        if (t.columns[c] != "operation" && t.columns[c] != "group" && t.columns[c] != "kind") {
          text.AlignRight(c);
        }
      }
      shown += fmt::format("\n{}\n{}", t.title, text.Render("  "));
      listed.push_back({{"title", t.title}, {"columns", t.columns}, {"rows", t.rows}});
    }
    nlohmann::ordered_json json = {{"schema", "orrery.inspect/1"},
                                   {"file", path_},
                                   {"kind", kind},
                                   {"holds", std::move(holds)}};
    if (!tables.empty()) json["tables"] = std::move(listed);
    const std::string dumped =
        json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    return session->Answer(json_, dumped + "\n", shown);
  }

  // A graph, or what an importer makes one of.
  Status InspectTrace(Session* session, const job::Importer& importer,
                      const job::TraceFiles& files) const {
    if (WantsCluster()) return NoCluster(importer.description);
    ORRERY_ASSIGN_OR_RETURN(const formats::Section options, job::ReadImporterKeys(importer, set_));
    ORRERY_ASSIGN_OR_RETURN(const job::ImportedTrace trace,
                            importer.read(files, {.options = &options}));
    const job::GraphFacts found = job::FactsOfGraph(trace.graph);
    for (const std::string& warning : trace.warnings) session->Note("warning: " + warning);
    return Answer(session, importer.description, found.facts, found.tables);
  }

  Result<job::Facts> FactsOf(FileKind kind, const std::string& text) const {
    switch (kind) {
      case FileKind::kJob:
        return job::JobFacts(path_, data_);
      case FileKind::kModel:
        return job::ModelFacts(path_, data_);
      case FileKind::kCluster:
      case FileKind::kTopology:
        return Network();
      case FileKind::kGoal: {
        ORRERY_ASSIGN_OR_RETURN(const formats::GoalSchedule schedule,
                                formats::ParseGoal(text, path_));
        return job::GoalFacts(schedule);
      }
      case FileKind::kResult:
        return job::ResultFacts(text, path_);
      case FileKind::kTimeline:
        return job::Facts{{"size", HumanBytes(static_cast<std::int64_t>(text.size()))},
                          {"open it at", "ui.perfetto.dev"}};
      case FileKind::kSweep:
      case FileKind::kPlan:
      case FileKind::kAnswer:
        return job::Facts{{"use", std::string(Uses(kind))}};
      case FileKind::kRecipe:
        return job::Facts{
            {"recipe", std::string(recipes::Sniff(text, path_)->description)},
            {"as a job", fmt::format("orrery import {} --cluster NAME", Printable(path_))}};
      case FileKind::kSnapshot:
      case FileKind::kUnknown:
        break;
    }
    return Unknown(text);
  }

  const std::vector<cluster::Preset>& Clusters() const {
    return (data_ != nullptr ? *data_ : job::BuiltInData()).clusters.clusters();
  }

  bool IsPreset() const {
    return std::ranges::any_of(Clusters(),
                               [&](const cluster::Preset& preset) { return preset.name == path_; });
  }

  // A word that is no file was meant as a cluster.
  Status CheckName() const {
    if (path_.find_first_of("./") != std::string::npos || access(path_.c_str(), F_OK) == 0) {
      return {};
    }
    std::vector<std::string_view> names;
    for (const cluster::Preset& preset : Clusters()) names.push_back(preset.name);
    return InvalidInput("no such file, and {}", UnknownName("cluster", Printable(path_), names));
  }

  Result<job::Facts> Network() const {
    ORRERY_ASSIGN_OR_RETURN(const cluster::Cluster cluster,
                            job::InspectedCluster(path_, nodes_, data_));
    WatchOutput(svg_);
    WatchOutput(dot_);
    if (!svg_.empty()) ORRERY_RETURN_IF_ERROR(WriteFile(svg_, cluster::DrawSvg(cluster)));
    if (!dot_.empty()) ORRERY_RETURN_IF_ERROR(WriteFile(dot_, cluster::DrawDot(cluster)));
    return job::ClusterFacts(cluster);
  }

  // A file that is nearly YAML or JSON says more through its parser's error.
  Result<job::Facts> Unknown(const std::string& text) const {
    const std::size_t first = text.find_first_not_of(" \t\r\n");
    if (first == std::string::npos) return InvalidInput("'{}' is empty", Printable(path_));
    if (FindInvalidUtf8(text) == std::string_view::npos) {
      ORRERY_RETURN_IF_ERROR(
          (text[first] == '{' ? formats::ParseJson(text, path_) : formats::ParseYaml(text, path_))
              .status());
    }
    return InvalidInput(
        "'{}' is no file that inspect knows; 'orrery list formats' lists those that are",
        Printable(path_));
  }

  std::string path_, json_, svg_, dot_;
  std::vector<std::string> set_, data_folders_;
  std::shared_ptr<const job::Data> data_;
  int nodes_ = 0;
};

}  // namespace

std::unique_ptr<Verb> MakeInspect() { return std::make_unique<InspectVerb>(); }

}  // namespace orrery::app
