#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arguments.h"
#include "interrupt.h"
#include "orrery/base/file.h"
#include "orrery/base/text.h"
#include "orrery/job/astra.h"
#include "orrery/job/importers.h"
#include "orrery/job/job.h"
#include "orrery/job/simulate.h"
#include "orrery/job/trace.h"
#include "orrery/results/json.h"
#include "orrery/results/report.h"
#include "orrery/results/trace.h"
#include "orrery/search/advise/advise.h"
#include "orrery/search/calibrate/calibrate.h"
#include "recipe_options.h"
#include "sniff.h"
#include "verb.h"

namespace orrery::app {
namespace {

class SimulateVerb final : public Verb {
 public:
  std::string_view name() const override { return "simulate"; }
  std::string_view examples() const override {
    return "  orrery simulate examples/llama3.1-405b-16k-h100.yaml\n"
           "  orrery simulate job.yaml --set parallel.tp=4 --set parallel.dp=16 --json "
           "result.json\n"
           "  orrery simulate train.sh --cluster h100-ib-400g --nodes 16 --timeline run.pftrace\n";
  }
  std::string_view description() const override {
    return "predict step time, memory and network use of a job";
  }

  void Declare(CLI::App* app) override {
    app_ = app;
    app->add_option("JOB", inputs_,
                    "Job file (YAML or JSON), a launch script or a framework's configuration, or a "
                    "trace ('orrery list formats'): its file, files, folder or prefix");
    app->add_option("--format", format_, "The trace's format, where its content does not say");
    app->add_option(
           "--data", data_,
           "Folder of tables of your own: devices.yaml, models.yaml, … (docs/formats/data.md)")
        ->allow_extra_args(false);
    app->add_option("--network", network_, "Network back end ('orrery list networks')");
    app->add_option("--set", set_, "key.path=value: overrides a key of the job file")
        ->allow_extra_args(false);
    app->add_option("--json", json_, "Write the result as JSON to FILE, or to stdout (-)");
    app->add_option("--timeline", timeline_, "Write a Perfetto timeline (open at ui.perfetto.dev)");
    app->add_option("--heat-map", heat_map_,
                    "Draw the cluster's links by the share of their capacity that was used (SVG)");
    app->add_option("--timeline-ranks", timeline_ranks_,
                    "Ranks on the timeline, as 0,8,16-19; default: one per pipeline stage");
    app->add_option("--calibration", calibration_, "Constants from 'orrery calibrate'");
    app->add_flag("--full", full_,
                  "The whole report: every stage, memory by part, network, origin of the numbers");
    app->add_flag(
        "--no-advice", no_advice_,
        "Do not try a change of the job; without it the report (not --json) names one that helps");
    app->add_flag("--no-fold", no_fold_, "Simulate every rank, even those that behave alike");
    app->add_option(
        "--threads", threads_,
        "Threads for runs over links (--network flow, links, loggops, packet); one with "
        "a timeline (but on packet), and for several jobs over links or loggops");
    app->add_option("--seed", seed_, "Seed of jitter and random placement");
    app->add_option("--csv", csv_, "Traces: write a line for each rank to FILE");
    app->add_flag("--strict", strict_, "Refuse a trace that leaves out something its run needs");
    recipe_.Declare(app);
    DeclareAstra(app);
    app->footer(
        "Keys of --set: 'orrery schema job --keys', of traces 'orrery schema trace --keys'.\n");
  }

