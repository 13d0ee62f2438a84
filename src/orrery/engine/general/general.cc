#include "orrery/engine/general/general.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "orrery/base/text.h"
#include "orrery/engine/general/machine.h"
#include "orrery/engine/rank_noise.h"

namespace orrery::engine::general {
namespace {

// What the ranks run, for a number of iterations.
class Programs {
 public:
  Programs(const Inputs& inputs, const Options& options, PriceCache* prices)
      : in_(inputs), slowdown_(options.slowdown.get()) {
    const graph::Graph& graph = *inputs.graph;
    speed.assign(graph.bindings.size(), 1);
    delay.assign(graph.bindings.size(), 0);
    for (const RankPerturbation& p : options.ranks) {
      speed[p.rank.index()] = p.speed;
      delay[p.rank.index()] = p.delay;
    }
    runs_ = options.job_runs;
    for (std::size_t r = 0; r < delay.size() && !runs_.empty(); ++r) {
      delay[r] += runs_[graph.bindings[r].job.index()].start;
    }
    if (options.rank_noise == 0) return;
    paces = RankPaces(graph, options.rank_noise, prices);
    for (std::size_t r = 0; r < speed.size(); ++r) {
      const graph::Binding& b = graph.bindings[r];
      if (runs_.empty() || runs_[b.job.index()].rank_noise) speed[r] /= paces[b.program.index()];
    }
  }

  Status Make(int iterations) {
    const graph::Graph& graph = *in_.graph;
    flats_.clear();
    trivial_.clear();
    by_rank.assign(graph.bindings.size(), {});
    std::vector<const FlatProgram*> flat(graph.programs.size(), nullptr);
    for (std::size_t r = 0; r < by_rank.size(); ++r) {
      const ProgramId id = graph.bindings[r].program;
      const std::size_t job = graph.bindings[r].job.index();
      const int times = IterationsOf(graph, job, iterations);
      if (flat[id.index()] == nullptr) {
        flats_.push_back(std::make_unique<FlatProgram>(
            graph, graph.programs[id.index()], times,
            [&](graph::GroupSlot slot) { return Trivial(id, slot); }));
        flat[id.index()] = flats_.back().get();
      }
      by_rank[r].flat = flat[id.index()];
      by_rank[r].iterations = times;
      by_rank[r].background = !runs_.empty() && runs_[job].background;
      ORRERY_ASSIGN_OR_RETURN(by_rank[r].costs, Price(id, speed[r]));
    }
    return {};
  }

  // Every job has its number of iterations, whether its steps settle or not.
  bool runs_as_said() const { return !runs_.empty(); }
  // `iterations`: of jobs whose own number is not given.
  int IterationsOf(const graph::Graph& graph, std::size_t job, int iterations) const {
    if (!runs_.empty()) return runs_[job].iterations;
    return graph.jobs[job].once ? 1 : iterations;
  }

  std::vector<RankProgram> by_rank;
  std::vector<double> paces;  // of kernels, by program; empty: all are 1
  std::vector<double> speed;
  std::vector<SimTime> delay;

 private:
  using Key = std::pair<std::uint32_t, double>;  // a block's or a program's number, the speed
  bool Trivial(ProgramId id, graph::GroupSlot slot) {
    const auto [known, fresh] = trivial_.try_emplace({id.value, slot}, true);
    if (!fresh) return known->second;
    const graph::Graph& graph = *in_.graph;
    for (const graph::Binding& b : graph.bindings) {
      if (b.program != id) continue;
      const GroupId group = graph.group(b, slot);
      if (group.valid() && graph.groups.members(group).size() > 1) known->second = false;
    }
    return known->second;
  }
  // What the program's calls cost, shared by its ranks of equal speed.
  Result<const std::vector<const BlockCosts*>*> Price(ProgramId id, double at_speed) {
    const auto [known, fresh] = by_program_.try_emplace({id.value, at_speed});
    if (!fresh) return &known->second;
    const graph::Graph& graph = *in_.graph;
    for (const graph::Call& call : graph.programs[id.index()].calls) {
      auto& costs = costs_[{call.block.value, at_speed}];
      if (costs == nullptr) {
        ORRERY_ASSIGN_OR_RETURN(BlockCosts made,
                                CostsOf(graph.blocks[call.block.index()], *in_.compute,
                                        in_.cluster->spec(), at_speed, slowdown_));
        costs = std::make_unique<BlockCosts>(std::move(made));
      }
      known->second.push_back(costs.get());
    }
    return &known->second;
  }

