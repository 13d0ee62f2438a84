#include "orrery/job/tenants.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <set>
#include <span>

#include "orrery/base/text.h"
#include "orrery/base/threads.h"
#include "orrery/constants/constants.h"
#include "orrery/graph/append.h"
#include "orrery/graph/verify/verify.h"
#include "orrery/job/describe.h"
#include "orrery/job/machine.h"
#include "orrery/job/open_timeline.h"
#include "orrery/network/network.h"
#include "orrery/results/requests.h"
#include "orrery/workload/generator.h"

namespace orrery::job {
namespace {

using Clock = std::chrono::steady_clock;
using Members = std::vector<std::size_t>;  // numbers of jobs, rising

constexpr int kSteps = 3;           // of training, and of what repeats and runs alone
constexpr int kMostSteps = 100000;  // of a job in the background
// Of a job in the background: operations of all its iterations and ranks; 16 bytes each.
constexpr double kMostOperations = 4e8;

// What one run says of one job.
struct Outcome {
  SimTime end = 0;   // of its last iteration that was over
  SimTime time = 0;  // SharingRow::time
  int iterations = 0;
  std::optional<results::RequestResult> requests;
};

struct RunOfSet {
  engine::Record record;
  std::vector<std::optional<results::RequestResult>> requests;  // by job
};

// Those of a graph whose ranks come behind `first` others and whose job begins at `start`.
graph::Requests Moved(graph::Requests requests, std::uint32_t first, SimTime start) {
  for (graph::Request& r : requests.all) {
    r.rank += first;
    if (r.after == graph::Request::kNone) r.begin += start;
  }
  for (graph::Requests::Hosts& hosts : requests.hosts) {
    for (std::uint32_t& rank : hosts.ranks) rank += first;
  }
  return requests;
}

// Which sets of jobs run: each alone, and each pair that is not all of them.
std::vector<Members> Subsets(std::size_t jobs, const Interference& interference,
                             results::Sharing* sharing) {
  std::vector<Members> sets;
  if (jobs < 2) return sets;
  if (!interference.alone) {
    sharing->no_matrix_because = "No job ran alone (interference.alone).";
    return sets;
  }
  for (std::size_t j = 0; j < jobs; ++j) sets.push_back({j});
  sharing->runs_alone = static_cast<int>(jobs);
  const std::size_t pairs = jobs * (jobs - 1) / 2;
  if (interference.most_pairs == 0) return sets;
  if (pairs > static_cast<std::size_t>(interference.most_pairs)) {
    sharing->no_matrix_because = fmt::format(
        "No pairs: {} are more than interference.most_pairs, {}.", pairs, interference.most_pairs);
    return sets;
  }
  if (jobs == 2) return sets;
  for (std::size_t i = 0; i < jobs; ++i) {
    for (std::size_t j = i + 1; j < jobs; ++j) sets.push_back({i, j});
  }
  sharing->runs_of_pairs = static_cast<int>(pairs);
  return sets;
}

// The rows' times alone and the matrix, from what every set took.
void Compare(const std::vector<Members>& sets, const std::vector<std::vector<SimTime>>& times,
             const Interference& interference, results::Sharing* sharing) {
  const std::size_t jobs = sharing->rows.size();
  for (std::size_t s = 0; s < sets.size(); ++s) {
    if (sets[s].size() == 1) sharing->rows[sets[s][0]].alone = times[s][0];
  }
  const bool of_two = jobs == 2 && interference.alone && interference.most_pairs > 0;
  if (sharing->runs_of_pairs == 0 && !of_two) return;
  sharing->matrix.assign(jobs, std::vector<double>(jobs, 0));
  const auto set = [&](std::size_t victim, std::size_t other, SimTime time) {
    const SimTime alone = sharing->rows[victim].alone.value_or(0);
    if (alone > 0 && time > 0) {
      sharing->matrix[victim][other] = static_cast<double>(time) / static_cast<double>(alone);
    }
  };
  for (std::size_t s = 0; s < sets.size(); ++s) {
    if (sets[s].size() != 2) continue;
    set(sets[s][0], sets[s][1], times[s][0]);
    set(sets[s][1], sets[s][0], times[s][1]);
  }
  if (!of_two) return;
  set(0, 1, sharing->rows[0].time);
  set(1, 0, sharing->rows[1].time);
}

std::uint32_t HostsOf(const cluster::Spec& spec, std::span<const DeviceId> devices) {
  std::set<std::size_t> hosts;
  for (const DeviceId d : devices) {
    hosts.insert(d.index() / static_cast<std::size_t>(spec.gpus_per_node));
  }
  return static_cast<std::uint32_t>(hosts.size());
}

class TenantRuns {
 public:
  TenantRuns(const Job& job, const SimulateOptions& options) : job_(job), options_(options) {}