  Status Run(Session* session) override {
    if (format_ == "astra-sim") return RunAstra(session);
    for (const char* option : kAstraOptions) {
      if (app_->count(option) == 0) continue;
      return InvalidInput("{}: is for --format astra-sim", option);
    }
    if (inputs_.empty()) {
      return InvalidInput("JOB is missing; 'orrery simulate --help' says what it is");
    }
    const job::TraceFiles files = job::OpenTrace(inputs_);
    input_ = inputs_.front();
    ORRERY_ASSIGN_OR_RETURN(const job::Importer* const importer, job::FindImporter(files, format_));
    std::vector<NamedFile> read_files = {{"--calibration", calibration_}};
    if (importer == nullptr || !files.start.empty()) {
      for (const std::string& input : inputs_) read_files.push_back({"JOB", input});
    }
    ORRERY_RETURN_IF_ERROR(CheckFiles(read_files, {{"--json", json_},
                                                   {"--timeline", timeline_},
                                                   {"--heat-map", heat_map_},
                                                   {"--csv", csv_}}));
    const bool trace = importer != nullptr;
    FileKind kind = FileKind::kJob;
    if (!trace) {
      ORRERY_ASSIGN_OR_RETURN(kind, JobOrRecipe());
    }
    job::ReadOptions read;
    ORRERY_RETURN_IF_ERROR(FillReadOptions(&read));
    if (!timeline_ranks_.empty() && timeline_.empty()) {
      return InvalidInput("--timeline-ranks needs --timeline FILE");
    }
    if (!trace && kind != FileKind::kRecipe) ORRERY_RETURN_IF_ERROR(job::CheckNoTrace(files));
    if (kind != FileKind::kRecipe) ORRERY_RETURN_IF_ERROR(RefuseRecipeOptions(trace));
    if (trace) return RunTrace(session, *importer, files);
    if (!csv_.empty() || strict_) {
      return InvalidInput("{}: is for traces, and {} is none", strict_ ? "--strict" : "--csv",
                          Printable(input_));
    }
    return RunJob(session, kind, std::move(read));
  }

  std::vector<Reading> reads() const override {
    if (inputs_.empty()) return {};
    return {{inputs_.front(),
             {FileKind::kJob, FileKind::kCluster, FileKind::kRecipe, FileKind::kGoal,
              FileKind::kTopology}}};
  }

 private:
  // Whether what is no trace is a job or a recipe.
  Result<FileKind> JobOrRecipe() const {
    FileKind kind = FileKind::kJob;
    for (std::size_t i = 0; i < inputs_.size() && kind != FileKind::kRecipe; ++i) {
      ORRERY_ASSIGN_OR_RETURN(const FileKind one, SniffInput(inputs_[i]));
      if (i == 0 || one == FileKind::kRecipe) kind = one;  // a recipe may bring its model's file
    }
    if (inputs_.size() > 1 && kind != FileKind::kRecipe) {
      return InvalidInput("{}: one job at a time, and {} is no trace", Printable(inputs_[1]),
                          Printable(input_));
    }
    return kind;
  }

  Status FillReadOptions(job::ReadOptions* read) const {
    read->set = set_;
    read->network = network_;
    read->fold = !no_fold_;
    read->tenants = true;
    ORRERY_ASSIGN_OR_RETURN(const std::int64_t threads,
                            WholeNumber("--threads", threads_, 1, 1024));
    read->threads = static_cast<int>(threads);
    if (seed_) {
      constexpr std::int64_t kLargestSeed = std::int64_t{1} << 62;
      ORRERY_ASSIGN_OR_RETURN(const std::int64_t seed,
                              WholeNumber("--seed", *seed_, 0, kLargestSeed));
      read->seed = static_cast<std::uint64_t>(seed);
    }
    return {};
  }

  // For all that is no recipe; a trace takes some of them.
  Status RefuseRecipeOptions(bool trace) const {
    for (const std::string_view option : {"--cluster", "--nodes", "--gpus", "--model", "--from",
                                          "--env", "--args", "--leave-out"}) {
      const bool place = option == "--cluster" || option == "--nodes";
      if (app_->count(std::string(option)) == 0 || (trace && place)) continue;
      return InvalidInput(
          "{}: is for recipes of training frameworks; {} is none ('--set' "
          "changes a key of a job)",
          option, Printable(input_));
    }
    return {};
  }