  const Inputs& in_;
  const interference::Learned* slowdown_;
  std::span<const JobRun> runs_;  // by job, or none
  std::vector<std::unique_ptr<FlatProgram>> flats_;
  std::map<Key, std::unique_ptr<BlockCosts>> costs_;                    // by block
  std::map<Key, std::vector<const BlockCosts*>> by_program_;            // and call
  std::map<std::pair<std::uint32_t, graph::GroupSlot>, bool> trivial_;  // by program
};

// One run over a number of iterations, with its transport.
struct Once {
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Machine> machine;
};

bool HoldsInterfaces(const graph::Graph& graph) {
  return std::ranges::any_of(graph.blocks, [](const graph::Block& b) {
    return std::ranges::any_of(b.holds,
                               [](const graph::Hold& h) { return h.nic != graph::Hold::kNone; });
  });
}

// Joint endpoints serve messages that hold a processor and an interface, and nothing else.
Status CheckJoint(const graph::Graph& graph) {
  for (std::size_t i = 0; i < graph.blocks.size(); ++i) {
    const graph::Block& b = graph.blocks[i];
    for (std::size_t o = 0; o < b.ops.size(); ++o) {
      if (b.ops[o].kind != graph::OpKind::kComm) continue;
      const graph::Comm& c = b.comms[b.ops[o].index];
      const graph::Hold hold = b.ops[o].hold == 0 ? graph::Hold() : b.holds[b.ops[o].hold - 1u];
      if (graph::IsCopy(c.collective)) continue;
      const bool message = graph::IsPointToPoint(c.collective);
      if (message && hold.cpu != graph::Hold::kNone && hold.nic != graph::Hold::kNone) continue;
      return InvalidInput(
          "network 'loggops' with joint endpoints serves messages that hold a processor and an "
          "interface; op {} of block {} is {}: use --set loggops.endpoints=staged or another "
          "network",
          o, i, graph::Name(c.collective));
    }
  }
  return {};
}

std::vector<JobRecord> JobRecords(const graph::Graph& graph, const Machine& machine,
                                  const Programs& programs, int iterations) {
  std::vector<JobRecord> jobs(graph.jobs.size());
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    jobs[j].iteration_end.assign(
        static_cast<std::size_t>(programs.IterationsOf(graph, j, iterations)), 0);
  }
  for (std::size_t r = 0; r < graph.bindings.size(); ++r) {  // what was not stopped
    if (!programs.by_rank[r].background) continue;
    auto& ends = jobs[graph.bindings[r].job.index()].iteration_end;
    while (!ends.empty() && !machine.over(r, static_cast<int>(ends.size()) - 1)) ends.pop_back();
  }
  for (std::size_t r = 0; r < graph.bindings.size(); ++r) {
    auto& ends = jobs[graph.bindings[r].job.index()].iteration_end;
    for (std::size_t k = 0; k < ends.size(); ++k) {
      ends[k] = std::max(ends[k], machine.end(r, static_cast<int>(k)));
    }
  }
  for (JobRecord& job : jobs) {
    const std::size_t k = job.iteration_end.size();
    if (k == 0) continue;
    job.step_time = job.iteration_end[k - 1] - (k > 1 ? job.iteration_end[k - 2] : 0);
  }
  for (std::size_t r = 0; r < graph.bindings.size(); ++r) {
    JobRecord& job = jobs[graph.bindings[r].job.index()];
    const std::size_t k = job.iteration_end.size();
    if (k < 2 || programs.runs_as_said()) continue;
    const auto last = static_cast<int>(k) - 1;
    const SimTime drift = (job.iteration_end[k - 1] - machine.end(r, last)) -
                          (job.iteration_end[k - 2] - machine.end(r, last - 1));
    if (std::abs(static_cast<double>(drift)) > kSettled * static_cast<double>(job.step_time)) {
      job.settled = false;
    }
  }
  return jobs;
}

class Runner {
 public:
  Runner(const Inputs& inputs, const Options& options, const network::BackendInfo& backend,
         PriceCache* prices, Sink* sink)
      : in_(inputs),
        options_(options),
        backend_(backend),
        prices_(prices),
        sink_(sink),
        programs_(inputs, options, prices) {}