  Result<results::RunResult> Run() {
    const auto began = Clock::now();
    ORRERY_RETURN_IF_ERROR(Prepare());
    results::Sharing sharing;
    for (std::size_t j = 0; j < job_.tenants.size(); ++j) sharing.rows.push_back(RowOf(j));
    const std::vector<Members> sets = Subsets(job_.tenants.size(), job_.interference, &sharing);
    ORRERY_ASSIGN_OR_RETURN(const std::vector<std::vector<Outcome>> outcomes, RunSets(sets));
    Members all;
    for (std::size_t j = 0; j < job_.tenants.size(); ++j) all.push_back(j);
    ORRERY_ASSIGN_OR_RETURN(const RunOfSet run, RunTogether(all));
    for (std::size_t j = 0; j < all.size(); ++j) {
      Outcome outcome = OutcomeOf(run, j);
      results::SharingRow& row = sharing.rows[j];
      row.end = outcome.end;
      row.iterations = outcome.iterations;
      row.time = outcome.time;
      row.requests = std::move(outcome.requests);
      if (!alone_.empty()) row.requests_alone = alone_[j].requests;
    }
    std::vector<std::vector<SimTime>> times;
    for (const std::vector<Outcome>& of : outcomes) {
      std::vector<SimTime>& one = times.emplace_back();
      for (const Outcome& outcome : of) one.push_back(outcome.time);
    }
    Compare(sets, times, job_.interference, &sharing);
    ORRERY_ASSIGN_OR_RETURN(results::RunResult result, Assemble(run.record, std::move(sharing)));
    result.simulation.wall_s = std::chrono::duration<double>(Clock::now() - began).count();
    result.simulation.peak_rss_bytes = PeakResidentBytes();
    return result;
  }

 private:
  Status Prepare() {
    ORRERY_ASSIGN_OR_RETURN(machine_, BuildMachine(job_, options_));
    workload::Generator generator;
    std::vector<JobToPlace> to_place;
    for (const Tenant& t : job_.tenants) {
      to_place.push_back({t.name, t.ranks, &t.placement});
      graph::Requests& requests = requests_.emplace_back();
      if (t.trace && OwnIterations(requests_.size() - 1) == 1 && !t.turn.background) {
        requests = Moved(t.trace->requests, static_cast<std::uint32_t>(graph_.bindings.size()),
                         t.turn.start);
      }
      if (t.workload) {
        const Workload& w = job_.workloads[*t.workload];
        ORRERY_RETURN_IF_ERROR(generator.AddJob(w.model, w.plan, w.name, &graph_));
        continue;
      }
      graph::Graph own = t.trace->graph;
      own.jobs.front().name = t.name;
      ORRERY_RETURN_IF_ERROR(graph::Append(std::move(own), &graph_)
                                 .In(fmt::format("{}: job {}", job_.source, Printable(t.name))));
    }
    Result<cluster::Placement> placed = PlaceJobs(machine_->cluster, to_place, job_.engine.seed);
    if (!placed.ok()) return std::move(placed).TakeStatus().In(job_.source);
    placement_ = *std::move(placed);
    if (options_.check) ORRERY_RETURN_IF_ERROR(graph::Verify(graph_));
    operations_.assign(job_.tenants.size(), 0);
    std::vector<double> of(graph_.programs.size(), 0);
    for (std::size_t p = 0; p < of.size(); ++p) {
      for (const graph::Call& call : graph_.programs[p].calls) {
        of[p] += static_cast<double>(call.repeat * graph_.blocks[call.block.index()].ops.size());
      }
    }
    for (const graph::Binding& b : graph_.bindings) {
      operations_[b.job.index()] += of[b.program.index()];
    }
    return {};
  }

