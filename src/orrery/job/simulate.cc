#include "orrery/job/simulate.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "orrery/base/file.h"
#include "orrery/base/text.h"
#include "orrery/cluster/cluster.h"
#include "orrery/cluster/draw.h"
#include "orrery/collective/collective.h"
#include "orrery/compute/compute.h"
#include "orrery/engine/engine.h"
#include "orrery/engine/prices.h"
#include "orrery/graph/verify/verify.h"
#include "orrery/job/campaign.h"
#include "orrery/job/describe.h"
#include "orrery/job/machine.h"
#include "orrery/job/open_timeline.h"
#include "orrery/job/remedy.h"
#include "orrery/job/straddling_groups.h"
#include "orrery/job/tenants.h"
#include "orrery/memory/library_memory.h"
#include "orrery/memory/memory.h"
#include "orrery/network/network.h"
#include "orrery/results/timeline.h"
#include "orrery/workload/generator.h"

namespace orrery::job {
namespace {

using Clock = std::chrono::steady_clock;

std::string MachineKey(const Job& job, const SimulateOptions& options) {
  // A file's content counts, which may change between the runs of one process.
  const std::uint64_t slowdown = job.engine.slowdown ? job.engine.slowdown->content() : 0;
  return fmt::format("{}\n{}\n{:x}", MachineText(job),
                     job.measured_kernels ? options.measured_database : "", slowdown);
}

void AddRemedy(const Job& job, std::size_t index, const graph::Graph& graph,
               results::RunResult* result) {
  results::JobResult& one = result->jobs[index];
  const memory::Footprint* worst = nullptr;
  for (const results::MemoryRow& row : one.memory) {
    if (!row.footprint.oom) continue;
    if (worst == nullptr || row.footprint.total() > worst->total()) worst = &row.footprint;
  }
  if (worst != nullptr) one.memory_remedy = MemoryRemedy(job, index, graph, *worst);
}

}  // namespace

struct Caches::Impl {
  struct Kept {
    std::string key;
    std::unique_ptr<Machine> machine;
  };
  // As many as a sweep over one key of the cluster has values; memory is a few MB each.
  static constexpr std::size_t kMostMachines = 16;

  // The machine of the job, built unless it is among those used last.
  Result<Machine*> Find(const Job& job, const SimulateOptions& options) {
    std::string key = MachineKey(job, options);
    const auto kept = std::find_if(machines.begin(), machines.end(),
                                   [&](const Kept& one) { return one.key == key; });
    if (kept != machines.end()) {
      std::rotate(machines.begin(), kept, kept + 1);
      return machines.front().machine.get();
    }
    if (machines.size() == kMostMachines) machines.pop_back();
    ORRERY_ASSIGN_OR_RETURN(std::unique_ptr<Machine> machine, BuildMachine(job, options));
    machines.insert(machines.begin(), Kept{std::move(key), std::move(machine)});
    return machines.front().machine.get();
  }