  Result<Record> Run() {
    if (options_.jitter > 0) {
      return InvalidInput(
          "perturb.jitter is drawn for stretches between communications, which a graph of this "
          "kind does not have: leave it out");
    }
    const graph::Graph& graph = *in_.graph;
    joint_ = backend_.name == "loggops" && Joint(graph);
    if (joint_) ORRERY_RETURN_IF_ERROR(CheckJoint(graph));
    const bool once = std::ranges::all_of(graph.jobs, [](const auto& j) { return j.once; });
    if (!once && graph.jobs.size() > 1 && options_.job_runs.empty()) {
      return InvalidInput("several jobs, one of which is no straight program: say how each runs");
    }
    const bool fixed = options_.iterations != 0 || once || !options_.job_runs.empty();
    int iterations = once ? 1 : options_.iterations == 0 ? 2 : options_.iterations;
    if (!joint_) layout_ = BuildPorts(in_, prices_);
    Record record;
    for (;; ++iterations) {
      ORRERY_RETURN_IF_ERROR(RunFor(iterations, fixed ? sink_ : nullptr));
      record.events += run_.machine->events();
      record.jobs = JobRecords(graph, *run_.machine, programs_, iterations);
      const bool settled =
          std::ranges::all_of(record.jobs, [](const auto& j) { return j.settled; });
      if (fixed || settled || iterations >= kMostIterations) break;
    }
    if (!fixed && sink_ != nullptr) ORRERY_RETURN_IF_ERROR(RunFor(iterations, sink_));
    Fill(iterations, &record);
    return record;
  }

 private:
  bool Joint(const graph::Graph& graph) const {
    switch (in_.network_parameters.endpoints) {
      case network::LogGopsEndpoints::kDefault:
        return HoldsInterfaces(graph);
      case network::LogGopsEndpoints::kJoint:
        return true;
      case network::LogGopsEndpoints::kStaged:
        return false;
    }
    return false;
  }

  Status RunFor(int iterations, Sink* sink) {
    run_ = {};
    ORRERY_RETURN_IF_ERROR(programs_.Make(iterations));
    if (!joint_) {
      const TransportInputs in{&in_, &options_, prices_, &layout_};
      ORRERY_ASSIGN_OR_RETURN(run_.transport, MakeTransport(in, backend_));
    }
    MachineInputs in;
    in.inputs = &in_;
    in.options = &options_;
    in.prices = prices_;
    in.programs = programs_.by_rank;
    in.speed = programs_.speed;
    in.delay = programs_.delay;
    in.joint = joint_;
    in.closed_form_in_domains =
        options_.closed_form_in_domains && !backend_.fluids && !backend_.link_fluids;
    in.loggops = in_.network_parameters.joint;
    in.transport = run_.transport.get();
    in.sink = sink;
    run_.machine = std::make_unique<Machine>(in);
    return run_.machine->Run();
  }

  void Fill(int iterations, Record* record) {
    const graph::Graph& graph = *in_.graph;
    const Machine& machine = *run_.machine;
    record->ranks = record->ranks_simulated = static_cast<std::uint32_t>(graph.bindings.size());
    record->iterations = iterations;
    record->not_folded_because = "a graph of this kind gives each rank operations of its own";
    for (std::size_t r = 0; r < graph.bindings.size(); ++r) {
      const graph::Binding& b = graph.bindings[r];
      const JobRecord& job = record->jobs[b.job.index()];
      RankClass c;
      c.representative = RankId(r);
      c.job = b.job;
      c.program = b.program;
      c.breakdown = PartsOf(r);
      if (!programs_.paces.empty()) {
        CountAsNoise(programs_.paces[b.program.index()], &c.breakdown);
      }
      const auto k = job.iteration_end.size();
      const SimTime end = k > 0 ? machine.end(r, static_cast<int>(k) - 1) : 0;
      const SimTime begin = k > 1 ? machine.end(r, static_cast<int>(k) - 2) : 0;
      // What its own window differs from the job's by is waiting.
      c.breakdown[static_cast<std::size_t>(Part::kWaiting)] += job.step_time - (end - begin);
      c.iteration_time = job.step_time;
      c.finish_time = end;
      c.held_calc = machine.held(r).calc;
      c.held_send = machine.held(r).send;
      c.held_receive = machine.held(r).receive;
      record->finish_time = std::max(record->finish_time, end);
      record->classes.push_back(c);
      record->fingerprint += RankFingerprint(machine.hash(r));
    }
    record->messages = {machine.messages(), machine.bytes(), machine.unexpected(),
                        machine.truncated()};
    if (machine.truncated() > 0) {
      record->warnings.push_back(
          fmt::format("{} messages are longer than the receive that took them (the first receive: "
                      "{}); the message's length was used",
                      machine.truncated(), machine.first_truncated()));
    }
    if (run_.transport != nullptr) record->threads_used = run_.transport->threads();
    if (options_.threads > 1 && record->threads_used == 1) {
      record->warnings.push_back(fmt::format(
          "{} threads were asked for: a graph of this kind runs on one", options_.threads));
    }
    for (std::size_t j = 0; j < record->jobs.size(); ++j) {
      if (record->jobs[j].settled) continue;
      record->warnings.push_back(NotSettled(graph.jobs[j].name, iterations));
    }
    FillProvenance(record);
    FillNetwork(record);
  }

