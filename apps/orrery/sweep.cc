#include "orrery/search/sweep/sweep.h"

#include <fmt/format.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "arguments.h"
#include "interrupt.h"
#include "on_ray.h"
#include "orrery/base/file.h"
#include "orrery/base/text.h"
#include "orrery/search/calibrate/calibrate.h"
#include "progress.h"
#include "verb.h"

namespace orrery::app {
namespace {

// "2/8".
Status ParseShard(const std::string& text, search::SweepOptions* options) {
  const std::size_t slash = text.find('/');
  if (slash != std::string::npos) {
    const auto shards = WholeNumber("--shard", text.substr(slash + 1), 1, 1'000'000);
    if (shards.ok()) {
      ORRERY_ASSIGN_OR_RETURN(const std::int64_t shard,
                              WholeNumber("--shard", text.substr(0, slash), 1, *shards));
      options->shard = static_cast<int>(shard);
      options->shards = static_cast<int>(*shards);
      return {};
    }
  }
  return InvalidInput("--shard {}: write i/n, the i-th of n parts, such as 1/8",
                      Printable(text, 40));
}

Status WriteOutputs(const search::Sweep& sweep, const std::string& csv, const std::string& plot) {
  if (!csv.empty()) ORRERY_RETURN_IF_ERROR(WriteFile(csv, search::SweepToCsv(sweep)));
  if (!plot.empty()) ORRERY_RETURN_IF_ERROR(WriteFile(plot, search::SweepToSvg(sweep)));
  return {};
}

class SweepVerb final : public Verb {
 public:
  std::string_view name() const override { return "sweep"; }
  std::string_view examples() const override {
    return "  orrery sweep job.yaml --vary cluster.nic_bandwidth=200Gb/s,400Gb/s --plot sweep.svg\n"
           "  orrery sweep job.yaml --vary parallel.tp=1..8:*2 --vary training.micro_batch=1,2 "
           "--csv sweep.csv\n"
           "  orrery sweep job.yaml --scale nodes=1x,2x,4x --keep global-batch\n";
  }
  std::string_view description() const override {
    return "simulate a job with several values of its keys, side by side";
  }

  void Declare(CLI::App* app) override {
    app->add_option("JOB", input_, "Job file (YAML or JSON)")->required();
    app->add_option("--vary", vary_,
                    "key.path=values; several make a grid. Values: 1,2,4; 1..8; 0..64:16; 1..64:*2")
        ->allow_extra_args(false);
    app->add_option("--zip", zip_, "key.path=values; keys of all --zip change together")
        ->allow_extra_args(false);
    app->add_option("--list", list_, "CSV with keys as header: a row is a run");
    app->add_option("--scale", scale_,
                    "nodes=1x,2x,4x: multiply the nodes, and data parallelism with them");
    app->add_option("--keep", keep_,
                    "With --scale: batch-per-replica (weak scaling, default) or global-batch");
    app->add_option("--set", set_, "key.path=value: overrides a key of the job file")
        ->allow_extra_args(false);
    app->add_option("--network", network_, "Network back end ('orrery list networks')");
    app->add_option("--calibration", calibration_, "Constants from 'orrery calibrate'");
    app->add_flag(
        "--quick", quick_,
        "Do not replay the allocator: memory is then that of live tensors, a lower bound");
    app->add_option("--threads", threads_, "Threads; default: one per core");
    app->add_option("--on", on_, "ray: in pieces on a Ray cluster (docs/plan.md)");
    app->add_option("--pieces", pieces_,
                    "With --on ray: how many; default: 4 a core of the cluster");
    app->add_option("--shard", shard_, "i/n: every n-th run, from the i-th on; see merge");
    app->add_option("--resume", journal_,
                    "Keep rows in FILE as they come; the same command then goes on where it ended");
    app->add_option("--csv", csv_, "Write the table as CSV");
    app->add_option("--plot", plot_, "Draw tokens/s against the first key (SVG)");
    app->add_option("--json", json_, "Write the result as JSON to FILE, or to stdout (-)");
  }