  // How often a job runs that ends by itself.
  int OwnIterations(std::size_t j) const {
    const Tenant& t = job_.tenants[j];
    if (t.turn.iterations) return *t.turn.iterations;
    if (t.turn.background) return kSteps;
    if (!t.workload) return 1;
    return job_.engine.iterations > 0 ? job_.engine.iterations : kSteps;
  }
  bool Background(std::size_t j) const { return job_.tenants[j].turn.background; }

  engine::Inputs InputsOn(const Machine& machine) const {
    engine::Inputs in{.graph = &graph_,
                      .cluster = &machine.cluster,
                      .placement = &placement_,
                      .compute = &machine.compute,
                      .planner = &*machine.planner,
                      .network = job_.network,
                      .network_parameters = {.loggops = job_.loggops, .packet = job_.packet}};
    in.network_parameters.endpoints = network::LogGopsEndpoints::kStaged;
    if (job_.loggops.named()) {
      in.network_parameters.joint.o = job_.loggops.o;
      in.network_parameters.joint.O_as = job_.loggops.O_as;
    }
    return in;
  }

  // Runs those of `members`; what repeats in the background is given more iterations until it has
  // more than enough. Alone, it runs a few.
  Result<RunOfSet> RunSet(const Members& members, Machine* machine, engine::Sink* sink,
                          int link_steps) const {
    engine::Options run = job_.engine;
    run.fold = false;
    run.threads = 1;
    run.measured_communication = false;
    run.closed_form_in_domains = true;
    if (run.link_steps == 0) run.link_steps = link_steps;
    for (const Workload& w : job_.workloads) ORRERY_RETURN_IF_ERROR(CheckInput(w));
    const bool ends = std::ranges::any_of(members, [&](std::size_t j) { return !Background(j); });
    run.job_runs.assign(job_.tenants.size(), {.iterations = 0});
    for (const std::size_t j : members) {
      const Tenant& t = job_.tenants[j];
      run.job_runs[j] = {.iterations = OwnIterations(j),
                         .background = ends && Background(j),
                         .rank_noise = t.workload || t.trace->training,
                         .start = t.turn.start,
                         .priority = static_cast<std::uint8_t>(t.turn.priority)};
      if (run.job_runs[j].background) run.job_runs[j].iterations = FirstGuess(members, j);
    }
    for (;;) {
      std::vector<std::unique_ptr<results::RequestLog>> logs(job_.tenants.size());
      engine::Sink* last = sink;
      for (const std::size_t j : members) {
        if (requests_[j].all.empty()) continue;
        logs[j] = std::make_unique<results::RequestLog>(requests_[j], last);
        last = logs[j].get();
      }
      RunOfSet ran;
      ORRERY_ASSIGN_OR_RETURN(ran.record,
                              engine::Run(InputsOn(*machine), run, &*machine->prices, last));
      bool enough = true;
      for (const std::size_t j : members) {
        engine::JobRun& one = run.job_runs[j];
        if (!one.background) continue;
        const auto over = static_cast<int>(ran.record.jobs[j].iteration_end.size());
        if (over < one.iterations) continue;
        enough = false;
        if (one.iterations >= kMostSteps ||
            2.0 * one.iterations * operations_[j] > kMostOperations) {
          return InvalidInput(
              "{}: job {} in the background is over {} times before the others end, and more are "
              "too many to hold; give an iteration more work (steps, iterations of its own), or "
              "take it out of the background",
              job_.source, Printable(job_.tenants[j].name), one.iterations);
        }
        one.iterations = std::min(2 * one.iterations, kMostSteps);
      }
      if (!enough) continue;
      ran.requests.resize(job_.tenants.size());
      for (const std::size_t j : members) {
        if (logs[j] == nullptr) continue;
        ran.requests[j] = logs[j]->Take(ran.record);
        ran.requests[j]->each = {};
        // Hosts work for as long as their job runs, not for as long as all do.
        const SimTime end = ran.record.jobs[j].iteration_end.back();
        const double share = static_cast<double>(ran.record.finish_time) /
                             static_cast<double>(std::max<SimTime>(end - run.job_runs[j].start, 1));
        for (results::RequestResult::Hosts& hosts : ran.requests[j]->hosts) {
          hosts.busy *= share;
          hosts.busiest *= share;
        }
      }
      return ran;
    }
  }
  Status CheckInput(const Workload& w) const {
    if (w.plan.input_time() == 0) return {};
    return InvalidInput("{}: job {}: training.sample_read is for jobs that only train", job_.source,
                        Printable(w.name));
  }

