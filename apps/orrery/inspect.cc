#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "orrery/base/file.h"
#include "orrery/base/text.h"
#include "orrery/formats/tree.h"
#include "orrery/graph/binary_form.h"
#include "orrery/graph/text_form.h"
#include "orrery/job/inspect.h"
#include "orrery/results/table.h"
#include "sniff.h"
#include "verb.h"

namespace orrery::app {
namespace {

constexpr std::int64_t kLargestFile = std::int64_t{4} << 30;

class InspectVerb final : public Verb {
 public:
  std::string_view name() const override { return "inspect"; }
  std::string_view description() const override { return "say what a file is and what it holds"; }
  void Declare(CLI::App* app) override {
    app->add_option("FILE", path_, "Job, cluster, model, graph or result")->required();
    app->add_option("--json", json_, "As JSON to FILE, or to stdout (-)");
  }
  Status Run(Session* session) override {
    ORRERY_ASSIGN_OR_RETURN(const std::string text, ReadFile(path_, kLargestFile));
    const FileKind kind = Sniff(text);
    ORRERY_ASSIGN_OR_RETURN(const job::Facts facts, FactsOf(kind, text));
    results::TextTable table;
    nlohmann::ordered_json holds = nlohmann::ordered_json::object();
    table.Row({Printable(path_, 60), std::string(Name(kind))});
    for (const auto& [what, value] : facts) {
      table.Row({"  " + what, Printable(value, 400)});
      holds[what] = value;
    }
    const nlohmann::ordered_json json = {{"schema", "orrery.inspect/1"},
                                         {"file", path_},
                                         {"kind", Name(kind)},
                                         {"holds", std::move(holds)}};
    const std::string dumped =
        json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    return session->Answer(json_, dumped + "\n", table.Render(""));
  }

 private:
  Result<job::Facts> FactsOf(FileKind kind, const std::string& text) const {
    const auto named = [&](Status status) {
      return std::move(status).In(fmt::format("'{}'", Printable(path_)));
    };
    switch (kind) {
      case FileKind::kGraphText: {
        Result<graph::Graph> graph = graph::FromText(text);
        if (!graph.ok()) return named(std::move(graph).TakeStatus());
        return job::GraphFacts(*graph);
      }
      case FileKind::kGraphBinary: {
        Result<graph::Graph> graph = graph::FromBinary(text);
        if (!graph.ok()) return named(std::move(graph).TakeStatus());
        return job::GraphFacts(*graph);
      }
      case FileKind::kJob:
        return job::JobFacts(path_);
      case FileKind::kModel:
        return job::ModelFacts(path_);
      case FileKind::kCluster:
        return job::ClusterFacts(path_);
      case FileKind::kResult:
        return job::ResultFacts(text, path_);
      case FileKind::kTimeline:
        return job::Facts{{"size", HumanBytes(static_cast<std::int64_t>(text.size()))},
                          {"open it at", "ui.perfetto.dev"}};
      case FileKind::kUnknown:
        break;
    }
    return Unknown(text);
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
    return InvalidInput("'{}' is no file that Orrery knows; 'orrery list formats' lists those",
                        Printable(path_));
  }

  std::string path_, json_;
};

}  // namespace

std::unique_ptr<Verb> MakeInspect() { return std::make_unique<InspectVerb>(); }

}  // namespace orrery::app
