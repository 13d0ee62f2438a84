#include "orrery/search/validate/cases.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <tuple>
#include <utility>

#include "orrery/base/text.h"
#include "orrery/constants/constants.h"
#include "orrery/job/describe.h"
#include "orrery/network/network.h"
#include "orrery/search/evaluate/evaluator.h"
#include "orrery/workload/scope.h"

namespace orrery::search {
namespace {

// What groups a row in the summary: "bloom-017" → "bloom", "vtrain-m016" → "vtrain-m",
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

// "….log; reduce_scatter ranks=8" → "….log", "comment X (4 nodes)" → "comment X": tables of one
// log, one person's runs on a cluster. Quotes as data/constants/left_out.csv has them.
std::string LogOf(std::string_view source) {
  if (source.ends_with(')')) {
    source = source.substr(0, source.rfind(" ("));
  } else if (const std::size_t at = source.rfind("; "); at != std::string_view::npos) {
    if (source.find(" ranks=", at) != std::string_view::npos) source = source.substr(0, at);
  }
  std::string log(source);
  std::replace(log.begin(), log.end(), '"', '\'');
  return log;
}

std::string_view CellOf(const formats::CsvTable& table, std::size_t row, std::string_view column) {
  const auto at = table.Find(column);
  return at ? table.cell(row, *at) : std::string_view();
}

Prediction Blank(const formats::CsvTable& table, std::size_t row,
                 const Configuration& configuration) {
  Prediction p;
  const std::string_view id = CellOf(table, row, "id");
  p.id = id.empty() ? fmt::format("{}", row + 1) : std::string(id);
  const std::string_view source = CellOf(table, row, "source");
  const bool prefixed = source.empty() || id.find('-') != std::string_view::npos;
  if (!id.empty() && prefixed && configuration.kind() == TableKind::kTraining) {
    p.source = SourceOfId(id);
    p.log = p.source;
  } else if (!source.empty()) {
    p.source = std::string(source);
  } else if (configuration.kind() == TableKind::kCollectives) {
    p.source = std::string(configuration.text("system"));
  }
  if (p.source.empty()) p.source = "unnamed";
  if (p.log.empty()) p.log = LogOf(p.source);
  p.duplicate_group = CellOf(table, row, "duplicate_group");
  p.label = p.source;
  if (configuration.kind() == TableKind::kCollectives && configuration.has("system")) {
    p.label = fmt::format("{}, {}x{}, {}", Printable(configuration.text("system"), 24),
                          configuration.text("nodes"), configuration.text("gpus_per_node"),
                          configuration.text("collective"));
  }
  return p;
}

Status SetMeter(const Configuration& row, std::string_view logged, Case* item,
                std::vector<std::string>* assumed) {
  std::string_view kind = row.text("mem_kind");
  if ((kind.empty() || kind == "unknown") && !logged.empty()) {
    kind = logged;
    assumed->push_back(fmt::format("mem_kind={} (not stated: what the framework logs)", kind));
  }
  if (kind == "torch_reserved") {
    item->meter = Meter::kReserved;
  } else if (kind == "nvidia_smi") {
    item->meter = Meter::kDevice;
  } else if (kind.empty() || kind == "unknown") {
    assumed->push_back("mem_kind=torch_allocated (not stated)");
  } else if (kind != "torch_allocated") {
    return InvalidInput("mem_kind={}: no such meter here", Printable(kind, 40));
  }
  const std::string_view rank = row.text("mem_rank");
  item->rank = rank == "rank0"          ? MeterRank::kFirst
               : rank == "logging_rank" ? MeterRank::kLast
                                        : MeterRank::kMax;
  if (rank == "logging_rank") assumed->push_back("mem_rank: Megatron logs on its last rank");
  if (rank.empty() || rank == "unknown") assumed->push_back("mem_rank=max (not stated)");
  return {};
}

Status AddTraining(const MeasuredTable& measured, std::size_t row, const RowTables& tables,
                   const job::ReadOptions& read, Runner* runner, Report* report,
                   std::vector<Case>* all) {
  const formats::CsvTable& table = measured.csv;
  Configuration configuration(measured, row);
  std::vector<std::string> translated;
  configuration.Translate(tables.words, &translated);
  ORRERY_ASSIGN_OR_RETURN(const auto step, ReadOutcome(table, row, "step_time_s"));
  ORRERY_ASSIGN_OR_RETURN(const auto memory, ReadOutcome(table, row, "peak_mem_gib"));
  Case item;
  item.first = report->rows.size();
  Prediction p = Blank(table, row, configuration);
  p.assumed = std::move(translated);
  auto mapped = MapRow(configuration, tables, read, runner, &p.assumed);
  if (!mapped.ok()) p.reason = mapped.status().message();
  if (step || !memory) {
    report->rows.push_back(p);
    report->rows.back().measured = step;
    report->rows.back().stratum = TrainingStratum(configuration);
  }
  if (memory || !step || configuration.has("mem_kind")) {
    p.quantity = Quantity::kPeakMemory;
    p.measured = memory;
    p.stratum = MemoryStratum(configuration);
    if (mapped.ok()) {
      if (const Status meter = SetMeter(configuration, mapped->meter, &item, &p.assumed);
          !meter.ok()) {
        p.reason = meter.message();
      }
    }
    report->rows.push_back(std::move(p));
  }
  item.count = report->rows.size() - item.first;
  if (!mapped.ok()) return {};
  const job::Workload& workload = mapped->job.workloads.front();
  item.machine = job::MachineText(mapped->job);
  cluster::AddScope(mapped->job.cluster, &item.scope);
  workload::AddScope(workload.model, workload.plan, workload.host, &item.scope);
  item.training = *std::move(mapped);
  all->push_back(std::move(item));
  return {};
}

// Clusters of collectives, built once each; they live as long as the pool. Thread-safe.
std::string MachineText(const cluster::Spec& spec) {
  job::Job alone;
  alone.cluster = spec;
  return job::MachineText(alone);
}
class ClusterPool {
 public:
  Result<const cluster::Cluster*> Find(const cluster::Spec& spec) {
    const std::string key = MachineText(spec);
    const std::lock_guard lock(mutex_);
    std::unique_ptr<cluster::Cluster>& kept = clusters_[key];
    if (kept == nullptr) {
      ORRERY_ASSIGN_OR_RETURN(cluster::Cluster built, cluster::Cluster::Build(spec));
      kept = std::make_unique<cluster::Cluster>(std::move(built));
    }
    return static_cast<const cluster::Cluster*>(kept.get());
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<cluster::Cluster>> clusters_;
};

Status AddCollective(const MeasuredTable& measured, std::size_t row, const RowTables& tables,
                     Report* report, std::vector<Case>* all) {
  const formats::CsvTable& table = measured.csv;
  Configuration configuration(measured, row);
  std::vector<std::string> translated;
  configuration.Translate(tables.words, &translated);
  Case item;
  item.first = report->rows.size();
  item.count = 1;
  Prediction p = Blank(table, row, configuration);
  p.assumed = std::move(translated);
  p.quantity = Quantity::kCollectiveTime;
  p.stratum = CollectiveStratum(configuration);
  ORRERY_ASSIGN_OR_RETURN(p.measured, ReadOutcome(table, row, "time_us_oop"));
  auto mapped = MapCollective(configuration, &p.assumed, tables);
  if (!mapped.ok()) p.reason = mapped.status().message();
  report->rows.push_back(std::move(p));
  if (!mapped.ok()) return {};
  item.machine = MachineText(mapped->cluster);
  cluster::AddScope(mapped->cluster, &item.scope);
  item.collective = *std::move(mapped);
  all->push_back(std::move(item));
  return {};
}

void Set(Result<double> value, double unit, Prediction* p) {
  if (value.ok()) {
    p->predicted = *value * unit;
  } else {
    p->reason = value.status().message();
  }
}

void PredictTraining(const Case& item, const constants::Set& constants, Runner* runner,
                     std::span<Prediction> rows) {
  const Status loaded = runner->Load(item.training->job, item.training->document, constants);
  for (Prediction& p : rows) {
    if (!p.reason.empty()) continue;
    if (!loaded.ok()) {
      p.reason = loaded.message();
    } else if (p.quantity == Quantity::kPeakMemory) {
      Set(runner->PeakMemoryGib(item.meter, item.rank), 1, &p);
      p.memory = {.allocator = item.meter != Meter::kAllocated,
                  .outside = item.meter == Meter::kDevice};
      p.width = constants::MemoryWidth(p.memory);
    } else {
      const Result<job::Evaluation>& run = runner->Evaluate();
      if (!run.ok()) {
        p.reason = run.status().message();
        continue;
      }
      p.predicted = ToSeconds(run->job.step_time);
      p.fingerprint = run->fingerprint;
      p.assumed.insert(p.assumed.end(), run->warnings.begin(), run->warnings.end());
      const workload::Model& model = item.training->job.workloads.front().model;
      p.shares =
          results::SharesOf(run->job.overall.parts, run->compute_spread, model.experts.count > 0);
      p.width = constants::StepWidth(p.shares);
    }
  }
}

void PredictCollective(const Case& item, const constants::Set& constants, ClusterPool* pool,
                       Prediction* p) {
  cluster::Spec spec = item.collective->cluster;
  cluster::Calibrate(constants, &spec);
  const auto cluster = pool->Find(spec);
  if (!cluster.ok()) {
    p->reason = cluster.status().message();
    return;
  }
  Set(PriceCollective(*item.collective, **cluster, &p->fixed_share, &p->assumed), 1e6, p);
  p->width = constants::CollectiveWidth(p->fixed_share);
}

// Stretches of rows of one machine, at most kStretch each, taken by whoever is free.
constexpr std::size_t kStretch = 16;

}  // namespace

Status MapCases(const formats::CsvTable& table, const ValidateOptions& options, Report* report,
                std::vector<Case>* cases) {
  const RowTables& tables = options.tables != nullptr ? *options.tables : BuiltInRowTables();
  ORRERY_ASSIGN_OR_RETURN(const MeasuredTable measured, tables.columns.Read(table));
  report->kind = measured.kind;
  report->warnings = measured.notes;
  if (table.rows() == 0) return InvalidInput("{}: a header and no rows", table.name());
  if (options.network && report->kind == TableKind::kCollectives) {
    return InvalidInput("--network: collectives are priced in closed form; leave it out");
  }
  if (options.measured_kernels && report->kind == TableKind::kCollectives) {
    return InvalidInput("--kernels: collectives have no kernels to price; leave it out");
  }
  if (options.network) {
    auto network = network::Create(Printable(*options.network));
    if (!network.ok()) return std::move(network).TakeStatus().In("--network");
  }
  job::ReadOptions read;
  read.network = options.network;
  read.measured_kernels = options.measured_kernels;
  read.data = tables.data;
  read.save_configuration = false;
  Runner runner(options.measured_database);
  for (std::size_t row = 0; row < table.rows(); ++row) {
    ORRERY_RETURN_IF_ERROR(report->kind == TableKind::kTraining
                               ? AddTraining(measured, row, tables, read, &runner, report, cases)
                               : AddCollective(measured, row, tables, report, cases));
  }
  return {};
}

void PredictCases(const std::vector<Case>& cases, std::span<const constants::Set> constants,
                  const ValidateOptions& options, std::vector<Prediction>* rows) {
  std::vector<std::size_t> order(cases.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const Case &x = cases[a], &y = cases[b];
    if (x.set != y.set || x.machine != y.machine) {
      return std::tie(x.set, x.machine) < std::tie(y.set, y.machine);
    }
    return x.training && y.training && x.training->document < y.training->document;
  });
  ClusterPool pool;
  std::size_t done = 0;
  std::mutex progress;
  const int threads = ThreadCount(options.threads);
  std::vector<Runner> runners;
  for (int t = 0; t < threads; ++t) runners.emplace_back(options.measured_database);
  const auto work_on = [&](std::size_t thread, std::size_t stretch) {
    const std::size_t begin = stretch * kStretch, end = std::min(begin + kStretch, order.size());
    for (std::size_t i = begin; i < end; ++i) {
      const Case& item = cases[order[i]];
      const std::span<Prediction> mine(&(*rows)[item.first], item.count);
      if (item.training) PredictTraining(item, constants[item.set], &runners[thread], mine);
      if (item.collective) PredictCollective(item, constants[item.set], &pool, &mine.front());
    }
    const std::lock_guard lock(progress);
    done += end - begin;
    if (options.progress) options.progress(done, order.size());
  };
  ForEach(threads, (order.size() + kStretch - 1) / kStretch, work_on);
}

}  // namespace orrery::search
