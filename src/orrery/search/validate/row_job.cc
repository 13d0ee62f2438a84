#include "orrery/search/validate/row_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace orrery::search {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

std::string DocumentOf(const TrainingCase& run) {
  job::Job job;
  job.cluster = run.cluster;
  job.allocator = run.allocator;
  job::Workload& workload = job.workloads.emplace_back();
  workload.name = run.model.name;
  workload.model = run.model;
  workload.plan = run.plan;
  workload.framework = run.framework->name;
  workload.framework_defaults = run.framework->defaults;
  workload.optimizer = "adam";
  workload.libraries = run.libraries;
  workload.host = run.host;
  job::SaveConfiguration(&job);
  return std::move(job.config_json);
}

Result<RowJob> Read(const TrainingCase& run, const job::ReadOptions& read) {
  RowJob out{.document = DocumentOf(run), .job = {}, .meter = run.meter};
  ORRERY_ASSIGN_OR_RETURN(out.job, job::ReadJobText(out.document, "row", "", read));
  return out;
}

// A row with a micro-batch of its own.
struct Cut {
  Result<RowJob> row = InvalidInput("not mapped");
  std::vector<std::string> assumed;
  std::int64_t micro_batch = 1;
  double seconds = kNever;
};

double SecondsOf(const RowJob& row, Runner* runner) {
  if (!runner->Load(row.job, row.document, constants::Set()).ok()) return kNever;
  const Result<job::Evaluation>& evaluation = runner->Evaluate();
  if (!evaluation.ok() || evaluation->too_large()) return kNever;
  return ToSeconds(evaluation->job.step_time);
}

bool Fits(const RowJob& row, Runner* runner) {
  if (!runner->Load(row.job, row.document, constants::Set()).ok()) return false;
  const auto memory = runner->PeakMemoryGib(Meter::kDevice, MeterRank::kMax);
  const double device = static_cast<double>(row.job.cluster.device.memory_bytes) / (1 << 30);
  return memory.ok() && *memory <= device;
}

}  // namespace

Result<RowJob> MapRow(const Configuration& row, const RowTables& tables,
                      const job::ReadOptions& read, Runner* runner,
                      std::vector<std::string>* assumed) {
  const std::vector<std::string> said = *assumed;
  ORRERY_ASSIGN_OR_RETURN(const TrainingCase run, MapTraining(row, assumed, 1, tables));
  if (!run.open_micro_batch) return Read(run, read);
  std::vector<Cut> cuts;
  for (const std::int64_t micro_batch : {1, 2, 4, 8, 16}) {
    Cut cut;
    cut.assumed = said;
    const Result<TrainingCase> mapped = MapTraining(row, &cut.assumed, micro_batch, tables);
    if (!mapped.ok()) continue;
    cut.micro_batch = mapped->plan.batch.micro_batch;
    cut.row = Read(*mapped, read);
    if (cut.row.ok()) cut.seconds = SecondsOf(*cut.row, runner);
    cuts.push_back(std::move(cut));
  }
  // The allocator is replayed for the fastest first.
  std::vector<Cut*> order;
  for (Cut& cut : cuts) order.push_back(&cut);
  std::ranges::stable_sort(order, {}, &Cut::seconds);
  const auto fast = std::ranges::find_if(
      order, [&](const Cut* cut) { return cut->seconds < kNever && Fits(*cut->row, runner); });
  Cut& best = fast == order.end() ? cuts.front() : **fast;
  *assumed = std::move(best.assumed);
  assumed->push_back(
      fmt::format("micro_batch={} (blank: {})", best.micro_batch,
                  fast == order.end() ? "none fits" : "the fastest up to 16 that fits"));
  return std::move(best.row);
}

}  // namespace orrery::search
