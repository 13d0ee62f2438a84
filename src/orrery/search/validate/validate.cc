#include "orrery/search/validate/validate.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/search/validate/collectives.h"
#include "orrery/search/validate/runner.h"
#include "orrery/search/validate/training.h"

namespace orrery::search {
namespace {

// One row, mapped; its predictions stand at [first, first + count) of the report.
struct Work {
  std::size_t first = 0, count = 0;
  std::optional<TrainingCase> training;
  std::optional<CollectiveCase> collective;
  Meter meter = Meter::kAllocated;
  MeterRank rank = MeterRank::kMax;
  std::string machine;  // MachineKey: rows of one machine run one after the other
};

// What groups a row in the summary: "bloom-017" → "bloom", "vtrain-s0032" → "vtrain-s",
// "sc21-t1-1.7B" → "sc21".
std::string SourceOfId(std::string_view id) {
  const std::size_t dash = id.find('-');
  if (dash == std::string_view::npos) return std::string(id);
  const std::string_view rest = id.substr(dash + 1);
  const std::size_t digits = std::min(rest.find_first_of("0123456789"), rest.size());
  const bool counted = digits < rest.size() &&
                       rest.find_first_not_of("0123456789", digits) == std::string_view::npos;
  const bool letters = rest.substr(0, digits).find_first_not_of("abcdefghijklmnopqrstuvwxyz") ==
                       std::string_view::npos;
  if (!counted || !letters || digits == 0) return std::string(id.substr(0, dash));
  return std::string(id.substr(0, dash + 1 + digits));
}

std::string_view CellOf(const CsvTable& table, std::size_t row, std::string_view column) {
  const auto at = table.Find(column);
  return at ? table.cell(row, *at) : std::string_view();
}

Prediction Blank(const CsvTable& table, std::size_t row, const Configuration& configuration) {
  Prediction p;
  const std::string_view id = CellOf(table, row, "id");
  p.id = id.empty() ? fmt::format("{}", row + 1) : std::string(id);
  const std::string_view source = CellOf(table, row, "source");
  if (!id.empty() && configuration.kind() == TableKind::kTraining) {
    p.source = SourceOfId(id);
  } else if (!source.empty()) {
    p.source = std::string(source);
  } else if (configuration.kind() == TableKind::kCollectives) {
    p.source = std::string(configuration.text("system"));
  }
  if (p.source.empty()) p.source = "unnamed";
  p.label = p.source;
  if (configuration.kind() == TableKind::kCollectives && configuration.has("system")) {
    p.label = fmt::format("{}, {}x{}, {}", Printable(configuration.text("system"), 24),
                          configuration.text("nodes"), configuration.text("gpus_per_node"),
                          configuration.text("collective"));
  }
  return p;
}

Status SetMeter(const Configuration& row, Work* work, std::vector<std::string>* assumed) {
  const std::string_view kind = row.text("mem_kind");
  if (kind == "torch_reserved") {
    work->meter = Meter::kReserved;
  } else if (kind == "nvidia_smi") {
    work->meter = Meter::kDevice;
  } else if (kind.empty() || kind == "unknown") {
    assumed->push_back("mem_kind=torch_allocated (not stated)");
  } else if (kind != "torch_allocated") {
    return InvalidInput("mem_kind={}: no such meter here", Printable(kind, 40));
  }
  const std::string_view rank = row.text("mem_rank");
  work->rank = rank == "rank0"          ? MeterRank::kFirst
               : rank == "logging_rank" ? MeterRank::kLast
                                        : MeterRank::kMax;
  if (rank == "logging_rank") assumed->push_back("mem_rank: Megatron logs on its last rank");
  if (rank.empty() || rank == "unknown") assumed->push_back("mem_rank=max (not stated)");
  return {};
}

Status AddTraining(const CsvTable& table, std::size_t row, Report* report, std::vector<Work>* all) {
  const Configuration configuration(TableKind::kTraining, table, row);
  ORRERY_ASSIGN_OR_RETURN(const auto step, ReadOutcome(table, row, "step_time_s"));
  ORRERY_ASSIGN_OR_RETURN(const auto memory, ReadOutcome(table, row, "peak_mem_gib"));
  Work work;
  work.first = report->rows.size();
  Prediction p = Blank(table, row, configuration);
  auto mapped = MapTraining(configuration, &p.assumed);
  if (!mapped.ok()) p.reason = mapped.status().message();
  if (step || !memory) {
    report->rows.push_back(p);
    report->rows.back().measured = step;
    report->rows.back().stratum = TrainingStratum(configuration);
    if (mapped.ok()) report->rows.back().reason = mapped->time_refusal;
  }
  if (memory || !step || configuration.has("mem_kind")) {
    p.quantity = Quantity::kPeakMemory;
    p.measured = memory;
    p.stratum = MemoryStratum(configuration);
    if (mapped.ok()) {
      if (const Status meter = SetMeter(configuration, &work, &p.assumed); !meter.ok()) {
        p.reason = meter.message();
      }
    }
    report->rows.push_back(std::move(p));
  }
  work.count = report->rows.size() - work.first;
  if (!mapped.ok()) return {};
  work.machine = MachineKey(mapped->cluster);
  work.training = *std::move(mapped);
  all->push_back(std::move(work));
  return {};
}

Status AddCollective(const CsvTable& table, std::size_t row, Report* report,
                     std::vector<Work>* all) {
  const Configuration configuration(TableKind::kCollectives, table, row);
  Work work;
  work.first = report->rows.size();
  work.count = 1;
  Prediction p = Blank(table, row, configuration);
  p.quantity = Quantity::kCollectiveTime;
  p.stratum = CollectiveStratum(configuration);
  ORRERY_ASSIGN_OR_RETURN(p.measured, ReadOutcome(table, row, "time_us_oop"));
  auto mapped = MapCollective(configuration, &p.assumed);
  if (!mapped.ok()) p.reason = mapped.status().message();
  report->rows.push_back(std::move(p));
  if (!mapped.ok()) return {};
  work.machine = MachineKey(mapped->cluster);
  work.collective = *std::move(mapped);
  all->push_back(std::move(work));
  return {};
}

void Set(Result<double> value, double unit, Prediction* p) {
  if (value.ok()) {
    p->predicted = *value * unit;
  } else {
    p->reason = value.status().message();
  }
}

void PredictTraining(const Work& work, Runner* runner, std::span<Prediction> rows) {
  const Status loaded = runner->Load(*work.training);
  for (Prediction& p : rows) {
    if (!p.reason.empty()) continue;
    if (!loaded.ok()) {
      p.reason = loaded.message();
    } else if (p.quantity == Quantity::kPeakMemory) {
      Set(runner->PeakMemoryGib(work.meter, work.rank), 1, &p);
    } else {
      Set(runner->StepTime(&p.assumed), 1, &p);
    }
  }
}

void PredictCollective(const Work& work, MachinePool* pool, Prediction* p) {
  const auto machine = pool->Find(work.collective->cluster);
  if (!machine.ok()) {
    p->reason = machine.status().message();
    return;
  }
  Set(PriceCollective(*work.collective, (*machine)->cluster(), &p->assumed), 1e6, p);
}

// Stretches of rows of one machine, at most kStretch each, taken by whoever is free.
void PredictAll(const std::vector<Work>& all, const ValidateOptions& options, Report* report) {
  constexpr std::size_t kStretch = 16;
  std::vector<std::size_t> order(all.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return all[a].machine < all[b].machine; });
  MachinePool pool(options.measured_database);
  std::atomic<std::size_t> next{0};
  std::size_t done = 0;
  std::mutex progress;
  const auto work_on = [&] {
    Runner runner(&pool);
    for (;;) {
      const std::size_t begin = next.fetch_add(kStretch);
      if (begin >= order.size()) return;
      const std::size_t end = std::min(begin + kStretch, order.size());
      for (std::size_t i = begin; i < end; ++i) {
        const Work& work = all[order[i]];
        const std::span<Prediction> rows(&report->rows[work.first], work.count);
        if (work.training) PredictTraining(work, &runner, rows);
        if (work.collective) PredictCollective(work, &pool, &rows.front());
      }
      const std::lock_guard lock(progress);
      done += end - begin;
      if (options.progress) options.progress(done, order.size());
    }
  };
  const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
  const std::size_t threads =
      options.threads > 0 ? static_cast<std::size_t>(options.threads) : cores;
  std::vector<std::thread> helpers;
  for (std::size_t i = 1; i < std::min(threads, order.size() / kStretch + 1); ++i) {
    helpers.emplace_back(work_on);
  }
  work_on();
  for (std::thread& helper : helpers) helper.join();
}

// A column that is nearly named like one that is read was surely meant to be read.
void WarnOfMistypedColumns(const CsvTable& table, TableKind kind, Report* report) {
  const auto known = ConfigurationColumns(kind);
  for (const std::string& column : table.header()) {
    const auto withheld = WithheldColumns();
    if (std::find(known.begin(), known.end(), column) != known.end()) continue;
    if (std::find(withheld.begin(), withheld.end(), column) != withheld.end()) continue;
    const auto near = Nearest(column, known, 1);
    if (near.empty() || table.Find(near.front())) continue;
    report->warnings.push_back(fmt::format("{}:1: column '{}' is not read; did you mean '{}'?",
                                           table.name(), Printable(column, 40), near.front()));
  }
}

}  // namespace