  // As many iterations of the background as the others' time alone holds, and a few.
  int FirstGuess(const Members& members, std::size_t background) const {
    if (alone_.empty() || alone_[background].time <= 0) return 2 * kSteps;
    SimTime last = 0;
    for (const std::size_t j : members) {
      if (!Background(j)) last = std::max(last, alone_[j].end);
    }
    const double each = static_cast<double>(alone_[background].time);
    const double guess = 1.1 * static_cast<double>(last) / each + 2;
    const double most = std::max(2.0, kMostOperations / std::max(operations_[background], 1.0));
    return static_cast<int>(std::min({guess, most, double{kMostSteps}}));
  }

  Outcome OutcomeOf(const RunOfSet& run, std::size_t j) const {
    const std::vector<SimTime>& ends = run.record.jobs[j].iteration_end;
    Outcome outcome;
    outcome.requests = run.requests[j];
    if (ends.empty()) return outcome;
    outcome.end = ends.back();
    outcome.iterations = static_cast<int>(ends.size());
    const SimTime time = ends.back() - job_.tenants[j].turn.start;
    outcome.time = Background(j) ? time / outcome.iterations : time;
    return outcome;
  }

  // Every set's outcomes, by member. Sets of one come first; what they say goes into those behind.
  Result<std::vector<std::vector<Outcome>>> RunSets(const std::vector<Members>& sets) {
    std::vector<std::vector<Outcome>> outcomes(sets.size());
    const auto alone = static_cast<std::size_t>(
        std::ranges::count_if(sets, [](const Members& m) { return m.size() == 1; }));
    ORRERY_RETURN_IF_ERROR(RunRange(sets, 0, alone, &outcomes));
    for (std::size_t s = 0; s < alone; ++s) alone_.push_back(outcomes[s].front());
    ORRERY_RETURN_IF_ERROR(RunRange(sets, alone, sets.size(), &outcomes));
    return outcomes;
  }
  Status RunRange(const std::vector<Members>& sets, std::size_t begin, std::size_t end,
                  std::vector<std::vector<Outcome>>* outcomes) const {
    std::vector<Status> errors(sets.size());
    std::atomic<std::size_t> next = begin;
    const auto work = [&](Machine* machine) {
      for (std::size_t s = next++; s < end; s = next++) {
        Result<RunOfSet> run = RunSet(sets[s], machine, nullptr, 0);
        if (!run.ok()) {
          errors[s] = std::move(run).TakeStatus();
          continue;
        }
        for (const std::size_t j : sets[s]) (*outcomes)[s].push_back(OutcomeOf(*run, j));
      }
    };
    std::vector<std::unique_ptr<Machine>> machines;
    const std::size_t threads =
        std::min(end - begin, static_cast<std::size_t>(std::max(job_.engine.threads, 1)));
    for (std::size_t i = 1; i < threads; ++i) {
      ORRERY_ASSIGN_OR_RETURN(std::unique_ptr<Machine> machine, BuildMachine(job_, options_));
      machines.push_back(std::move(machine));
    }
    {
      const auto others = StartThreads(
          machines.size(), [&](std::size_t thread) { work(machines[thread - 1].get()); });
      work(machine_.get());
    }
    for (Status& error : errors) ORRERY_RETURN_IF_ERROR(std::move(error));
    return {};
  }

  Result<RunOfSet> RunTogether(const Members& all) {
    // A run that is made over with more iterations would show both.
    const bool repeats = std::ranges::any_of(all, [&](std::size_t j) { return Background(j); });
    if (!options_.timeline.empty() && repeats) {
      return InvalidInput("--timeline: not with jobs in the background; give them iterations");
    }
    ORRERY_ASSIGN_OR_RETURN(timeline_,
                            OpenTimeline(options_.timeline, options_.timeline_ranks, graph_));
    const bool links = timeline_ && network::SeesLinks(job_.network);
    return RunSet(all, machine_.get(), timeline_ ? &*timeline_ : nullptr,
                  links ? kTimelineSteps : 0);
  }

