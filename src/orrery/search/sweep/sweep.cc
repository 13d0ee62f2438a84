#include "orrery/search/sweep/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <mutex>
#include <optional>
#include <utility>

#include "orrery/base/hash.h"
#include "orrery/base/text.h"
#include "orrery/search/sweep/journal.h"

namespace orrery::search {
namespace {

void AddTree(const formats::Node& node, Hasher* hash) {
  hash->Add(node.kind).Add(std::string_view(node.text)).Add(node.quoted);
  hash->Add(node.items.size()).Add(node.fields.size());
  for (const formats::Node& item : node.items) AddTree(item, hash);
  for (const formats::Field& field : node.fields) {
    hash->Add(std::string_view(field.key));
    AddTree(field.value, hash);
  }
}

// Of all that rows depend on but files that the job names.
std::uint64_t HashOf(const Template& job, const Space& space, bool replay) {
  Hasher hash;
  hash.Add(job::Version());
  AddTree(job.document.root, &hash);
  hash.Add(std::string_view(job.read.network.value_or("")));
  hash.Add(job.read.seed.value_or(0)).Add(job.read.seed.has_value()).Add(job.read.fold);
  hash.Add(job.read.constants.hash()).Add(std::string_view(job.measured_database)).Add(replay);
  for (const Axis& axis : space.axes()) {
    hash.Add(axis.keys.size()).Add(axis.points.size());
    for (const std::string& key : axis.keys) hash.Add(std::string_view(key));
    for (const auto& point : axis.points) {
      for (const std::string& value : point) hash.Add(std::string_view(value));
    }
  }
  return hash.value();
}

SweepRow Refused(SweepRow row, const Status& status) {
  row.status = status.code() == Code::kInfeasible ? RowStatus::kInfeasible : RowStatus::kRefused;
  row.reason = status.message();
  return row;
}

}  // namespace

std::string_view Name(RowStatus status) {
  switch (status) {
    case RowStatus::kOk:
      return "ok";
    case RowStatus::kDoesNotFit:
      return "does_not_fit";
    case RowStatus::kRefused:
      return "refused";
    case RowStatus::kInfeasible:
      return "infeasible";
  }
  return "?";
}

SweepRow EvaluateRow(Evaluator* evaluator, const Space& space, std::uint64_t point, bool replay) {
  SweepRow row{.point = point, .values = space.Values(point)};
  const std::vector<std::string> assignments = space.Assignments(point);
  const Result<job::Job> job = evaluator->Read(assignments, false);
  if (!job.ok()) return Refused(std::move(row), job.status());
  Result<job::Simulation> simulation = evaluator->Prepare(*job);
  if (!simulation.ok()) return Refused(std::move(row), simulation.status());
  const Result<job::Evaluation> evaluation = simulation->Evaluate();
  if (!evaluation.ok()) return Refused(std::move(row), evaluation.status());
  const results::JobResult& one = evaluation->job;
  row.status = RowStatus::kOk;
  row.gpus = static_cast<std::int64_t>(job->ranks());
  row.step_time = one.step_time;
  row.interval_low_s = one.interval_low_s;
  row.interval_high_s = one.interval_high_s;
  row.tokens_per_s = one.tokens_per_s;
  row.model_tflops_per_gpu = one.model_tflops_per_gpu;
  row.mfu = one.mfu;
  row.parts = one.overall.parts;
  row.price_per_hour = job->cluster.device.price_per_hour_usd;
  if (one.cost) {
    row.price_per_hour = one.cost->usd_per_gpu_hour;
    row.gpu_hours = one.cost->gpu_hours_per_million_tokens;
    row.usd = one.cost->usd_per_million_tokens;
    row.kwh = one.cost->kwh_per_million_tokens;
    row.kg_co2e = one.cost->kg_co2e_per_million_tokens;
    if (one.cost->run) row.days = one.cost->run->days;
  }
  if (one.goodput) row.goodput = one.goodput->expected;
  row.memory_bytes = evaluation->least_bytes;
  row.memory_bound = true;
  if (evaluation->too_large()) {
    row.status = RowStatus::kDoesNotFit;
    row.reason = fmt::format("needs at least {} of {}", HumanBytes(evaluation->least_bytes),
                             HumanBytes(one.device_bytes));
  } else if (replay) {
    row.memory_bound = false;
    const Result<DeviceMemory> memory = evaluator->Memory(*job, *simulation);
    if (!memory.ok()) return Refused(std::move(row), memory.status());
    row.memory_bytes = memory->bytes;
    if (!memory->fits) {
      row.status = RowStatus::kDoesNotFit;
      row.reason = fmt::format("out of device memory at {}", memory->oom_op);
    }
  }
  return row;
}

Result<Sweep> RunSweep(const Template& job, const Space& space, const SweepOptions& options) {
  Sweep sweep{.source = job.name(),
              .hash = HashOf(job, space, options.replay),
              .keys = space.Keys(),
              .points = space.size(),
              .shard = options.shard,
              .shards = options.shards,
              .rows = {}};
  constexpr std::uint64_t kMostRows = 10'000'000;
  if (sweep.points / static_cast<std::uint64_t>(options.shards) > kMostRows) {
    return InvalidInput("{} runs are more than a table holds ({}); give fewer values, or --shard",
                        HumanCount(static_cast<std::int64_t>(sweep.points)), HumanCount(kMostRows));
  }
  std::optional<Journal> journal;
  if (!options.journal.empty()) {
    ORRERY_ASSIGN_OR_RETURN(journal, Journal::Open(options.journal, sweep));
    sweep.rows = journal->TakeRows();
  }
  std::vector<std::uint64_t> todo;
  std::size_t known = 0;  // rows are sorted by point
  for (auto p = static_cast<std::uint64_t>(options.shard - 1); p < sweep.points;
       p += static_cast<std::uint64_t>(options.shards)) {
    while (known < sweep.rows.size() && sweep.rows[known].point < p) ++known;
    if (known == sweep.rows.size() || sweep.rows[known].point != p) todo.push_back(p);
  }
  const int threads = ThreadCount(options.threads);
  std::vector<std::optional<Evaluator>> evaluators(static_cast<std::size_t>(threads));
  std::mutex mutex;  // of all below
  const std::size_t before = sweep.rows.size();
  Status written;
  ForEach(
      threads, todo.size(),
      [&](std::size_t thread, std::size_t i) {
        std::optional<Evaluator>& evaluator = evaluators[thread];
        if (!evaluator) evaluator.emplace(job);
        SweepRow row = EvaluateRow(&*evaluator, space, todo[i], options.replay);
        const std::lock_guard lock(mutex);
        if (journal && written.ok()) written = journal->Append(row, sweep.keys);
        sweep.rows.push_back(std::move(row));
        if (options.progress) options.progress(sweep.rows.size() - before, todo.size());
      },
      options.stop);
  ORRERY_RETURN_IF_ERROR(written);
  std::sort(sweep.rows.begin(), sweep.rows.end(),
            [](const SweepRow& a, const SweepRow& b) { return a.point < b.point; });
  const auto refused = [](const SweepRow& row) { return row.status == RowStatus::kRefused; };
  if (sweep.complete() && std::all_of(sweep.rows.begin(), sweep.rows.end(), refused)) {
    return InvalidInput("{}{}", sweep.rows.front().reason,
                        sweep.points > 1 ? " (no other run is possible, either)" : "");
  }
  return sweep;
}

Result<Sweep> Merge(std::vector<Sweep> shards) {
  if (shards.empty()) return InvalidInput("nothing to merge");
  Sweep whole = std::move(shards.front());
  for (std::size_t i = 1; i < shards.size(); ++i) {
    Sweep& shard = shards[i];
    if (shard.hash != whole.hash || shard.keys != whole.keys || shard.points != whole.points) {
      return InvalidInput("shard {} is of another sweep: its job, values or version differ", i + 1);
    }
    std::move(shard.rows.begin(), shard.rows.end(), std::back_inserter(whole.rows));
  }
  std::stable_sort(whole.rows.begin(), whole.rows.end(),
                   [](const SweepRow& a, const SweepRow& b) { return a.point < b.point; });
  whole.shard = whole.shards = 1;
  for (std::size_t i = 0; i < whole.rows.size(); ++i) {
    const std::uint64_t point = whole.rows[i].point;
    if (i > 0 && point == whole.rows[i - 1].point) {
      return InvalidInput("run {} stands in two shards; give each shard once", point);
    }
    if (point == i) continue;
    return InvalidInput("run {} of {} is in none of the shards; was one left out, or cut short?", i,
                        whole.points);
  }
  if (whole.complete()) return whole;
  return InvalidInput("run {} of {} is in none of the shards; was one left out, or cut short?",
                      whole.rows.size(), whole.points);
}

Result<Axis> ScaleAxis(const Template& job, std::string_view text, bool weak) {
  constexpr std::string_view kKey = "nodes=";
  if (!text.starts_with(kKey)) {
    return InvalidInput("--scale {}: write nodes=1x,2x,4x", Printable(text, 60));
  }
  ORRERY_ASSIGN_OR_RETURN(const std::vector<std::string> factors,
                          ParseValues(text.substr(kKey.size())));
  const Evaluator evaluator(job);
  ORRERY_ASSIGN_OR_RETURN(const job::Job base, evaluator.Read({}, false));
  const workload::Plan& plan = base.workloads.front().plan;
  Axis axis{.keys = {"nodes", "parallel.dp", "training.global_batch"}, .points = {}};
  for (const std::string& factor : factors) {
    double times = 0;
    const char* const last = factor.data() + factor.size();
    const auto [end, error] = std::from_chars(factor.data(), last, times);
    if (error != std::errc() || end + 1 != last || *end != 'x' || times <= 0 || times > 1e6) {
      return InvalidInput("--scale {}: '{}' is no factor; write 1x, 2x, 0.5x", Printable(text, 60),
                          Printable(factor, 20));
    }
    const auto scaled = [&](std::int64_t value) -> std::optional<std::int64_t> {
      const double exact = static_cast<double>(value) * times;
      const auto whole = static_cast<std::int64_t>(exact);
      if (static_cast<double>(whole) != exact || whole < 1) return {};
      return whole;
    };
    const auto nodes = scaled(base.cluster.nodes), dp = scaled(plan.parallel.dp);
    const auto batch =
        weak ? scaled(plan.batch.global_batch) : std::optional(plan.batch.global_batch);
    if (!nodes || !dp || !batch) {
      return InvalidInput("--scale: {} of {} nodes, dp {} and batch {} is no whole number", factor,
                          base.cluster.nodes, plan.parallel.dp, plan.batch.global_batch);
    }
    axis.points.push_back(
        {fmt::format("{}", *nodes), fmt::format("{}", *dp), fmt::format("{}", *batch)});
  }
  return axis;
}

}  // namespace orrery::search