  Status RunJob(Session* session, FileKind kind, job::ReadOptions read) {
    if (!calibration_.empty()) {
      ORRERY_ASSIGN_OR_RETURN(read.constants, search::ReadCalibration(calibration_));
    }
    ORRERY_ASSIGN_OR_RETURN(read.data, job::ReadData(data_));
    ORRERY_ASSIGN_OR_RETURN(job::Job job, kind == FileKind::kRecipe ? ReadRecipe(session, read)
                                                                    : job::ReadJob(input_, read));
    if (!calibration_.empty()) {
      job.assumed.push_back(fmt::format("constants of {}", Printable(calibration_)));
    }
    job::SimulateOptions options;
    options.measured_database = Session::MeasuredDatabase();
    options.timeline = timeline_;
    options.timeline_ranks = timeline_ranks_;
    options.heat_map = heat_map_;
    WatchOutput(heat_map_);
    WatchOutput(timeline_);
    ORRERY_ASSIGN_OR_RETURN(results::RunResult result, job::Simulate(job, options));
    if (kind != FileKind::kRecipe) AddAdvice(read, &result);
    ORRERY_RETURN_IF_ERROR(
        session->Answer(json_, results::ToJson(result),
                        results::Report(result, {.color = session->color(), .full = full_})));
    NoteTimeline(session);
    if (result.out_of_memory()) {
      return Infeasible("out of device memory: {} does not fit {} GPUs; the report says where",
                        Printable(input_), HumanBytes(job.cluster.device.memory_bytes));
    }
    return {};
  }

  void NoteTimeline(Session* session) const {
    if (timeline_.empty()) return;
    session->Note(fmt::format("timeline: {} (open it at ui.perfetto.dev)", Printable(timeline_)));
  }

  // What one change of the job would bring, for the report on the terminal: it costs a few more
  // runs. Where none could be tried the report goes without.
  void AddAdvice(const job::ReadOptions& read, results::RunResult* result) const {
    if (no_advice_ || !json_.empty() || result->jobs.size() != 1 || result->sharing) return;
    const Result<search::Template> base =
        search::ReadTemplate(input_, read, Session::MeasuredDatabase());
    if (!base.ok()) return;
    Result<std::string> advice =
        search::Advise(*base, result->jobs.front(), result->simulation.events);
    if (advice.ok()) result->jobs.front().advice = *std::move(advice);
  }

  // A launch script or a framework's configuration, by way of the job that `import` makes of it.
  Result<job::Job> ReadRecipe(Session* session, const job::ReadOptions& read) {
    ORRERY_ASSIGN_OR_RETURN(recipes::Options options, recipe_.Resolve());
    options.read = read;
    ORRERY_ASSIGN_OR_RETURN(recipes::Imported imported, recipes::Import(inputs_, options));
    const auto count = [&](recipes::Effect effect) {
      return std::ranges::count(imported.uses, effect, &recipes::Use::effect);
    };
    session->Note(fmt::format(
        "{}: {} arguments of a recipe, {} without effect, {} left out; 'orrery import' shows the "
        "job and names them",
        Printable(input_), imported.uses.size(), count(recipes::Effect::kInert),
        count(recipes::Effect::kRefused)));
    return std::move(imported.job);
  }

  // A file that brings its own operations.
  Status RunTrace(Session* session, const job::Importer& importer, const job::TraceFiles& files) {
    for (const char* option :
         {"--heat-map", "--calibration", "--data", "--no-fold", "--threads", "--seed"}) {
      if (app_->count(option) == 0) continue;
      return InvalidInput("{}: is for job files, not for a trace ({})", option, importer.title);
    }
    job::TraceOptions options;
    options.network = network_.value_or("");
    options.cluster = recipe_.cluster;
    options.strict = strict_;
    options.nodes = static_cast<int>(recipe_.nodes);
    options.set = set_;
    options.timeline = timeline_;
    options.timeline_ranks = timeline_ranks_;
    const constants::Set constants = constants::Set::Fitted();
    options.constants = &constants;
    WatchOutput(timeline_);
    WatchOutput(csv_);
    ORRERY_ASSIGN_OR_RETURN(const results::TraceResult result,
                            job::SimulateTrace(importer, files, options));
    ORRERY_RETURN_IF_ERROR(AnswerTrace(session, result));
    NoteTimeline(session);
    if (result.out_of_memory()) {
      return Infeasible("out of device memory: {} does not fit; the report says where",
                        Printable(input_));
    }
    return {};
  }