  results::SharingRow RowOf(std::size_t j) const {
    const Tenant& t = job_.tenants[j];
    results::SharingRow row;
    row.name = t.name;
    row.kind = t.workload ? "training" : std::string(t.importer->title);
    row.job = t.workload;
    if (t.workload) {
      row.description = DescribeWorkload(job_.workloads[*t.workload]);
    } else {
      for (const std::string& file : t.files) {
        row.description += fmt::format("{}{}", row.description.empty() ? "" : " ", file);
      }
      for (const auto& [key, value] : t.keys) {
        row.description += fmt::format("{}{} {}", row.description.empty() ? "" : ", ", key, value);
      }
    }
    row.placement = Name(t.placement.policy);
    row.ranks = static_cast<std::uint32_t>(t.ranks);
    std::size_t first = 0;
    for (std::size_t i = 0; i < j; ++i) first += job_.tenants[i].ranks;
    row.hosts = HostsOf(job_.cluster, {placement_.device.data() + first, t.ranks});
    row.priority = t.turn.priority;
    row.background = t.turn.background;
    row.start = t.turn.start;
    return row;
  }

  Result<results::RunResult> Assemble(const engine::Record& record, results::Sharing sharing) {
    ORRERY_ASSIGN_OR_RETURN(const std::vector<memory::Footprint> footprints, Memory());
    std::vector<results::JobFacts> facts;
    for (const Tenant& t : job_.tenants) {
      facts.push_back(t.workload ? FactsOf(job_, job_.workloads[*t.workload])
                                 : results::JobFacts());
    }
    results::RunResult result = results::Assemble(
        {.graph = &graph_, .record = &record, .jobs = facts, .footprints = footprints});
    std::vector<results::JobResult> training;
    for (std::size_t j = 0; j < job_.tenants.size(); ++j) {
      if (job_.tenants[j].workload) training.push_back(std::move(result.jobs[j]));
    }
    result.jobs = std::move(training);
    for (const results::SharingRow& row : sharing.rows) {
      if (row.iterations > 0) continue;
      result.warnings.push_back(fmt::format(
          "job '{}' came to the end of no iteration before the others ended", row.name));
    }
    if (!network::SeesLinks(job_.network)) {
      result.warnings.push_back(fmt::format(
          "network '{}' sees GPUs' ports and NICs, not the links between switches: jobs "
          "on different hosts do not slow each other; take flow, links or packet",
          job_.network));
    }
    result.sharing = std::move(sharing);
    result.worst_links = results::WorstLinks(record, machine_->cluster);
    result.over_time = results::OverTime(record, machine_->cluster, result.worst_links);
    if (record.packets) result.packets = results::UseOfPackets(*record.packets, machine_->cluster);
    if (timeline_) {
      timeline_->AddCounters(result.over_time);
      ORRERY_RETURN_IF_ERROR(timeline_->Finish());
    }
    result.cluster = DescribeCluster(job_.cluster, job_.gpus());
    result.network = job_.network;
    AddAssumed(&result);
    result.config_json = job_.config_json;
    result.simulation.version = Version();
    result.simulation.config_hash = job_.config_hash;
    result.simulation.seed = job_.engine.seed;
    return result;
  }

  void AddAssumed(results::RunResult* result) const {
    result->assumed = job_.assumed;
    result->ignored = job_.ignored;
    const auto backend =
        std::ranges::find(network::Backends(), job_.network, &network::BackendInfo::name);
    if (!job_.workloads.empty() && !backend->fluids && !backend->link_fluids) {
      result->assumed.emplace_back(
          "collectives inside an NVLink domain take their closed form's time, not that of their "
          "messages (docs/tenants.md)");
    }
    for (std::size_t j = 0; j < job_.tenants.size(); ++j) {
      const Tenant& t = job_.tenants[j];
      const auto add = [&](std::string_view what) {
        const std::string line = fmt::format("job {}: {}", t.name, what);
        if (std::ranges::find(result->assumed, line) == result->assumed.end()) {
          result->assumed.push_back(line);
        }
      };
      if (t.workload && !t.turn.iterations && !t.turn.background) {
        add(fmt::format("{} steps (iterations)", OwnIterations(j)));
      }
      if (t.workload) {
        const Workload& w = job_.workloads[*t.workload];
        if (!w.defaults.empty())
          result->defaults.push_back(fmt::format("job {}: {}", t.name, w.defaults));
        if (!w.switches.empty())
          result->switches.push_back(fmt::format("job {}: {}", t.name, w.switches));
        continue;
      }
      for (const graph::Block& block : t.trace->graph.blocks) {
        for (const graph::Assumption& a : block.assumed) add(t.trace->graph.name(a.text));
      }
    }
  }

