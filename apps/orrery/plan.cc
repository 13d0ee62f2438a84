#include "orrery/search/plan/plan.h"

#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "arguments.h"
#include "interrupt.h"
#include "orrery/base/file.h"
#include "orrery/base/text.h"
#include "orrery/network/network.h"
#include "orrery/search/calibrate/calibrate.h"
#include "orrery/search/plan/written.h"
#include "progress.h"
#include "verb.h"

namespace orrery::app {
namespace {

class PlanVerb final : public Verb {
 public:
  std::string_view name() const override { return "plan"; }
  std::string_view examples() const override {
    return "  orrery plan job.yaml\n"
           "  orrery plan job.yaml --vary parallel.tp=1,2,4,8 --vary training.micro_batch=auto\n"
           "  orrery plan job.yaml --objective throughput,cost --write plans\n";
  }
  std::string_view description() const override {
    return "find the best plan for a job: degrees, micro-batch, recompute and other keys that it "
           "leaves open";
  }

  void Declare(CLI::App* app) override {
    app->add_option("JOB", input_,
                    "Job file. It leaves a key open with a list, a range (1..8) or auto; "
                    "'parallel: auto' leaves the degrees open. If it leaves none open, degrees, "
                    "micro-batch and recompute are varied")
        ->required();
    app->add_option("--vary", vary_, "key.path=values or key.path=auto: opens a key")
        ->allow_extra_args(false);
    app->add_option(
        "--objective", objective_,
        "throughput (default), cost, energy, goodput (tokens/s with failures) or memory; "
        "several joined by commas give a front");
    app->add_option("--top", top_, "How many plans to show; default: 5");
    app->add_option("--set", set_, "key.path=value: overrides a key of the job file")
        ->allow_extra_args(false);
    app->add_option("--network", network_,
                    "Network back end ('orrery list networks'). One that sees links runs only the "
                    "best plans; --set network=NAME runs all plans on it");
    app->add_option("--calibration", calibration_, "Constants from 'orrery calibrate'");
    app->add_option("--evaluations", evaluations_,
                    "Stop after so many simulated plans; default: 20,000");
    app->add_option("--seed", seed_,
                    "Seed of the sample taken from a space above 20 million plans; default: 1");
    app->add_option("--threads", threads_, "Threads; default: one per core");
    app->add_option("--write", folder_,
                    "Write each plan into this folder: as a job file, and as Megatron's arguments");
    app->add_option("--plot", plot_, "Draw tokens/s against memory (SVG)");
    app->add_option("--json", json_, "Write the result as JSON to FILE, or to stdout (-)");
  }

  Status Run(Session* session) override {
    ORRERY_RETURN_IF_ERROR(CheckFiles({{"JOB", input_}, {"--calibration", calibration_}},
                                      {{"--json", json_}, {"--plot", plot_}}));
    job::ReadOptions read;
    read.set = set_;
    if (!calibration_.empty()) {
      ORRERY_ASSIGN_OR_RETURN(read.constants, search::ReadCalibration(calibration_));
    }
    search::PlanOptions options;
    ORRERY_RETURN_IF_ERROR(ReadOptions(&options));
    if (network_ && network::SeesLinks(*network_)) {
      options.rerank = *network_;
    } else {
      read.network = network_;
    }
    ORRERY_ASSIGN_OR_RETURN(search::Template job,
                            search::ReadTemplate(input_, read, Session::MeasuredDatabase()));
    ORRERY_ASSIGN_OR_RETURN(const search::OpenJob open, search::OpenSpace(std::move(job), vary_));
    Progress progress("plans");
    options.progress = [&](std::uint64_t done, std::uint64_t total) { progress.Show(done, total); };
    options.stop = StopWhenInterrupted();
    WatchOutput(plot_);
    ORRERY_ASSIGN_OR_RETURN(const search::PlanResult result, search::FindPlans(open, options));
    progress.End();
    if (!plot_.empty()) ORRERY_RETURN_IF_ERROR(WriteFile(plot_, search::PlanToSvg(result)));
    if (!folder_.empty()) ORRERY_RETURN_IF_ERROR(WritePlans(open, result, *session));
    ORRERY_RETURN_IF_ERROR(
        session->Answer(json_, search::PlanToJson(result), search::PlanToText(result)));
    if (!result.interrupted) return {};
    return {Code::kInterrupted, "interrupted; the plans shown are the best so far, not proven"};
  }

  std::vector<Reading> reads() const override {
    return {{input_, {FileKind::kJob, FileKind::kCluster}}};
  }

 private:
  Status ReadOptions(search::PlanOptions* options) const {
    if (objective_) {
      Result<std::vector<search::Objective>> objectives = search::ParseObjectives(*objective_);
      if (!objectives.ok()) return std::move(objectives).TakeStatus().In("--objective");
      options->objectives = *std::move(objectives);
    }
    const auto whole = [](std::string_view name, const std::optional<std::string>& text,
                          std::int64_t least, std::int64_t most, auto* value) -> Status {
      if (!text) return {};
      ORRERY_ASSIGN_OR_RETURN(const std::int64_t number, WholeNumber(name, *text, least, most));
      *value = static_cast<std::remove_pointer_t<decltype(value)>>(number);
      return {};
    };
    constexpr std::int64_t kMany = std::int64_t{1} << 40;
    ORRERY_RETURN_IF_ERROR(whole("--top", top_, 1, 1000, &options->top));
    ORRERY_RETURN_IF_ERROR(whole("--threads", threads_, 1, 1024, &options->threads));
    ORRERY_RETURN_IF_ERROR(whole("--seed", seed_, 0, kMany, &options->seed));
    return whole("--evaluations", evaluations_, 1, kMany, &options->max_evaluations);
  }

  Status WritePlans(const search::OpenJob& open, const search::PlanResult& result,
                    const Session& session) const {
    std::error_code error;  // where there is no folder then, writing says so
    std::filesystem::create_directories(folder_, error);
    for (std::size_t i = 0; i < result.rows.size(); ++i) {
      const std::string base = fmt::format("{}/plan-{}", folder_, i + 1);
      ORRERY_ASSIGN_OR_RETURN(const std::string job, search::JobFileOf(open, result.rows[i].point));
      ORRERY_RETURN_IF_ERROR(WriteFile(base + ".yaml", job));
      ORRERY_ASSIGN_OR_RETURN(const std::string arguments,
                              search::MegatronArguments(open, result.rows[i].point));
      ORRERY_RETURN_IF_ERROR(WriteFile(base + ".megatron.sh", arguments));
    }
    session.Note(fmt::format("plans: {}/plan-1.yaml and .megatron.sh to plan-{}",
                             Printable(folder_), result.rows.size()));
    return {};
  }

  std::string input_, calibration_, folder_, plot_, json_;
  std::vector<std::string> vary_, set_;
  std::optional<std::string> objective_, top_, network_, evaluations_, seed_, threads_;
};

}  // namespace

std::unique_ptr<Verb> MakePlan() { return std::make_unique<PlanVerb>(); }

}  // namespace orrery::app
