#include "orrery/engine/engine.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "orrery/base/text.h"
#include "orrery/engine/general/general.h"
#include "orrery/engine/loop.h"
#include "orrery/engine/prices.h"
#include "orrery/engine/rank_noise.h"
#include "orrery/engine/straight/layout.h"
#include "orrery/engine/straight/symmetry.h"
#include "orrery/graph/verify/straight.h"
#include "orrery/network/network.h"

namespace orrery::engine {
namespace {

Status CheckInputs(const Inputs& inputs, const Options& options) {
  const std::size_t ranks = inputs.graph->bindings.size();
  if (ranks == 0) return InvalidInput("the graph binds no ranks");
  if (inputs.placement->device.size() != ranks) {
    return InvalidInput("placement: {} devices for {} ranks", inputs.placement->device.size(),
                        ranks);
  }
  if (!options.job_runs.empty() && options.job_runs.size() != inputs.graph->jobs.size()) {
    return InvalidInput("{} ways to run {} jobs", options.job_runs.size(),
                        inputs.graph->jobs.size());
  }
  if (options.iterations < 0 || options.iterations == 1 || options.iterations > 1000) {
    return InvalidInput(
        "simulation.iterations: {} is not valid; a step time needs 2 or more, at most 1000 "
        "(0: until settled)",
        options.iterations);
  }
  if (options.link_steps < 0 || options.link_steps > 65536 || options.link_steps % 2 != 0) {
    return InvalidInput("simulation.link_steps: {} is not an even number up to 65536",
                        options.link_steps);
  }
  if (options.jitter < 0 || options.jitter > 0.2) {
    return InvalidInput("perturb.jitter: {} is outside 0 to 0.2 (20%)", options.jitter);
  }
  for (const RankPerturbation& p : options.ranks) {
    if (p.rank.index() >= ranks) {
      return InvalidInput("perturb.ranks: rank {} does not exist; the last is {}", p.rank.value,
                          ranks - 1);
    }
    if (!(p.speed > 0.001 && p.speed <= 1000)) {
      return InvalidInput("perturb.ranks: speed {} of rank {} is outside 0.001 to 1000", p.speed,
                          p.rank.value);
    }
    if (p.delay < 0 || p.delay > kMaxDuration) {
      return InvalidInput("perturb.ranks: delay of rank {} is outside 0 to {}", p.rank.value,
                          HumanTime(kMaxDuration));
    }
  }
  return {};
}

// end(k) of every job, and whether the ranks' ends relative to it stood still.
std::vector<JobRecord> JobRecords(const graph::Graph& graph, const Layout& layout,
                                  const LoopResult& run) {
  const auto n = static_cast<std::size_t>(run.iterations);
  std::vector<JobRecord> jobs(graph.jobs.size());
  for (JobRecord& job : jobs) job.iteration_end.assign(n, 0);
  const auto job_of = [&](std::size_t r) -> JobRecord& {
    return jobs[layout.variants[layout.ranks[r].variant].job.index()];
  };
  for (std::size_t r = 0; r < layout.ranks.size(); ++r) {
    for (std::size_t k = 0; k < n; ++k) {
      SimTime& end = job_of(r).iteration_end[k];
      end = std::max(end, run.ends[r * n + k]);
    }
  }
  for (JobRecord& job : jobs) job.step_time = job.iteration_end[n - 1] - job.iteration_end[n - 2];
  for (std::size_t r = 0; r < layout.ranks.size(); ++r) {
    JobRecord& job = job_of(r);
    const SimTime drift = (job.iteration_end[n - 1] - run.ends[r * n + n - 1]) -
                          (job.iteration_end[n - 2] - run.ends[r * n + n - 2]);
    if (std::abs(static_cast<double>(drift)) > kSettled * static_cast<double>(job.step_time)) {
      job.settled = false;
    }
  }
  return jobs;
}

Result<LoopResult> RunOnce(const LoopInputs& in, const network::BackendInfo& backend) {
  if (!backend.fluids && !backend.link_fluids) return RunLowered(in);
  const auto make = [&] { return network::Create(backend.name, in.inputs->network_parameters); };
  if (backend.link_fluids) return RunFlow(in, make);
  ORRERY_ASSIGN_OR_RETURN(const auto network, make());
  return RunClosedForm(in, network.get());
}

// Whether every job comes to an end: beside one that does not, others would go on for ever. Who
// waits for whom does not depend on how long communications take, so the quickest network tells.
Status CheckThatAllEnd(const LoopInputs& base) {
  if (!base.repeats) return {};
  LoopInputs in = base;
  in.repeats = false;
  in.sink = nullptr;
  ORRERY_ASSIGN_OR_RETURN(auto network, network::Create("analytic"));
  return RunClosedForm(in, network.get()).status();
}

// Runs until the step has settled, or for the number of iterations asked for. A sink gets the last
// run over again: those before it are no part of the picture.
Result<LoopResult> RunUntilSettled(const LoopInputs& base, const network::BackendInfo& backend,
                                   bool fixed, Record* record) {
  LoopInputs in = base;
  if (!fixed) in.sink = nullptr;
  for (;;) {
    Result<LoopResult> run = RunOnce(in, backend);
    if (!run.ok()) return run;
    record->events += run->events;
    record->events_repeated += run->events_repeated;
    record->jobs = JobRecords(*in.inputs->graph, *in.layout, *run);
    const bool settled = std::all_of(record->jobs.begin(), record->jobs.end(),
                                     [](const JobRecord& j) { return j.settled; });
    if (fixed || settled || in.iterations >= kMostIterations) {
      if (in.sink == base.sink) return run;
      in.sink = base.sink;
      return RunOnce(in, backend);
    }
    ++in.iterations;
  }
}

// Samples are read ahead by workers beside the step: the slower of the two sets the pace.
void WaitForInput(const Options& options, std::vector<JobRecord>* jobs) {
  for (std::size_t j = 0; j < std::min(jobs->size(), options.input_times.size()); ++j) {
    JobRecord& job = (*jobs)[j];
    job.input_wait = std::max<SimTime>(options.input_times[j] - job.step_time, 0);
    job.step_time += job.input_wait;
  }
}

void FillClasses(const LoopInputs& in, const LoopResult& run, Record* record) {
  const Layout& layout = *in.layout;
  const auto n = static_cast<std::size_t>(run.iterations);
  record->classes.reserve(layout.ranks.size());
  for (std::size_t r = 0; r < layout.ranks.size(); ++r) {
    const SimRank& s = layout.ranks[r];
    const Variant& v = layout.variants[s.variant];
    RankClass c;
    c.representative = s.rank;
    c.size = s.size;
    c.job = v.job;
    c.program = v.program;
    c.breakdown = run.parts[r];
    if (!layout.paces.empty()) CountAsNoise(layout.paces[v.program.index()], &c.breakdown);
    // The rank's own period may differ from the job's by what had not settled: that is waiting.
    const SimTime own = run.compute_ends[r * n + n - 1] - run.compute_ends[r * n + n - 2];
    const SimTime step = record->jobs[v.job.index()].step_time;
    const SimTime input = record->jobs[v.job.index()].input_wait;
    c.breakdown[static_cast<std::size_t>(Part::kWaiting)] += step - input - own;
    c.breakdown[static_cast<std::size_t>(Part::kHost)] += input;
    c.iteration_time = step;
    c.finish_time = run.ends[r * n + n - 1];
    record->classes.push_back(c);
    record->fingerprint += s.size * RankFingerprint(run.hashes[r]);
  }
}

void FillProvenance(const graph::Graph& graph, const Layout& layout, Record* record) {
  std::array<double, compute::kProvenances> time{};
  double spread = 0, total = 0;
  std::vector<double> ranks(layout.variants.size(), 0);
  for (const SimRank& s : layout.ranks) ranks[s.variant] += s.size;
  std::vector<double> calls;
  for (std::size_t v = 0; v < layout.variants.size(); ++v) {
    const Variant& variant = layout.variants[v];
    calls.assign(graph.blocks.size(), 0);
    for (const graph::Call& c : graph.programs[variant.program.index()].calls) {
      calls[c.block.index()] += c.repeat;
    }
    for (std::size_t b = 0; b < calls.size(); ++b) {
      if (calls[b] == 0) continue;
      const BlockPrice& price = *variant.blocks[b];
      const double weight = calls[b] * ranks[v];
      for (std::size_t p = 0; p < compute::kProvenances; ++p) {
        time[p] += weight * static_cast<double>(price.provenance[p]);
        total += weight * static_cast<double>(price.provenance[p]);
      }
      spread += weight * price.spread_ps;
    }
  }
  if (total == 0) return;
  for (std::size_t p = 0; p < compute::kProvenances; ++p) record->provenance[p] = time[p] / total;
  record->compute_spread = spread / total;
}

}  // namespace

std::string NotSettled(const std::string& job, int iterations) {
  return fmt::format(
      "job '{}' had not settled after {} iterations: ranks still drift by more than 0.01 % of the "
      "step",
      job, iterations);
}

void FillPortUse(const cluster::Cluster& cluster, const Layout& layout,
                 std::span<const network::PortStatistics> traffic, Record* record) {
  struct Sum {
    std::int64_t bytes = 0;
    double busy = 0, ports = 0;
    void Add(const network::PortStatistics& s, double count) {
      bytes += static_cast<std::int64_t>(static_cast<double>(s.bytes) * count);
      busy += static_cast<double>(s.busy) * count;
      ports += count;
    }
  };
  Sum nvlink, nic;
  std::vector<bool> seen(traffic.size(), false);
  for (const SimRank& s : layout.ranks) {
    for (std::uint32_t side = 0; side < 2; ++side) {
      nvlink.Add(traffic[s.nvlink_port + side], s.size);
      if (seen[s.nic_port + side]) continue;
      seen[s.nic_port + side] = true;
      nic.Add(traffic[s.nic_port + side], static_cast<double>(s.size) / s.nic_copies);
    }
  }
  const double finish = static_cast<double>(std::max<SimTime>(record->finish_time, 1));
  if (!cluster.peers_over_pcie()) {
    record->network.push_back({"nvlink", nvlink.bytes, nvlink.busy / nvlink.ports / finish});
  }
  record->network.push_back({"nic", nic.bytes, nic.busy / nic.ports / finish});
  if (layout.first_pcie_port == kNobody) return;
  std::array<Sum, cluster::kLinkKinds> sums{};
  const auto links = cluster.links().subspan(cluster.first_pcie_link(), cluster.pcie_links());
  for (std::size_t l = 0; l < links.size(); ++l) {
    sums[static_cast<std::size_t>(links[l].kind)].Add(traffic[layout.first_pcie_port + l], 1);
  }
  for (std::size_t k = 0; k < sums.size(); ++k) {
    if (sums[k].ports == 0) continue;
    record->network.push_back({std::string(cluster::Name(static_cast<cluster::LinkKind>(k))),
                               sums[k].bytes, sums[k].busy / sums[k].ports / finish});
  }
}

void FillLinkUse(const cluster::Cluster& cluster, std::span<const network::PortStatistics> traffic,
                 Record* record) {
  struct Sum {
    std::int64_t bytes = 0;
    double busy = 0, links = 0;
  };
  std::array<Sum, cluster::kLinkKinds> sums{};
  const auto links = cluster.links();
  record->links.resize(links.size());
  for (std::size_t l = 0; l < links.size() && l < traffic.size(); ++l) {
    record->links[l] = {traffic[l].bytes, traffic[l].busy};
    Sum& s = sums[static_cast<std::size_t>(links[l].kind)];
    s.bytes += traffic[l].bytes;
    s.busy += static_cast<double>(traffic[l].busy);
    s.links += 1;
  }
  const double finish = static_cast<double>(std::max<SimTime>(record->finish_time, 1));
  for (std::size_t k = 0; k < sums.size(); ++k) {
    if (sums[k].links == 0) continue;
    record->network.push_back({std::string(cluster::Name(static_cast<cluster::LinkKind>(k))),
                               sums[k].bytes, sums[k].busy / sums[k].links / finish});
  }
}

namespace {

// What was asked for and not done, and what did not settle.
void WarnOfRun(const Inputs& inputs, const Options& options, const network::BackendInfo& backend,
               Record* record) {
  if (options.threads > 1 && record->threads_used == 1) {
    record->warnings.push_back(fmt::format(
        "{} threads were asked for: network '{}' runs this on one", options.threads, backend.name));
  }
  for (std::size_t j = 0; j < record->jobs.size(); ++j) {
    if (record->jobs[j].input_wait > 0) {
      record->warnings.push_back(fmt::format(
          "job '{}' waits for its data loader {:.0f} % of a step (training.sample_read)",
          inputs.graph->jobs[j].name,
          100 * ToSeconds(record->jobs[j].input_wait) / ToSeconds(record->jobs[j].step_time)));
    }
    if (record->jobs[j].settled) continue;
    record->warnings.push_back(NotSettled(inputs.graph->jobs[j].name, record->iterations));
  }
}

// What a price does not say by itself is told, once for each kind: choices that NCCL would make and
// this version cannot, and a plan's note.
void WarnOfRestrictions(const Layout& layout, const PriceCache& prices, Record* record) {
  struct Sizes {
    std::int64_t least = 0, most = 0;
  };
  // Second: a note, else the algorithm that NCCL would take.
  std::map<std::tuple<bool, std::string_view, graph::Collective, int>, Sizes> kinds;
  const auto add = [&](bool note, std::string_view text, const collective::Plan& plan) {
    if (text.empty()) return;
    const auto key = std::make_tuple(note, text, plan.collective, plan.shape.ranks);
    auto [it, fresh] = kinds.emplace(key, Sizes{plan.bytes, plan.bytes});
    it->second.least = std::min(it->second.least, plan.bytes);
    it->second.most = std::max(it->second.most, plan.bytes);
  };
  for (const Variant& v : layout.variants) {
    for (const BlockPrice* block : v.blocks) {
      if (block == nullptr) continue;
      for (const CommPrice& comm : block->comms) {
        if (comm.plan < 0) continue;
        const collective::Plan& plan = prices.plan(comm.plan);
        add(false, plan.instead_of, plan);
        add(true, plan.note, plan);
      }
    }
  }
  for (const auto& [key, sizes] : kinds) {
    const auto& [note, text, collective, ranks] = key;
    const std::string what = fmt::format("{} over {} ranks ({} to {} bytes)",
                                         graph::Name(collective), ranks, sizes.least, sizes.most);
    record->warnings.push_back(
        note
            ? fmt::format("{}: {}", what, text)
            : fmt::format("NCCL would take {} for {}, which is not modelled yet: priced as Ring or "
                          "Tree",
                          text, what));
  }
}

// Why folding is not even tried; empty: it is.
std::string WhyNotFolded(const Inputs& inputs, const Options& options,
                         const network::BackendInfo& backend) {
  if (!backend.link_fluids && !backend.fluids) {
    return fmt::format("'{}' serves messages in order of arrival, which folding could change",
                       backend.name);
  }
  if (options.jitter > 0) return "jitter is drawn for every rank";
  if (!options.fold) return "folding was switched off";
  if (!backend.link_fluids) {
    return inputs.cluster->pcie_tree().any() ? "ranks share their hosts' PCIe trees" : "";
  }
  if (!inputs.cluster->link_changes().empty()) return "links change during the run";
  if (inputs.cluster->spec().topology.routing == cluster::Routing::kAdaptive) {
    return "adaptive routing goes by what is under way";
  }
  if (options.link_steps > 0) return "every link's use over time is kept";
  return {};
}

// Why the fast machine cannot run the graph; empty: it can. Beyond what makes a graph straight: it
// has one meeting for each neighbour, direction and tag, so a group call may hold one message each.
std::string WhyNotFast(const graph::Graph& graph) {
  std::string why = graph::WhyNotStraight(graph);
  if (!why.empty()) return why;
  std::set<std::tuple<graph::Collective, graph::PeerSlot, std::int32_t>> sent;
  for (std::size_t b = 0; b < graph.blocks.size(); ++b) {
    const graph::Block& block = graph.blocks[b];
    std::uint32_t batch = 0;
    for (const graph::Op& op : block.ops) {
      const bool comm = op.kind == graph::OpKind::kComm;
      const std::uint32_t now = comm ? block.comms[op.index].batch : 0;
      if (now != batch) sent.clear();
      batch = now;
      if (batch == 0) continue;
      const graph::Comm& c = block.comms[op.index];
      if (sent.emplace(c.collective, c.peer.slot(), c.tag).second) continue;
      return fmt::format("block {}: a group call has two messages of one tag with one neighbour",
                         b);
    }
  }
  return {};
}

// Whether groups whose collectives touch nobody else may take blocks together: not where each rank
// draws times of its own, nor where they share the links of their hosts.
bool MayGather(const Inputs& inputs, const Options& options) {
  return options.jitter == 0 && !options.stepwise && !inputs.cluster->pcie_tree().any();
}

// Folds *layout, which is unfolded, if ranks and links are alike; null if none are.
Result<std::unique_ptr<LinkSymmetry>> FoldOverLinks(const LoopInputs& in, std::string_view backend,
                                                    PriceCache* prices, Layout* layout) {
  const Inputs& inputs = *in.inputs;
  ORRERY_ASSIGN_OR_RETURN(const Layout unseen,
                          BuildLayout(inputs, *in.options, Folding::kClasses, prices));
  if (unseen.ranks.size() == layout->ranks.size()) return std::unique_ptr<LinkSymmetry>();
  ORRERY_ASSIGN_OR_RETURN(auto network, network::Create(backend, inputs.network_parameters));
  auto symmetry = std::make_unique<LinkSymmetry>(in, unseen.class_of, network.get());
  if (symmetry->classes() == layout->ranks.size() || !symmetry->fits()) {
    return std::unique_ptr<LinkSymmetry>();
  }
  ORRERY_ASSIGN_OR_RETURN(*layout, BuildLayout(inputs, *in.options, symmetry->class_of(), prices));
  return symmetry;
}

}  // namespace

Result<Record> Run(const Inputs& inputs, const Options& options, PriceCache* cache, Sink* sink) {
  ORRERY_RETURN_IF_ERROR(CheckInputs(inputs, options));
  const auto backends = network::Backends();
  const auto backend = std::find_if(backends.begin(), backends.end(),
                                    [&](const auto& b) { return b.name == inputs.network; });
  if (backend == backends.end()) return network::Create(inputs.network).status();

  PriceCache own(*inputs.compute, *inputs.planner, options.slowdown);
  PriceCache* prices = cache != nullptr ? cache : &own;
  if (std::string why = WhyNotFast(*inputs.graph);
      !why.empty() || options.general || !options.job_runs.empty()) {
    ORRERY_ASSIGN_OR_RETURN(Record record, general::Run(inputs, options, *backend, prices, sink));
    record.not_straight_because = std::move(why);
    return record;
  }
  Record record;
  record.not_folded_because = WhyNotFolded(inputs, options, *backend);
  record.folded = record.not_folded_because.empty();
  LoopInputs in;
  in.inputs = &inputs;
  in.options = &options;
  in.prices = prices;
  in.launch = inputs.compute->launch_latency();
  in.iterations = options.iterations == 0 ? 2 : options.iterations;
  in.sink = sink;
  in.repeats = inputs.graph->jobs.size() > 1;
  Folding folding = Folding::kNone;
  if (backend->fluids) {
    if (record.folded) folding = Folding::kClasses;
    if (!record.folded && MayGather(inputs, options)) folding = Folding::kGathers;
  }
  ORRERY_ASSIGN_OR_RETURN(Layout layout, BuildLayout(inputs, options, folding, prices));
  in.layout = &layout;
  std::unique_ptr<LinkSymmetry> symmetry;
  if (record.folded && backend->link_fluids) {
    ORRERY_ASSIGN_OR_RETURN(symmetry, FoldOverLinks(in, backend->name, prices, &layout));
    in.symmetry = symmetry.get();
    record.folded = symmetry != nullptr;
    if (!record.folded) {
      record.not_folded_because = fmt::format(
          "'{}' routes every flow over the cluster's links, and no two ranks' are alike",
          backend->name);
    }
  }
  ORRERY_RETURN_IF_ERROR(CheckThatAllEnd(in));
  const bool fixed = options.iterations != 0 || options.jitter > 0;
  ORRERY_ASSIGN_OR_RETURN(LoopResult run, RunUntilSettled(in, *backend, fixed, &record));
  WaitForInput(options, &record.jobs);
  record.finish_time = run.finish_time;
  record.ranks = static_cast<std::uint32_t>(inputs.graph->bindings.size());
  record.ranks_simulated = static_cast<std::uint32_t>(layout.ranks.size());
  record.iterations = run.iterations;
  record.threads_used = run.threads_used;
  FillClasses(in, run, &record);
  FillProvenance(*inputs.graph, layout, &record);
  if (backend->fluids) {
    FillPortUse(*inputs.cluster, layout, run.traffic, &record);
  } else {
    FillLinkUse(*inputs.cluster, run.traffic, &record);
    record.use = std::move(run.use);
    record.packets = std::move(run.packets);
  }
  WarnOfRestrictions(layout, *prices, &record);
  WarnOfRun(inputs, options, *backend, &record);
  return record;
}

}  // namespace orrery::engine
