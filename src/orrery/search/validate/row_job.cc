#include "orrery/search/validate/row_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "orrery/search/validate/training.h"

namespace orrery::search {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// What a measured run had and the simulator does not have of every plan: where the job is refused
// with it and not without, it is left out, and said.
struct Extra {
  std::string_view key, needs, note;  // `needs`: another that goes with it
};
constexpr std::array<Extra, 3> kExtras = {
    {{"framework_options.tp_comm_overlap", "",
      "tp_comm_overlap=1: not with these layers, tensor-parallel communication stands alone"},
     {"training.moe_comm_overlap", "training.moe_delayed_weights",
      "ep_overlap=1: not with this plan, dispatch and combine stand alone"},
     {"framework_options.fp8_attention", "",
      "attention in 8 bits: not with this kernel or exchange, bf16 attention"}}};

// Errors name the key alone.
Result<job::Job> ReadDraft(const job::Draft& draft, const job::ReadOptions& read) {
  auto job = draft.Read(read);
  if (job.ok()) return job;
  const std::string prefix = fmt::format("{}: ", kRow);
  std::string message = job.status().message();
  while (message.starts_with(prefix)) message.erase(0, prefix.size());
  return Status(job.status().code(), std::move(message));
}

Result<job::Job> Settle(const job::ReadOptions& read, job::Draft* draft,
                        std::vector<std::string>* assumed) {
  Result<job::Job> job = ReadDraft(*draft, read);
  for (auto extra = kExtras.begin(); !job.ok() && extra != kExtras.end(); ++extra) {
    const std::string& why = job.status().message();
    if (draft->Text(extra->key) != "true" || why.find(extra->key) == std::string::npos) continue;
    draft->Set(extra->key, false);
    draft->Drop(extra->needs);
    assumed->emplace_back(extra->note);
    job = ReadDraft(*draft, read);
  }
  return job;
}

// A row with a micro-batch of its own.
struct Cut {
  Result<RowJob> row = InvalidInput("not mapped");
  std::vector<std::string> assumed;
  std::int64_t micro_batch = 1;
  double seconds = kNever;
};

Cut MapCut(const Configuration& row, const RowTables& tables, const job::ReadOptions& read,
           std::int64_t micro_batch, bool* open, Cut cut) {
  Result<RowDraft> draft = MapTraining(row, &cut.assumed, micro_batch, tables);
  if (!draft.ok()) {
    cut.row = std::move(draft).TakeStatus();
    return cut;
  }
  *open = draft->open_micro_batch;
  cut.micro_batch = draft->job.Whole("training.micro_batch", 1);
  auto job = Settle(read, &draft->job, &cut.assumed);
  if (!job.ok()) {
    cut.row = std::move(job).TakeStatus();
    return cut;
  }
  cut.row = RowJob{.draft = draft->job,
                   .document = draft->job.Yaml(),
                   .job = *std::move(job),
                   .meter = draft->meter};
  return cut;
}

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

// The allocator is replayed for the fastest first. Says which it is.
Cut& FastestThatFits(std::vector<Cut>* cuts, Runner* runner) {
  std::vector<Cut*> order;
  for (Cut& cut : *cuts) {
    if (cut.row.ok()) cut.seconds = SecondsOf(*cut.row, runner);
    order.push_back(&cut);
  }
  std::ranges::stable_sort(order, {}, &Cut::seconds);
  const auto fast = std::ranges::find_if(
      order, [&](const Cut* cut) { return cut->seconds < kNever && Fits(*cut->row, runner); });
  const bool any = fast != order.end();
  Cut& best = any ? **fast : cuts->front();
  best.assumed.push_back(fmt::format("micro_batch={} (blank: {})", best.micro_batch,
                                     any ? "the fastest up to 16 that fits" : "none fits"));
  return best;
}

}  // namespace

Result<RowJob> MapRow(const Configuration& row, const RowTables& tables,
                      const job::ReadOptions& read, Runner* runner,
                      std::vector<std::string>* assumed) {
  bool open = false;
  const Cut said{.assumed = *assumed};
  std::vector<Cut> cuts;
  cuts.push_back(MapCut(row, tables, read, 1, &open, said));
  for (const std::int64_t micro_batch : {2, 4, 8, 16}) {
    if (!open || !cuts.front().row.ok()) break;
    cuts.push_back(MapCut(row, tables, read, micro_batch, &open, said));
  }
  Cut& best = cuts.size() == 1 ? cuts.front() : FastestThatFits(&cuts, runner);
  *assumed = std::move(best.assumed);
  if (!best.row.ok()) return std::move(best.row);
  best.row->said = *assumed;
  const std::vector<std::string>& read_as = best.row->job.assumed;
  assumed->insert(assumed->end(), read_as.begin(), read_as.end());
  return std::move(best.row);
}

}  // namespace orrery::search