  Status AnswerTrace(Session* session, const results::TraceResult& result) const {
    if (!csv_.empty()) ORRERY_RETURN_IF_ERROR(WriteFile(csv_, results::ToCsv(result)));
    const std::string json = json_.empty() ? std::string() : results::ToJson(result);
    return session->Answer(json_, json, results::Report(result));
  }

  // ASTRA-sim's own options.
  static constexpr const char* kAstraOptions[] = {"--workload-configuration",
                                                  "--system-configuration",
                                                  "--network-configuration",
                                                  "--remote-memory-configuration",
                                                  "--comm-group-configuration",
                                                  "--num-queues-per-dim",
                                                  "--injection-scale",
                                                  "--rendezvous-protocol",
                                                  "--comm-scale",
                                                  "--compute-scale",
                                                  "--logging-configuration",
                                                  "--logging-folder"};
  void DeclareAstra(CLI::App* app) {
    std::string* const paths[] = {
        &astra_.workload_configuration, &astra_.system_configuration, &astra_.network_configuration,
        &astra_.remote_memory_configuration, &astra_.comm_group_configuration};
    for (std::size_t i = 0; i < std::size(paths); ++i) {
      app->add_option(kAstraOptions[i], *paths[i], "As ASTRA-sim's (docs/formats/chakra.md)")
          ->group("");
    }
    app->add_option("--num-queues-per-dim", astra_.num_queues_per_dim, "As ASTRA-sim's")
        ->transform(WholeIn(1, 4096))
        ->group("");
    app->add_option("--injection-scale", astra_.injection_scale, "As ASTRA-sim's")
        ->check(CLI::Range(0.0, 1e6))
        ->group("");
    app->add_option("--rendezvous-protocol", astra_.rendezvous_protocol, "As ASTRA-sim's")
        ->expected(0, 1)
        ->default_str("true")
        ->group("");
    for (std::size_t i = 8; i < std::size(kAstraOptions); ++i) {
      app->add_option(kAstraOptions[i], astra_unused_, "Taken and not used, as ASTRA-sim does")
          ->group("");
    }
  }

  Status RunAstra(Session* session) {
    for (const char* option : {"--network", "--cluster", "--nodes", "--heat-map", "--calibration",
                               "--threads", "--seed"}) {
      if (app_->count(option) == 0) continue;
      return InvalidInput(
          "{}: is not for --format astra-sim, whose files say where it runs; "
          "'orrery simulate PREFIX --cluster …' runs its traces elsewhere",
          option);
    }
    if (!inputs_.empty() && astra_.workload_configuration.empty()) {
      astra_.workload_configuration = inputs_.front();
    }
    ORRERY_RETURN_IF_ERROR(
        CheckFiles({{"--system-configuration", astra_.system_configuration},
                    {"--network-configuration", astra_.network_configuration},
                    {"--remote-memory-configuration", astra_.remote_memory_configuration}},
                   {{"--json", json_}, {"--csv", csv_}, {"--timeline", timeline_}}));
    if (!timeline_ranks_.empty() && timeline_.empty()) {
      return InvalidInput("--timeline-ranks needs --timeline FILE");
    }
    astra_.set = set_;
    astra_.fold = !no_fold_;
    astra_.timeline = timeline_;
    astra_.timeline_ranks = timeline_ranks_;
    WatchOutput(timeline_);
    WatchOutput(csv_);
    ORRERY_ASSIGN_OR_RETURN(const results::TraceResult result, job::SimulateAstra(astra_));
    return AnswerTrace(session, result);
  }

  job::AstraOptions astra_;
  std::string astra_unused_, csv_;
  CLI::App* app_ = nullptr;
  std::vector<std::string> inputs_;
  std::string format_;
  std::string input_, calibration_, json_, timeline_, timeline_ranks_, heat_map_;
  std::vector<std::string> set_, data_;
  std::optional<std::string> network_;
  std::optional<std::string> seed_;
  std::string threads_ = "1";
  bool no_fold_ = false, strict_ = false, full_ = false, no_advice_ = false;
  RecipeOptions recipe_;
};

}  // namespace

std::unique_ptr<Verb> MakeSimulate() { return std::make_unique<SimulateVerb>(); }

}  // namespace orrery::app
