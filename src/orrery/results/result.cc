#include "orrery/results/result.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "orrery/base/int128.h"
#include "orrery/results/parts.h"

namespace orrery::results {

constants::StepShares SharesOf(const engine::Breakdown& parts, double compute_spread,
                               bool experts) {
  constants::StepShares shares{.experts = experts};
  double total = 0;
  for (std::size_t i = 0; i < engine::kParts; ++i) {
    const auto time = static_cast<double>(parts[i]);
    total += time;
    switch (static_cast<engine::Part>(i)) {
      case engine::Part::kCompute:
      case engine::Part::kOptimizer:
      case engine::Part::kInterference:
      case engine::Part::kNoise:  // as long as kernels are
        shares.kernels += time * compute_spread;
        break;
      case engine::Part::kHost:
        shares.host += time;
        break;
      case engine::Part::kWaiting:
      case engine::Part::kBubble:
        shares.waiting += time;
        break;
      default:
        shares.communication += time;
    }
  }
  if (total <= 0) return shares;
  shares.kernels /= total;
  shares.host /= total;
  shares.waiting /= total;
  shares.communication /= total;
  return shares;
}

namespace {

using engine::Part;

// Sums of a set of ranks, before the mean is taken.
struct Sums {
  std::uint32_t ranks = 0;
  Int128 total = 0;
  std::array<Int128, engine::kParts> parts{};

  void Add(const engine::RankClass& c) {
    ranks += c.size;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const Int128 part = static_cast<Int128>(c.breakdown[i]) * c.size;
      parts[i] += part;
      total += part;
    }
  }
};

// The mean over the ranks in whole picoseconds: each part rounded down, what is missing in the
// total given one by one to the parts that lost most (earlier parts first among equals).
BreakdownRow Mean(const Sums& sums, std::int32_t stage) {
  BreakdownRow row;
  row.stage = stage;
  row.ranks = sums.ranks;
  if (sums.ranks == 0) return row;
  const Int128 n = sums.ranks;
  row.total = static_cast<SimTime>((sums.total + n / 2) / n);
  std::array<std::size_t, engine::kParts> order{};
  SimTime given = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i] = i;
    row.parts[i] = static_cast<SimTime>(sums.parts[i] / n);
    given += row.parts[i];
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return sums.parts[a] % n > sums.parts[b] % n;
  });
  for (std::size_t i = 0; given < row.total; ++i, ++given) ++row.parts[order[i % order.size()]];
  return row;
}

// The 80 % interval is from step / (1 + w) to step · (1 + w).
double Width(const BreakdownRow& overall, double compute_spread, bool experts) {
  if (overall.total == 0) return 0;
  return constants::StepWidth(SharesOf(overall.parts, compute_spread, experts));
}

void FillRates(const graph::JobInfo& info, const JobFacts& facts, double spread, JobResult* job) {
  const double seconds = ToSeconds(job->step_time);
  const double width = Width(job->overall, spread, facts.experts);
  job->interval_low_s = seconds / (1 + width);
  job->interval_high_s = seconds * (1 + width);
  if (seconds <= 0 || job->ranks == 0) return;
  job->tokens_per_s = static_cast<double>(info.tokens_per_step) / seconds;
  const double flops_per_gpu = info.model_flops_per_step / seconds / job->ranks;
  job->model_tflops_per_gpu = flops_per_gpu * 1e-12;
  if (facts.peak_flops > 0) job->mfu = flops_per_gpu / facts.peak_flops;
  job->mfu_peak = facts.peak_type;
}

void FillMemory(const Inputs& inputs, std::size_t job_index, JobResult* job) {
  const graph::Graph& graph = *inputs.graph;
  std::vector<std::uint32_t> ranks(graph.programs.size());
  for (const graph::Binding& binding : graph.bindings) {
    if (binding.job.index() == job_index) ++ranks[binding.program.index()];
  }
  for (const memory::Footprint& footprint : inputs.footprints) {
    const std::size_t p = footprint.program.index();
    if (ranks[p] == 0) continue;
    MemoryRow row;
    row.program = graph.programs[p].name;
    row.stage = graph.programs[p].stage;
    row.ranks = ranks[p];
    row.footprint = footprint;
    job->memory.push_back(std::move(row));
  }
}