  workload::Generator generator;
  std::vector<Kept> machines;  // used last first
};

Caches::Caches() : impl_(std::make_unique<Impl>()) {}
Caches::Caches(Caches&&) noexcept = default;
Caches& Caches::operator=(Caches&&) noexcept = default;
Caches::~Caches() = default;

struct Simulation::State {
  const Job* job = nullptr;
  SimulateOptions options;
  Machine* machine = nullptr;
  graph::Graph graph;
  cluster::Placement placement;
  Clock::time_point began;
};

Simulation::Simulation(std::unique_ptr<State> state) : state_(std::move(state)) {}
Simulation::Simulation(Simulation&&) noexcept = default;
Simulation::~Simulation() = default;

const graph::Graph& Simulation::graph() const { return state_->graph; }

Result<Simulation> Simulation::Prepare(const Job& job, const SimulateOptions& options,
                                       Caches* caches) {
  if (!options.heat_map.empty() && !network::SeesLinks(job.network)) {
    return InvalidInput("--heat-map: the network '{}' sees ports, not links; choose flow or links",
                        job.network);
  }
  auto state = std::make_unique<State>();
  state->began = Clock::now();
  state->job = &job;
  state->options = options;
  Caches::Impl& kept = *caches->impl_;
  ORRERY_ASSIGN_OR_RETURN(state->machine, kept.Find(job, options));
  for (const Workload& workload : job.workloads) {
    ORRERY_RETURN_IF_ERROR(
        kept.generator.AddJob(workload.model, workload.plan, workload.name, &state->graph));
    state->graph.jobs.back().noise = job.engine.rank_noise;
  }
  std::vector<JobToPlace> to_place;
  for (const Workload& w : job.workloads) {
    to_place.push_back({w.name, static_cast<std::size_t>(w.plan.ranks()), &w.placement});
  }
  Result<cluster::Placement> placed = PlaceJobs(state->machine->cluster, to_place, job.engine.seed);
  if (!placed.ok()) return std::move(placed).TakeStatus().In(job.source);
  state->placement = *std::move(placed);
  if (options.check) ORRERY_RETURN_IF_ERROR(graph::Verify(state->graph));
  return Simulation(std::move(state));
}

Status Simulation::WriteHeatMap(const State& state, const engine::Record& record) {
  const double finish_s = ToSeconds(std::max<SimTime>(record.finish_time, 1));
  const auto links = state.machine->cluster.links();
  std::vector<double> used;
  for (std::size_t l = 0; l < record.links.size(); ++l) {
    used.push_back(static_cast<double>(record.links[l].bytes) /
                   (static_cast<double>(links[l].bandwidth_Bps) * finish_s));
  }
  return WriteFile(state.options.heat_map, cluster::DrawSvg(state.machine->cluster, used));
}

engine::Inputs Simulation::inputs() const {
  const State& s = *state_;
  return {.graph = &s.graph,
          .cluster = &s.machine->cluster,
          .placement = &s.placement,
          .compute = &s.machine->compute,
          .planner = &*s.machine->planner,
          .network = s.job->network,
          .network_parameters = {.loggops = s.job->loggops, .packet = s.job->packet}};
}

// `link_steps`: where the job keeps no use of links over time.
Result<engine::Record> Simulation::RunEngine(engine::Sink* sink, int link_steps) const {
  const State& s = *state_;
  const Job& job = *s.job;
  engine::Options options = job.engine;
  for (const Workload& w : job.workloads) options.input_times.push_back(w.plan.input_time());
  if (options.link_steps == 0) options.link_steps = link_steps;
  return engine::Run(inputs(), options, &*s.machine->prices, sink);
}

Result<results::StepPath> Simulation::CriticalPath() const {
  results::StepPathSink sink(state_->graph, results::DefaultRanks(state_->graph));
  ORRERY_ASSIGN_OR_RETURN(const engine::Record record, RunEngine(&sink, 0));
  const engine::JobRecord& one = record.jobs.front();
  const SimTime to = one.iteration_end.back();
  return sink.Path(one.iteration_end.size() > 1 ? one.iteration_end.end()[-2] : SimTime{0}, to);
}

Result<std::vector<SimTime>> Simulation::StepTimes() const {
  ORRERY_ASSIGN_OR_RETURN(const engine::Record record, RunEngine(nullptr, 0));
  std::vector<SimTime> times;
  for (const engine::JobRecord& one : record.jobs) times.push_back(one.step_time);
  return times;
}

namespace {

// Device memory that the fullest program needs at least: live bytes at their peak, context and
// libraries.
Result<std::int64_t> LeastBytes(const graph::Graph& graph, const Job& job) {
  const std::vector<memory::BlockNet> nets = memory::BlockNets(graph);
  std::vector<const graph::Binding*> bindings(graph.programs.size());
  for (const graph::Binding& binding : graph.bindings) {
    const graph::Binding*& first = bindings[binding.program.index()];
    if (first == nullptr) first = &binding;
  }
  std::int64_t most = 0;
  for (std::size_t p = 0; p < graph.programs.size(); ++p) {
    ORRERY_ASSIGN_OR_RETURN(const std::int64_t peak, memory::QuickPeak(graph, ProgramId(p), nets));
    most = std::max(
        most, peak + memory::ContextBytes(graph, graph.programs[p], bindings[p],
                                          job.workloads.front().libraries, job.cluster.device));
  }
  return most;
}

}  // namespace

Result<Evaluation> Simulation::Evaluate(bool bounded) {
  const State& s = *state_;
  const Job& job = *s.job;
  ORRERY_CHECK(job.workloads.size() == 1, "one job is evaluated");
  Evaluation evaluation;
  ORRERY_ASSIGN_OR_RETURN(evaluation.least_bytes, LeastBytes(s.graph, job));
  evaluation.job.device_bytes = job.cluster.device.memory_bytes;
  if (bounded && evaluation.too_large()) return evaluation;
  ORRERY_ASSIGN_OR_RETURN(const engine::Record record, RunEngine(nullptr, 0));
  const results::JobFacts facts = FactsOf(job, job.workloads.front());
  results::RunResult result = results::Assemble(
      {.graph = &s.graph, .record = &record, .jobs = {&facts, 1}, .footprints = {}});
  evaluation.job = std::move(result.jobs.front());
  evaluation.fingerprint = record.fingerprint;
  evaluation.compute_spread = record.compute_spread;
  evaluation.tokens_per_step = s.graph.jobs.front().tokens_per_step;
  evaluation.warnings = std::move(result.warnings);
  AddCampaign(job, 0, s.graph, s.machine->compute, false, &evaluation.job);
  return evaluation;
}

WorkFloor Simulation::Floor() const {
  const State& s = *state_;
  return FloorOf(s.graph, s.machine->cluster, s.placement, s.machine->compute, *s.machine->planner);
}

std::vector<Shares> Simulation::OpShares() const {
  const State& s = *state_;
  return SharesOf(s.graph, s.machine->cluster, s.placement, s.machine->compute,
                  *s.machine->planner);
}

Result<std::vector<memory::Footprint>> Simulation::ReplayMemory() const {
  return memory::ReplayAll(state_->graph, state_->job->cluster.device, state_->job->memory);
}

Result<memory::Footprint> Simulation::ReplayMemory(ProgramId program) const {
  return memory::Replay(state_->graph, program, state_->job->cluster.device, state_->job->memory);
}

Result<results::RunResult> Simulation::Run() {
  State& s = *state_;
  const Job& job = *s.job;
  ORRERY_ASSIGN_OR_RETURN(std::optional<results::Timeline> timeline,
                          OpenTimeline(s.options.timeline, s.options.timeline_ranks, s.graph));
  const bool sees_links = timeline && network::SeesLinks(job.network);
  ORRERY_ASSIGN_OR_RETURN(const engine::Record record, RunEngine(timeline ? &*timeline : nullptr,
                                                                 sees_links ? kTimelineSteps : 0));
  ORRERY_ASSIGN_OR_RETURN(const std::vector<memory::Footprint> footprints, ReplayMemory());
  std::vector<results::JobFacts> facts;
  for (const Workload& workload : job.workloads) facts.push_back(FactsOf(job, workload));
  results::RunResult result = results::Assemble(
      {.graph = &s.graph, .record = &record, .jobs = facts, .footprints = footprints});
  for (std::string& warning : StraddlingGroups(s.graph, s.machine->cluster, s.placement)) {
    result.warnings.push_back(std::move(warning));
  }
  for (std::size_t i = 0; i < result.jobs.size(); ++i) {
    AddRemedy(job, i, s.graph, &result);
    AddCampaign(job, i, s.graph, s.machine->compute, true, &result.jobs[i]);
  }
  result.worst_links = results::WorstLinks(record, s.machine->cluster);
  result.over_time = results::OverTime(record, s.machine->cluster, result.worst_links);
  if (record.packets) result.packets = results::UseOfPackets(*record.packets, s.machine->cluster);
  if (timeline) {
    timeline->AddCounters(result.over_time);
    ORRERY_RETURN_IF_ERROR(timeline->Finish());
  }
  if (!s.options.heat_map.empty()) ORRERY_RETURN_IF_ERROR(WriteHeatMap(s, record));
  result.cluster = DescribeCluster(job.cluster, job.ranks());
  result.network = job.network;
  result.assumed = job.assumed;
  result.ignored = job.ignored;
  for (const Workload& workload : job.workloads) {
    const std::string who = job.workloads.size() > 1 ? fmt::format("job {}: ", workload.name) : "";
    if (!workload.defaults.empty()) result.defaults.push_back(who + workload.defaults);
    if (!workload.switches.empty()) result.switches.push_back(who + workload.switches);
  }
  result.config_json = job.config_json;
  result.simulation.version = Version();
  result.simulation.config_hash = job.config_hash;
  result.simulation.seed = job.engine.seed;
  result.simulation.wall_s = std::chrono::duration<double>(Clock::now() - s.began).count();
  result.simulation.peak_rss_bytes = PeakResidentBytes();
  return result;
}

Result<results::RunResult> Simulate(const Job& job, const SimulateOptions& options,
                                    Caches* caches) {
  if (!job.tenants.empty()) return SimulateTenants(job, options);
  Caches own;
  Caches* const used = caches != nullptr ? caches : &own;
  ORRERY_ASSIGN_OR_RETURN(Simulation simulation, Simulation::Prepare(job, options, used));
  ORRERY_ASSIGN_OR_RETURN(results::RunResult result, simulation.Run());
  if (job.workloads.size() > 1 && job.interference.alone) {
    ORRERY_RETURN_IF_ERROR(
        CompareTraining(job, options, simulation.inputs().placement->device, used, &result));
  }
  return result;
}

std::int64_t PeakResidentBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

std::string_view Version() { return ORRERY_VERSION; }

}  // namespace orrery::job
