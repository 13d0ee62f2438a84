#include "orrery/search/calibrate/calibrate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "arguments.h"
#include "interrupt.h"
#include "orrery/base/file.h"
#include "orrery/base/text.h"
#include "verb.h"

namespace orrery::app {
namespace {

constexpr std::int64_t kLargestLog = std::int64_t{64} << 20;

// A prediction that is off by more than this factor after the fit has another cause than the
// constants, whose ranges are narrower.
constexpr double kExplained = 2;
// Of a run: the share of the gap from which on the rest is not worth a word.
constexpr double kMostOfTheGap = 0.8;
constexpr double kNoGap = 0.01;  // of the measured time

// The warning about such predictions; empty where there are none.
std::string Unexplained(const search::Calibration& c) {
  std::size_t worst = 0, count = 0;
  double most = kExplained;
  for (std::size_t i = 0; i < c.measured.size(); ++i) {
    const double ratio = c.predicted_after[i] / c.measured[i];
    const double off = std::max(ratio, 1 / ratio);
    if (off > kExplained) ++count;
    if (off <= most) continue;
    most = off;
    worst = i;
  }
  if (count == 0) return "";
  return fmt::format(
      "warning: {} of {} observations stay off by more than a factor of {:.0f}, most '{}' ({:.3g} "
      "times); constants cannot explain that: check unit, job and log",
      count, c.measured.size(), kExplained, Printable(c.what[worst], 60), most);
}

// Of a measured run: how much of the gap the constants took. They move little: the rows that they
// were fitted to hold them within their spreads, and one step time says little against those.
std::string ShareOfTheGap(const search::Calibration& c) {
  const double gap = c.measured.front() - c.predicted_before.front();
  const double taken = c.predicted_after.front() - c.predicted_before.front();
  const double share = gap == 0 ? 1 : taken / gap;
  if (share > kMostOfTheGap || std::abs(gap) < kNoGap * c.measured.front()) return "";
  return fmt::format(
      "\n"
      "  Measured {}, predicted {} before and {} after: {:.0f} % of the gap. The measured runs "
      "that the constants\n"
      "  were fitted to leave them no more room, so the rest has another cause: a setting of the "
      "run that the\n"
      "  job file has otherwise (release, recompute, sequence length, micro-batch), clocks below "
      "the preset's\n"
      "  (nvidia-smi -q -d CLOCK,PERFORMANCE), the input pipeline, or the network ('orrery "
      "calibrate nccl-tests').\n"
      "  Measured over predicted is {:.3f}; it is not applied to predictions.\n",
      HumanSeconds(c.measured.front()), HumanSeconds(c.predicted_before.front()),
      HumanSeconds(c.predicted_after.front()), std::max(0.0, share) * 100,
      c.measured.front() / c.predicted_after.front());
}

class CalibrateVerb final : public Verb {
 public:
  std::string_view name() const override { return "calibrate"; }
  std::string_view examples() const override {
    return "  orrery calibrate nccl-tests all_reduce.log --out cluster.json\n"
           "  orrery calibrate kernels kernels.csv --out gpu.json\n"
           "  orrery calibrate run job.yaml --step-time 1.83s --out job.json\n";
  }
  std::string_view description() const override {
    return "fit the constants to your measurements: nccl-tests logs, kernels, a run";
  }