JobResult AssembleJob(const Inputs& inputs, std::size_t index) {
  const graph::JobInfo& info = inputs.graph->jobs[index];
  const engine::JobRecord& record = inputs.record->jobs[index];
  JobResult job;
  job.name = info.name;
  job.ranks = info.ranks;
  job.step_time = record.step_time;
  job.settled = record.settled;
  Sums all;
  std::map<std::int32_t, Sums> stages;
  for (const engine::RankClass& c : inputs.record->classes) {
    if (c.job.index() != index) continue;
    all.Add(c);
    stages[inputs.graph->programs[c.program.index()].stage].Add(c);
  }
  job.overall = Mean(all, -1);
  for (const auto& [stage, sums] : stages) job.stages.push_back(Mean(sums, stage));
  FillMemory(inputs, index, &job);
  const JobFacts& facts = inputs.jobs[index];
  job.description = facts.description;
  job.device_bytes = facts.device_bytes;
  FillRates(info, facts, inputs.record->compute_spread, &job);
  return job;
}

void AddWarnings(const engine::Record& record, RunResult* result) {
  result->warnings = record.warnings;
  for (const JobResult& job : result->jobs) {
    const std::string who = result->jobs.size() > 1 ? fmt::format("job '{}': ", job.name) : "";
    if (!job.settled) {
      result->warnings.push_back(fmt::format(
          "{}the step time had not settled after {} iterations; try --set simulation.iterations=5",
          who, record.iterations));
    }
    if (job.out_of_memory()) {
      result->warnings.push_back(
          fmt::format("{}out of device memory: this plan does not fit the GPU", who));
    }
  }
}

}  // namespace

bool JobResult::out_of_memory() const {
  return std::any_of(memory.begin(), memory.end(),
                     [](const MemoryRow& row) { return row.footprint.oom; });
}

const MemoryRow* JobResult::fullest() const {
  const auto most = std::max_element(
      memory.begin(), memory.end(),
      [](const MemoryRow& a, const MemoryRow& b) { return a.total() < b.total(); });
  return most == memory.end() ? nullptr : &*most;
}

namespace {

// What `nvidia-smi` shows: tensors, the allocator's cache and what lives outside of it.
double MemoryFactor() { return 1 + constants::MemoryWidth({.allocator = true, .outside = true}); }

}  // namespace

std::int64_t JobResult::memory_low_bytes() const {
  const MemoryRow* row = fullest();
  return row == nullptr
             ? 0
             : static_cast<std::int64_t>(static_cast<double>(row->total()) / MemoryFactor());
}

std::int64_t JobResult::memory_high_bytes() const {
  const MemoryRow* row = fullest();
  return row == nullptr
             ? 0
             : static_cast<std::int64_t>(static_cast<double>(row->total()) * MemoryFactor());
}

Verdict JobResult::verdict() const {
  if (out_of_memory()) return Verdict::kOutOfMemory;
  const MemoryRow* row = fullest();
  return row != nullptr && IsClose(row->total(), device_bytes) ? Verdict::kClose : Verdict::kFits;
}

bool IsClose(std::int64_t bytes, std::int64_t device_bytes) {
  constexpr double kClose = 0.94;  // users report that above it the same job runs or does not
  return static_cast<double>(bytes) > kClose * static_cast<double>(device_bytes);
}

std::string_view Name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kFits:
      return "fits";
    case Verdict::kClose:
      return "close";
    case Verdict::kOutOfMemory:
      return "out_of_memory";
  }
  return "?";
}

bool RunResult::out_of_memory() const {
  return std::any_of(jobs.begin(), jobs.end(),
                     [](const JobResult& job) { return job.out_of_memory(); });
}

