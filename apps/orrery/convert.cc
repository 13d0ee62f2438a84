#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "arguments.h"
#include "interrupt.h"
#include "orrery/base/file.h"
#include "orrery/base/text.h"
#include "orrery/job/importers.h"
#include "orrery/job/job.h"
#include "orrery/job/simulate.h"
#include "orrery/job/trace.h"
#include "orrery/job/writers.h"
#include "sniff.h"
#include "verb.h"

namespace orrery::app {
namespace {

class ConvertVerb final : public Verb {
 public:
  std::string_view name() const override { return "convert"; }
  std::string_view examples() const override {
    return "  orrery convert schedule.goal -o schedule.graph\n"
           "  orrery convert job.yaml -o job.bin --to goal-binary\n"
           "  orrery convert trace.graph -o trace.goal --cluster h100-ib-400g\n";
  }
  std::string_view description() const override {
    return "write a job or a trace in another trace format, and say what the format cannot express";
  }

  void Declare(CLI::App* app) override {
    app->add_option("FILE", inputs_,
                    "A job file, or a trace ('orrery list formats'): its file, files, folder or "
                    "prefix")
        ->required();
    app->add_option("-o,--output", output_, "The file to write")->required();
    std::string formats;
    for (const job::Writer& w : job::Writers()) {
      formats += fmt::format("{}{}", formats.empty() ? "" : ", ", w.name);
    }
    app->add_option("--to", to_, "Its format, where its name does not say: " + formats);
    app->add_option("--format", format_, "The trace's format, where its content does not say");
    app->add_option(
        "--cluster", cluster_,
        "The cluster that a trace runs on; it decides which messages a collective sends");
    app->add_option("--nodes", nodes_, "How many hosts; default: as many as the ranks need")
        ->transform(WholeIn(1, 1'000'000));
    app->add_option("--set", set_, "key.path=value of the job or the cluster")
        ->allow_extra_args(false);
    app->add_option("--iterations", iterations_,
                    "Steps of a job that repeats, where the format has no repeats (default 1)")
        ->transform(WholeIn(1, 100));
    app->add_option("--json", json_,
                    "Write what the format cannot express as JSON to FILE, or to stdout (-)");
    std::string footer = "Formats that can be written:\n";
    for (const job::Writer& w : job::Writers()) {
      footer += fmt::format("  {:<12} {:<8} {}\n", w.name, w.ending, w.description);
    }
    app->footer(footer);
  }

  Status Run(Session* session) override {
    const job::TraceFiles files = job::OpenTrace(inputs_);
    ORRERY_ASSIGN_OR_RETURN(const job::Importer* const importer, job::FindImporter(files, format_));
    std::vector<NamedFile> read;
    if (importer == nullptr || !files.start.empty()) {
      for (const std::string& input : inputs_) read.push_back({"FILE", input});
    }
    ORRERY_RETURN_IF_ERROR(CheckFiles(read, {{"--output", output_}, {"--json", json_}}));
    ORRERY_ASSIGN_OR_RETURN(const job::Writer* const writer, job::FindWriter(output_, to_));
    WatchOutput(output_);
    job::Written written;
    const auto write = [&](const engine::Inputs& inputs, bool has_cluster) -> Status {
      ORRERY_ASSIGN_OR_RETURN(written,
                              writer->write({&inputs, has_cluster, static_cast<int>(iterations_)}));
      return {};
    };
    if (importer != nullptr) {
      job::TraceOptions options;
      options.cluster = cluster_;
      options.nodes = static_cast<int>(nodes_);
      options.set = set_;
      const constants::Set constants = constants::Set::Fitted();
      options.constants = &constants;
      ORRERY_RETURN_IF_ERROR(job::WithTrace(
          *importer, files, options,
          [&](const engine::Inputs& inputs) { return write(inputs, !cluster_.empty()); }));
    } else {
      ORRERY_RETURN_IF_ERROR(FromJob(write));
      written.lost.emplace_back(
          "what the job says beside its graph: perturbations, the time of its input pipeline");
    }
    if (written.files.empty()) ORRERY_RETURN_IF_ERROR(WriteFile(output_, written.bytes));
    const std::string prefix = output_.ends_with(writer->ending)
                                   ? output_.substr(0, output_.size() - writer->ending.size())
                                   : output_;
    for (const auto& [ending, bytes] : written.files) {
      ORRERY_RETURN_IF_ERROR(WriteFile(prefix + ending, bytes));
    }
    return Answer(session, *writer, written);
  }

  std::vector<Reading> reads() const override {
    return {{inputs_.front(),
             {FileKind::kJob, FileKind::kCluster, FileKind::kRecipe, FileKind::kGoal,
              FileKind::kTopology}}};
  }

 private:
  template <class Write>
  Status FromJob(const Write& write) const {
    if (inputs_.size() > 1) {
      return InvalidInput("{}: one job at a time, and {} is no trace", Printable(inputs_[1]),
                          Printable(inputs_[0]));
    }
    if (!cluster_.empty() || nodes_ > 0) {
      return InvalidInput(
          "--cluster and --nodes say where a trace runs; a job says so itself (--set cluster.…)");
    }
    ORRERY_RETURN_IF_ERROR(job::CheckNoTrace(job::OpenTrace(inputs_)));
    ORRERY_ASSIGN_OR_RETURN(const FileKind kind, SniffInput(inputs_[0]));
    if (kind == FileKind::kRecipe) {
      return InvalidInput("{} is a recipe: 'orrery import' makes a job of it, which convert takes",
                          Printable(inputs_[0]));
    }
    job::ReadOptions read;
    read.set = set_;
    ORRERY_ASSIGN_OR_RETURN(const job::Job job, job::ReadJob(inputs_[0], read));
    job::Caches caches;
    ORRERY_ASSIGN_OR_RETURN(const job::Simulation simulation,
                            job::Simulation::Prepare(job, {}, &caches));
    return write(simulation.inputs(), true);
  }

  Status Answer(Session* session, const job::Writer& writer, const job::Written& written) const {
    std::size_t size = written.bytes.size();
    for (const auto& file : written.files) size += file.second.size();
    std::string text = fmt::format("{}: {}, {}\n", Printable(output_), writer.description,
                                   HumanBytes(static_cast<std::int64_t>(size)));
    for (const std::string& lost : written.lost) text += fmt::format("  not in it: {}\n", lost);
    const nlohmann::ordered_json json = {{"schema", "orrery.convert/1"},
                                         {"file", output_},
                                         {"format", writer.name},
                                         {"bytes", size},
                                         {"lost", written.lost}};
    return session->Answer(
        json_, json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n",
        text);
  }

  std::vector<std::string> inputs_, set_;
  std::string output_, to_, format_, cluster_, json_;
  std::int64_t nodes_ = 0, iterations_ = 1;
};

}  // namespace

std::unique_ptr<Verb> MakeConvert() { return std::make_unique<ConvertVerb>(); }

}  // namespace orrery::app