  void Declare(CLI::App* app) override {
    app->require_subcommand(0, 1);
    nccl_ = app->add_subcommand("nccl-tests", "From the output of nccl-tests");
    nccl_->add_option("LOG", files_, "Files with nccl-tests' output")->required();
    nccl_->add_option("--collective", nccl_options_.collective,
                      "The test, where the log does not name it: all_reduce, all_gather, …");
    nccl_->add_option("--fabric", nccl_options_.network,
                      "How hosts are connected, such as '8x400Gb/s InfiniBand'");
    nccl_
        ->add_option("--nodes", nccl_options_.nodes,
                     "For rows without nccl-tests' header: number of hosts; default 1")
        ->transform(WholeIn(1, 1 << 20));
    nccl_
        ->add_option("--gpus", nccl_options_.gpus,
                     "For rows without header: GPUs of all hosts together")
        ->transform(WholeIn(2, 1 << 24));
    nccl_->add_option("--device", nccl_options_.device,
                      "For rows without header: the GPU, as H100-SXM5-80GB");
    kernels_ = app->add_subcommand("kernels", "From measured kernels (tools/measure)");
    kernels_->add_option("CSV", files_, "Files as docs/formats/measured-kernels.md has them")
        ->required();
    run_ = app->add_subcommand("run", "From the measured step time of a job");
    run_->add_option("JOB", job_, "The job file")->required();
    run_->add_option("--step-time", step_time_, "What a step took, such as 1.83s")->required();
    for (CLI::App* one : {nccl_, kernels_, run_}) {
      one->add_option("--start", start_, "A calibration file to go on from");
      one->add_option("--out", out_, "Write the calibration file, for --calibration");
      one->add_option("--json", json_, "Write it as JSON to FILE, or to stdout (-)");
    }
  }

  Status Run(Session* session) override {
    if (!nccl_->parsed() && !kernels_->parsed() && !run_->parsed()) {
      return InvalidInput(
          "calibrate: say from what: nccl-tests LOG…, kernels CSV…, or run JOB --step-time TIME");
    }
    if (run_->parsed()) files_ = {job_};
    std::vector<NamedFile> inputs = {{"--start", start_}};
    for (const std::string& file : files_) {
      inputs.push_back({kernels_->parsed() ? "CSV" : run_->parsed() ? "JOB" : "LOG", file});
    }
    ORRERY_RETURN_IF_ERROR(CheckFiles(inputs, {{"--out", out_}, {"--json", json_}}));
    constants::Set start = constants::Set::Fitted();
    if (!start_.empty()) {
      ORRERY_ASSIGN_OR_RETURN(start, search::ReadCalibration(start_));
    }
    WatchOutput(out_);
    ORRERY_ASSIGN_OR_RETURN(const search::Observations observations, Observe());
    ORRERY_ASSIGN_OR_RETURN(search::Calibration calibration,
                            search::Calibrate(observations, start));
    calibration.from = fmt::format("{}", fmt::join(files_, ", "));
    const std::string json = search::ToJson(calibration);
    if (!out_.empty()) ORRERY_RETURN_IF_ERROR(WriteFile(out_, json));
    const std::string warning = Unexplained(calibration);
    if (!warning.empty()) session->Note("orrery: " + warning);
    std::string text = search::ToText(calibration);
    if (run_->parsed()) text += ShareOfTheGap(calibration);
    return session->Answer(json_, json, text);
  }

 private:
  Result<search::Observations> Observe() const {
    if (kernels_->parsed()) return search::ObserveKernels(files_);
    if (run_->parsed()) {
      ORRERY_ASSIGN_OR_RETURN(const std::int64_t time,
                              Quantity("--step-time", step_time_, Dimension::kTime, "s"));
      if (time <= 0) return InvalidInput("--step-time {}: give a positive time", step_time_);
      return search::ObserveRun(files_.front(), ToSeconds(time), Session::MeasuredDatabase());
    }
    std::string all;
    for (const std::string& file : files_) {
      ORRERY_ASSIGN_OR_RETURN(const std::string log, ReadFile(file, kLargestLog));
      ORRERY_ASSIGN_OR_RETURN(const std::string csv,
                              search::NcclLogToCsv(log, Printable(file), nccl_options_));
      // One header for all.
      const std::string_view rows = csv;
      all += all.empty() ? rows : rows.substr(std::min(rows.size(), rows.find('\n') + 1));
    }
    ORRERY_ASSIGN_OR_RETURN(const formats::CsvTable table,
                            formats::CsvTable::Parse(all, Printable(files_.front())));
    return search::ObserveCollectives(table);
  }

  CLI::App *nccl_ = nullptr, *kernels_ = nullptr, *run_ = nullptr;
  std::vector<std::string> files_;
  search::NcclLogOptions nccl_options_;
  std::string job_, step_time_, start_, out_, json_;
};

}  // namespace

std::unique_ptr<Verb> MakeCalibrate() { return std::make_unique<CalibrateVerb>(); }

}  // namespace orrery::app