campaign::StepTimes StepTimesOf(const JobResult& job, double tokens_per_step, double tensor_share,
                                double power_limit_w) {
  campaign::StepTimes times{.step_s = ToSeconds(job.step_time),
                            .low_s = job.interval_low_s,
                            .high_s = job.interval_high_s,
                            .tokens = tokens_per_step,
                            .gpus = job.ranks,
                            .power_limit_w = power_limit_w};
  for (std::size_t i = 0; i < engine::kParts; ++i) {
    const double part_s = ToSeconds(job.overall.parts[i]);
    switch (static_cast<Part>(i)) {
      case Part::kCompute:
      case Part::kInterference:
        times.tensor_s += part_s * tensor_share;
        times.memory_s += part_s * (1 - tensor_share);
        break;
      case Part::kOptimizer:
        times.memory_s += part_s;
        break;
      case Part::kHost:
        times.idle_s += part_s;
        break;
      default:
        times.communication_s += part_s;
    }
  }
  return times;
}

std::string PartName(std::size_t part) {
  switch (static_cast<Part>(part)) {
    case Part::kCompute:
      return "compute";
    case Part::kOptimizer:
      return "optimizer";
    case Part::kInterference:
      return "interference";
    case Part::kHost:
      return "host";
    case Part::kNoise:
      return "noise";
    case Part::kWaiting:
      return "waiting";
    case Part::kBubble:
      return "bubble";
    default:
      break;
  }
  const auto slot = static_cast<graph::GroupSlot>(part - static_cast<std::size_t>(Part::kExposed));
  return fmt::format("exposed_{}", graph::Name(slot));
}

void FillSimulation(const engine::Record& record, Simulation* simulation) {
  simulation->events = record.events;
  simulation->events_repeated = record.events_repeated;
  simulation->ranks = record.ranks;
  simulation->ranks_simulated = record.ranks_simulated;
  simulation->iterations = record.iterations;
  simulation->threads_used = record.threads_used;
  simulation->folded = record.folded;
  simulation->not_folded_because = record.not_folded_because;
  simulation->fingerprint = record.fingerprint;
}

RunResult Assemble(const Inputs& inputs) {
  const engine::Record& record = *inputs.record;
  RunResult result;
  result.finish_time = record.finish_time;
  for (std::size_t i = 0; i < record.jobs.size(); ++i) {
    result.jobs.push_back(AssembleJob(inputs, i));
  }
  result.links = record.network;
  result.provenance = record.provenance;
  result.compute_spread = record.compute_spread;
  FillSimulation(record, &result.simulation);
  AddWarnings(record, &result);
  return result;
}

std::vector<WorstLink> WorstLinks(const engine::Record& record, const cluster::Cluster& cluster,
                                  std::size_t count) {
  const auto finish = static_cast<double>(std::max<SimTime>(record.finish_time, 1));
  std::vector<std::size_t> used;
  std::vector<double> utilisation(record.links.size(), 0);
  for (std::size_t l = 0; l < record.links.size(); ++l) {
    if (record.links[l].bytes == 0) continue;
    used.push_back(l);
    const auto rate_Bps = static_cast<double>(cluster.links()[l].bandwidth_Bps);
    utilisation[l] = static_cast<double>(record.links[l].bytes) * static_cast<double>(kSecond) /
                     (rate_Bps * finish);
  }
  const std::size_t kept = std::min(count, used.size());
  std::partial_sort(used.begin(), used.begin() + static_cast<std::ptrdiff_t>(kept), used.end(),
                    [&](std::size_t a, std::size_t b) {
                      const std::int64_t x = record.links[a].bytes, y = record.links[b].bytes;
                      if (utilisation[a] != utilisation[b]) return utilisation[a] > utilisation[b];
                      return x != y ? x > y : a < b;
                    });
  std::vector<WorstLink> worst;
  for (std::size_t i = 0; i < kept; ++i) {
    const std::size_t l = used[i];
    worst.push_back({LinkId(l), cluster.link_name(LinkId(l)), record.links[l].bytes,
                     static_cast<double>(record.links[l].busy) / finish, utilisation[l]});
  }
  return worst;
}

}  // namespace orrery::results