std::string_view Name(Quantity quantity) {
  switch (quantity) {
    case Quantity::kStepTime:
      return "step_time_s";
    case Quantity::kPeakMemory:
      return "peak_mem_gib";
    case Quantity::kCollectiveTime:
      return "time_us";
  }
  return "?";
}

std::optional<double> Prediction::error_pct() const {
  if (!measured || !predicted) return std::nullopt;
  return (*predicted / *measured - 1) * 100;
}

Result<Report> ValidateTable(const CsvTable& table, const ValidateOptions& options) {
  Report report;
  report.table = table.name();
  report.measured_kernels = !options.measured_database.empty();
  ORRERY_ASSIGN_OR_RETURN(report.kind, KindOf(table));
  if (table.rows() == 0) return InvalidInput("{}: a header and no rows", table.name());
  WarnOfMistypedColumns(table, report.kind, &report);
  std::vector<Work> all;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    ORRERY_RETURN_IF_ERROR(report.kind == TableKind::kTraining
                               ? AddTraining(table, row, &report, &all)
                               : AddCollective(table, row, &report, &all));
  }
  PredictAll(all, options, &report);
  report.by_stratum = Summarise(report.rows, GroupBy::kStratum);
  report.by_source = Summarise(report.rows, GroupBy::kSource);
  report.by_source_and_stratum = Summarise(report.rows, GroupBy::kBoth);
  return report;
}

}  // namespace orrery::search