  // With joint endpoints time is a processor's: work, messages, or nothing.
  Breakdown PartsOf(std::size_t r) const {
    if (!joint_) return run_.machine->breakdown(r);
    const Held& held = run_.machine->held(r);
    if (programs_.by_rank[r].iterations == 0) return {};
    const SimTime end = run_.machine->end(r, 0);
    const SimTime cpus = std::max<SimTime>(1, run_.machine->processors());
    Breakdown parts{};
    parts[static_cast<std::size_t>(Part::kCompute)] = held.calc / cpus;
    parts[static_cast<std::size_t>(Part::kHost)] = (held.send + held.receive) / cpus;
    parts[static_cast<std::size_t>(Part::kWaiting)] =
        end - held.calc / cpus - (held.send + held.receive) / cpus;
    return parts;
  }

  void FillProvenance(Record* record) const {
    const graph::Graph& graph = *in_.graph;
    std::array<double, compute::kProvenances> time{};
    double spread = 0, total = 0;
    for (std::size_t r = 0; r < graph.bindings.size(); ++r) {
      const graph::Program& program = graph.programs[graph.bindings[r].program.index()];
      if (programs_.by_rank[r].iterations == 0) continue;
      for (const graph::Call& call : program.calls) {
        const auto number = static_cast<std::size_t>(&call - program.calls.data());
        const BlockCosts* costs = (*programs_.by_rank[r].costs)[number];
        for (std::size_t p = 0; p < compute::kProvenances; ++p) {
          time[p] += call.repeat * static_cast<double>(costs->provenance[p]);
        }
        spread += call.repeat * costs->spread_ps;
      }
      // What operations of known time took, their source has given.
      const FlatProgram& flat = *programs_.by_rank[r].flat;
      if (flat.timed_ps() > 0) {
        time[static_cast<std::size_t>(compute::Provenance::kGiven)] +=
            static_cast<double>(flat.timed_ps());
      }
    }
    for (const double t : time) total += t;
    if (total == 0) return;
    for (std::size_t p = 0; p < time.size(); ++p) record->provenance[p] = time[p] / total;
    record->compute_spread = spread / total;
  }

  void FillNetwork(Record* record) const {
    if (joint_) {
      record->network.push_back({"messages", run_.machine->bytes(), 0});
      return;
    }
    const auto traffic = run_.transport->statistics();
    if (backend_.fluids) {
      FillPortUse(*in_.cluster, layout_, traffic, record);
      return;
    }
    FillLinkUse(*in_.cluster, traffic, record);
    if (network::UseLog* log = run_.transport->use_log()) record->use = std::move(*log);
    if (const auto* packets = run_.transport->packet_counts()) record->packets = *packets;
  }

  const Inputs& in_;
  const Options& options_;
  const network::BackendInfo& backend_;
  PriceCache* prices_;
  Sink* sink_;
  Programs programs_;
  Layout layout_;
  bool joint_ = false;
  Once run_;
};

}  // namespace

Result<Record> Run(const Inputs& inputs, const Options& options,
                   const network::BackendInfo& backend, PriceCache* prices, Sink* sink) {
  return Runner(inputs, options, backend, prices, sink).Run();
}

}  // namespace orrery::engine::general