  // Of what trains.
  Result<std::vector<memory::Footprint>> Memory() const {
    std::vector<memory::Footprint> footprints;
    memory::Options options = job_.memory;
    options.libraries.assign(job_.tenants.size(), {});
    std::vector<char> trains(graph_.programs.size(), 0);
    for (const graph::Binding& b : graph_.bindings) {
      const Tenant& t = job_.tenants[b.job.index()];
      if (!t.workload) continue;
      trains[b.program.index()] = 1;
      options.libraries[b.job.index()] = job_.workloads[*t.workload].libraries;
    }
    for (std::size_t p = 0; p < trains.size(); ++p) {
      if (trains[p] == 0) continue;
      ORRERY_ASSIGN_OR_RETURN(memory::Footprint footprint,
                              memory::Replay(graph_, ProgramId(p), job_.cluster.device, options));
      footprints.push_back(std::move(footprint));
    }
    return footprints;
  }

  const Job& job_;
  const SimulateOptions& options_;
  std::unique_ptr<Machine> machine_;
  graph::Graph graph_;
  cluster::Placement placement_;
  std::vector<graph::Requests> requests_;  // by job, of those that serve some once
  std::vector<double> operations_;         // of one iteration, by job
  std::vector<Outcome> alone_;             // by job, once known
  std::optional<results::Timeline> timeline_;
};

}  // namespace

Result<results::RunResult> SimulateTenants(const Job& job, const SimulateOptions& options) {
  if (!options.heat_map.empty()) {
    return InvalidInput("--heat-map: not for jobs of several kinds; --full names the worst links");
  }
  return TenantRuns(job, options).Run();
}

Status CompareTraining(const Job& job, const SimulateOptions& options,
                       const std::vector<DeviceId>& devices, Caches* caches,
                       results::RunResult* result) {
  results::Sharing sharing;
  sharing.steps = true;
  std::vector<std::size_t> first = {0};
  for (std::size_t j = 0; j < job.workloads.size(); ++j) {
    const results::JobResult& one = result->jobs[j];
    first.push_back(first.back() + one.ranks);
    results::SharingRow row;
    row.name = one.name;
    row.kind = "training";
    row.placement = Name(job.workloads[j].placement.policy);
    row.ranks = one.ranks;
    row.hosts = HostsOf(job.cluster, {devices.data() + first[j], one.ranks});
    row.time = one.step_time;
    row.job = j;
    sharing.rows.push_back(std::move(row));
  }
  const std::vector<Members> sets = Subsets(job.workloads.size(), job.interference, &sharing);
  std::vector<std::vector<SimTime>> times;
  for (const Members& set : sets) {
    Job some = job;
    some.workloads.clear();
    some.engine.ranks.clear();
    some.memory.libraries.clear();
    for (const std::size_t j : set) {
      Workload w = job.workloads[j];
      const std::uint32_t before = static_cast<std::uint32_t>(some.ranks());
      for (engine::RankPerturbation p : job.engine.ranks) {
        if (p.rank.index() < first[j] || p.rank.index() >= first[j + 1]) continue;
        p.rank = RankId(p.rank.index() - first[j] + before);
        some.engine.ranks.push_back(p);
      }
      w.placement = {.policy = PlacementPolicy::kExplicit,
                     .devices = {devices.begin() + static_cast<std::ptrdiff_t>(first[j]),
                                 devices.begin() + static_cast<std::ptrdiff_t>(first[j + 1])}};
      some.workloads.push_back(std::move(w));
    }
    SimulateOptions quiet;
    quiet.measured_database = options.measured_database;
    quiet.check = false;
    ORRERY_ASSIGN_OR_RETURN(const Simulation run, Simulation::Prepare(some, quiet, caches));
    ORRERY_ASSIGN_OR_RETURN(std::vector<SimTime> steps, run.StepTimes());
    times.push_back(std::move(steps));
  }
  Compare(sets, times, job.interference, &sharing);
  result->sharing = std::move(sharing);
  return {};
}

}  // namespace orrery::job