  Status Run(Session* session) override {
    ORRERY_RETURN_IF_ERROR(CheckFiles(
        {{"JOB", input_}, {"--calibration", calibration_}, {"--list", list_}},
        {{"--json", json_}, {"--csv", csv_}, {"--plot", plot_}, {"--resume", journal_}}));
    job::ReadOptions read;
    read.set = set_;
    read.network = network_;
    if (!calibration_.empty()) {
      ORRERY_ASSIGN_OR_RETURN(read.constants, search::ReadCalibration(calibration_));
    }
    ORRERY_ASSIGN_OR_RETURN(const search::Template job,
                            search::ReadTemplate(input_, read, Session::MeasuredDatabase()));
    search::Space space;
    ORRERY_RETURN_IF_ERROR(FillSpace(job, &space));
    search::SweepOptions options;
    options.replay = !quick_;
    options.journal = journal_;
    if (!shard_.empty()) ORRERY_RETURN_IF_ERROR(ParseShard(shard_, &options));
    if (threads_) {
      ORRERY_ASSIGN_OR_RETURN(const std::int64_t threads,
                              WholeNumber("--threads", *threads_, 1, 1024));
      options.threads = static_cast<int>(threads);
    }
    if (on_ || pieces_) return OnRay(session, space);
    Progress progress("runs");
    options.progress = [&](std::size_t done, std::size_t total) { progress.Show(done, total); };
    for (const std::string& file : {json_, csv_, plot_}) WatchOutput(file);
    if (!journal_.empty()) {
      SayWhenInterrupted(
          fmt::format("orrery: interrupted; the runs done so far are in {}: the same command goes "
                      "on from there",
                      Printable(journal_)));
    }
    ORRERY_ASSIGN_OR_RETURN(const search::Sweep sweep, search::RunSweep(job, space, options));
    progress.End();
    ORRERY_RETURN_IF_ERROR(WriteOutputs(sweep, csv_, plot_));
    return session->Answer(json_, search::SweepToJson(sweep), search::SweepToText(sweep));
  }

  std::vector<Reading> reads() const override {
    return {{input_, {FileKind::kJob, FileKind::kCluster}}};
  }

 private:
  Status OnRay(Session* session, const search::Space& space) const {
    if (!on_) return InvalidInput("--pieces goes with --on ray; add it or leave --pieces out");
    if (*on_ != "ray") {
      return InvalidInput("--on: unknown kind of cluster '{}'; valid: ray", Printable(*on_, 40));
    }
    if (!journal_.empty() || !shard_.empty()) {
      return InvalidInput("--on ray: cuts the sweep itself; leave --resume and --shard out");
    }
    RayRequest request{.job = input_,
                       .set = set_,
                       .network = network_.value_or(""),
                       .calibration = calibration_,
                       .replay = !quick_};
    if (threads_) {
      ORRERY_ASSIGN_OR_RETURN(const std::int64_t threads,
                              WholeNumber("--threads", *threads_, 1, 1024));
      request.threads = static_cast<int>(threads);
    }
    if (pieces_) {
      ORRERY_ASSIGN_OR_RETURN(const std::int64_t pieces,
                              WholeNumber("--pieces", *pieces_, 1, 1'000'000));
      request.shards = static_cast<int>(pieces);
    }
    ORRERY_ASSIGN_OR_RETURN(const search::Sweep sweep, SweepOnRay(request, space));
    ORRERY_RETURN_IF_ERROR(WriteOutputs(sweep, csv_, plot_));
    return session->Answer(json_, search::SweepToJson(sweep), search::SweepToText(sweep));
  }

  Status FillSpace(const search::Template& job, search::Space* space) const {
    const auto add = [space](std::string_view option, Result<search::Axis> axis) -> Status {
      if (!axis.ok()) return std::move(axis).TakeStatus().In(std::string(option));
      return space->Add(*std::move(axis)).In(std::string(option));
    };
    for (const std::string& text : vary_) {
      ORRERY_RETURN_IF_ERROR(add("--vary", search::ParseVary(text)));
    }
    if (!zip_.empty()) ORRERY_RETURN_IF_ERROR(add("--zip", search::Zip(zip_)));
    if (!list_.empty()) ORRERY_RETURN_IF_ERROR(add("--list", search::ReadList(list_)));
    if (!keep_.empty() &&
        (scale_.empty() || (keep_ != "batch-per-replica" && keep_ != "global-batch"))) {
      return InvalidInput("--keep {}: goes with --scale, and is batch-per-replica or global-batch",
                          Printable(keep_, 40));
    }
    if (!scale_.empty()) {
      ORRERY_ASSIGN_OR_RETURN(search::Axis axis,
                              search::ScaleAxis(job, scale_, keep_ != "global-batch"));
      ORRERY_RETURN_IF_ERROR(space->Add(std::move(axis)).In("--scale"));
    }
    if (!space->axes().empty()) return {};
    return InvalidInput(
        "nothing varies; give --vary key.path=values (such as --vary parallel.tp=1,2,4), --zip, "
        "--list or --scale");
  }

  std::string input_, list_, scale_, keep_, calibration_, shard_, journal_, csv_, plot_, json_;
  std::vector<std::string> vary_, zip_, set_;
  std::optional<std::string> network_, threads_, on_, pieces_;
  bool quick_ = false;
};

class MergeVerb final : public Verb {
 public:
  std::string_view name() const override { return "merge"; }
  std::string_view examples() const override {
    return "  orrery merge 1.json 2.json\n"
           "  orrery merge 1.json 2.json --csv all.csv\n"
           "  orrery merge 1.json 2.json --json all.json\n";
  }
  std::string_view description() const override {
    return "join the shards of a sweep into one result, as if it had run at once";
  }

  void Declare(CLI::App* app) override {
    app->add_option("SHARD", inputs_, "Results of 'orrery sweep --shard i/n --json FILE'")
        ->required();
    app->add_option("--csv", csv_, "Write the table as CSV");
    app->add_option("--plot", plot_, "Draw tokens/s against the first key (SVG)");
    app->add_option("--json", json_, "Write the result as JSON to FILE, or to stdout (-)");
  }

  Status Run(Session* session) override {
    std::vector<NamedFile> named;
    for (const std::string& input : inputs_) named.push_back({"SHARD", input});
    ORRERY_RETURN_IF_ERROR(
        CheckFiles(named, {{"--json", json_}, {"--csv", csv_}, {"--plot", plot_}}));
    constexpr std::int64_t kMostBytes = std::int64_t{16} << 30;
    std::vector<search::Sweep> shards;
    for (const std::string& input : inputs_) {
      ORRERY_ASSIGN_OR_RETURN(const std::string text, ReadFile(input, kMostBytes));
      ORRERY_ASSIGN_OR_RETURN(search::Sweep shard, search::SweepFromJson(text, Printable(input)));
      shards.push_back(std::move(shard));
    }
    ORRERY_ASSIGN_OR_RETURN(const search::Sweep sweep, search::Merge(std::move(shards)));
    ORRERY_RETURN_IF_ERROR(WriteOutputs(sweep, csv_, plot_));
    return session->Answer(json_, search::SweepToJson(sweep), search::SweepToText(sweep));
  }

  std::vector<Reading> reads() const override {
    std::vector<Reading> all;
    for (const std::string& input : inputs_) all.push_back({input, {FileKind::kSweep}});
    return all;
  }

 private:
  std::vector<std::string> inputs_;
  std::string csv_, plot_, json_;
};

}  // namespace

std::unique_ptr<Verb> MakeSweep() { return std::make_unique<SweepVerb>(); }
std::unique_ptr<Verb> MakeMerge() { return std::make_unique<MergeVerb>(); }

}  // namespace orrery::app
