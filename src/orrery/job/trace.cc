#include "orrery/job/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "orrery/base/hash.h"
#include "orrery/base/text.h"
#include "orrery/cluster/catalog.h"
#include "orrery/cluster/readers/readers.h"
#include "orrery/constants/constants.h"
#include "orrery/engine/engine.h"
#include "orrery/engine/services/services.h"
#include "orrery/graph/replicate.h"
#include "orrery/job/network_setup.h"
#include "orrery/job/open_timeline.h"
#include "orrery/job/reprice.h"
#include "orrery/job/simulate.h"
#include "orrery/job/trace_settings.h"
#include "orrery/memory/allocator_conf.h"
#include "orrery/network/network.h"

namespace orrery::job {
namespace {

using Clock = std::chrono::steady_clock;

std::string Nanoseconds(SimTime ps) {
  return ps % kNanosecond == 0 ? fmt::format("{} ns", ps / kNanosecond)
                               : fmt::format("{:.3f} ns", static_cast<double>(ps) / 1e3);
}

// Where a trace runs: its cluster, or a single GPU where no cluster plays a part.
Result<NetworkSetup> ReadPlace(const TraceOptions& options, const TraceSettings& settings,
                               std::size_t ranks, bool needs_cluster) {
  if (options.cluster.empty() && needs_cluster) {
    return InvalidInput(
        "network '{}' runs on a cluster: name one with --cluster (a preset of 'orrery list "
        "clusters', or a file)",
        options.network);
  }
  const bool none = options.cluster.empty();
  const std::string name = none ? "h100-ib-400g" : options.cluster;
  int nodes = none ? 1 : options.nodes;
  if (nodes == 0) {
    ORRERY_ASSIGN_OR_RETURN(
        const NetworkSetup one,
        ReadNetworkSetup(name, 0, options.network, settings.of_cluster, options.constants));
    const std::size_t each =
        settings.whole_nodes ? 1 : static_cast<std::size_t>(one.cluster.spec().gpus_per_node);
    nodes = static_cast<int>((ranks + each - 1) / each);
    // A topology of its own size is not built smaller.
    const cluster::Spec& spec = one.cluster.spec();
    const bool sized = spec.topology.name == "file" || !spec.topology.dimensions.empty();
    if (sized) nodes = std::max(nodes, cluster::StatedNodes(spec));
  }
  return ReadNetworkSetup(name, nodes, options.network, settings.of_cluster, options.constants);
}

Result<cluster::Placement> Place(const cluster::Cluster& cluster, std::size_t ranks,
                                 const TraceSettings& settings, bool none) {
  cluster::Placement placement;
  const std::size_t step =
      settings.whole_nodes ? static_cast<std::size_t>(cluster.spec().gpus_per_node) : 1;
  if (!none && ranks * step > cluster.devices()) {
    return InvalidInput("{} ranks do not fit {} {}; --nodes says how many hosts there are", ranks,
                        settings.whole_nodes ? cluster.devices() / step : cluster.devices(),
                        settings.whole_nodes
                            ? fmt::format("hosts ({}.rank=node)", settings.import.table().path)
                            : "GPUs");
  }
  for (std::size_t r = 0; r < ranks; ++r) placement.device.emplace_back(none ? 0 : r * step);
  return placement;
}

// Whether a graph says how long all of its work and communication took; `timed`: its source was a
// run that was measured.
bool AllMeasured(const graph::Graph& graph, bool timed) {
  bool any = timed;
  for (const graph::Block& b : graph.blocks) {
    if (!b.kernels.empty()) return false;
    for (const graph::Comm& c : b.comms) {
      if (c.measured.value < 0) return false;
      any = true;
    }
  }
  return any;
}

bool HoldsInterfaces(const graph::Graph& graph) {
  return std::ranges::any_of(graph.blocks, [](const graph::Block& b) { return !b.holds.empty(); });
}

int ProcessorsOf(const graph::Graph& graph) {
  int most = 0;
  for (const graph::Block& b : graph.blocks) {
    for (const graph::Hold& h : b.holds) {
      if (h.cpu != graph::Hold::kNone) most = std::max(most, h.cpu + 1);
    }
  }
  return most;
}

std::size_t OperationsOf(const graph::Graph& graph) {
  std::vector<std::size_t> of(graph.programs.size(), 0);
  for (std::size_t p = 0; p < of.size(); ++p) {
    for (const graph::Call& call : graph.programs[p].calls) {
      of[p] += call.repeat * graph.blocks[call.block.index()].ops.size();
    }
  }
  std::size_t sum = 0;
  for (const graph::Binding& b : graph.bindings) sum += of[b.program.index()];
  return sum;
}

// Without joint endpoints L, g and G are the path's.
std::string ParametersText(const network::LogGops& p, bool joint) {
  if (!joint) {
    return fmt::format("o {}, O {} ns/B, S {} B", Nanoseconds(p.o),
                       static_cast<double>(p.O_as) / 1e9, p.S);
  }
  std::string text = fmt::format(
      "L {}, o {}, g {}, G {} ns/B, O {} ns/B, S {} B{}", Nanoseconds(p.L), Nanoseconds(p.o),
      Nanoseconds(p.g), static_cast<double>(p.G_as) / 1e9, static_cast<double>(p.O_as) / 1e9, p.S,
      p.receiver_bandwidth ? "" : ", no bandwidth at the receiver");
  if (p.hosts.ranks == 1) return text;
  const network::SharedHosts& h = p.hosts;
  return text +
         fmt::format("; {} ranks a host: L {}, o {}, copies at {:.4g} GB/s, memory {}, S {} B",
                     h.ranks, Nanoseconds(h.L), Nanoseconds(h.o),
                     static_cast<double>(h.copy_Bps) / 1e9,
                     h.memory_Bps == 0
                         ? std::string("without limit")
                         : fmt::format("{:.4g} GB/s", static_cast<double>(h.memory_Bps) / 1e9),
                     h.S);
}

Result<memory::AllocatorSettings> AllocatorOf(const TraceSettings& settings) {
  if (!settings.import.Has("allocator")) return memory::AllocatorSettings();
  Result<memory::AllocatorSettings> read =
      memory::ParseAllocatorConf(settings.import.Text("allocator"));
  if (!read.ok()) return std::move(read).TakeStatus().In(settings.import.Where("allocator"));
  return read;
}

// Whether network loggops prices both endpoints of a message in one.
bool IsJoint(const TraceOptions& options, const TraceSettings& settings, bool holds) {
  using network::LogGopsEndpoints;
  const LogGopsEndpoints endpoints = settings.network.endpoints;
  return options.network == "loggops" && (endpoints == LogGopsEndpoints::kJoint ||
                                          (endpoints == LogGopsEndpoints::kDefault && holds));
}

// Which of LogGOPSim's parameters the run had.
void SayLogGops(const TraceOptions& options, const TraceSettings& settings, bool joint,
                results::TraceResult* result) {
  const auto given = [&](std::string_view key) {
    return std::ranges::any_of(options.set,
                               [&](const std::string& s) { return s.starts_with(key); });
  };
  result->parameters = ParametersText(settings.network.joint, joint);
  for (const std::string_view key : {"L", "g", "G", "receiver_bandwidth"}) {
    if (joint || !given(fmt::format("loggops.{}=", key))) continue;
    result->warnings.push_back(
        fmt::format("loggops.{} plays no part on network '{}', whose paths have their own", key,
                    options.network));
  }
  if (given("loggops.")) return;
  result->assumed.push_back(joint
                                ? "loggops: LogGOPSim's default parameters (--set loggops.L=… and "
                                  "others)"
                                : "loggops.o, O and S: LogGOPSim's defaults; L, g and G are the "
                                  "path's");
}

// What blocks took for granted, each once.
void SayAssumptions(const graph::Graph& graph, std::vector<std::string>* assumed) {
  for (const graph::Block& block : graph.blocks) {
    for (const graph::Assumption& a : block.assumed) {
      const std::string& text = graph.name(a.text);
      if (std::ranges::find(*assumed, text) == assumed->end()) assumed->push_back(text);
    }
  }
}

// What of a result follows from the graph, the settings and the record.
void FillResult(const ImportedTrace& trace, const TraceSettings& settings,
                results::TraceResult* result) {
  const graph::Graph& graph = trace.graph;
  SayAssumptions(graph, &result->assumed);
  result->operations = trace.services ? trace.services->operations : OperationsOf(graph);
  result->programs = graph.programs.size();
  result->processors = ProcessorsOf(graph);
  result->repeats = graph.jobs.size() == 1 && !graph.jobs[0].once;
  if (result->repeats) result->model_flops = graph.jobs[0].model_flops_per_step;
  result->warnings.insert(result->warnings.end(), result->record.warnings.begin(),
                          result->record.warnings.end());
  result->config_json = settings.config;
  results::Simulation& s = result->simulation;
  results::FillSimulation(result->record, &s);
  s.version = Version();
  s.seed = settings.seed;
  s.config_hash = Hasher().Add(std::string_view(result->config_json)).value();
}

// Of a graph that says none, the cluster's.
double NoiseOf(const graph::Graph& graph, const cluster::Cluster& cluster) {
  double noise = 0;
  for (const graph::JobInfo& job : graph.jobs) noise = std::max(noise, job.noise);
  return noise > 0 ? noise : cluster.spec().device.constants[constants::kRankNoise];
}

// Runs a verified graph.
Result<results::TraceResult> RunGraph(const ImportedTrace& trace, const TraceOptions& options,
                                      const TraceSettings& settings, results::TraceResult result,
                                      Clock::time_point began) {
  const graph::Graph& graph = trace.graph;
  const bool holds = HoldsInterfaces(graph);
  const bool joint = IsJoint(options, settings, holds);
  if (!joint && settings.network.joint.hosts.ranks > 1) {
    return InvalidInput(
        "loggops.host_ranks: only network loggops with joint endpoints has such hosts; on a "
        "cluster a host's ranks are its GPUs");
  }
  const std::size_t ranks = graph.bindings.size();
  const bool measured = settings.measured && AllMeasured(graph, result.measured >= 0);
  ORRERY_ASSIGN_OR_RETURN(NetworkSetup place,
                          ReadPlace(options, settings, ranks, !joint && !measured));
  const bool none = options.cluster.empty();
  ORRERY_ASSIGN_OR_RETURN(const cluster::Placement placement,
                          Place(place.cluster, ranks, settings, none));
  ORRERY_ASSIGN_OR_RETURN(const compute::CostModel compute,
                          compute::CostModel::Create(place.cluster.spec().device, {}));
  const collective::Planner planner(place.cluster, place.environment, place.pricing);
  if (!trace.storages.empty()) {
    ORRERY_ASSIGN_OR_RETURN(const memory::AllocatorSettings allocator, AllocatorOf(settings));
    ORRERY_ASSIGN_OR_RETURN(
        result.memory,
        ReplayTraceMemory(trace.storages, graph, place.cluster.spec().device, allocator));
  }
  ORRERY_ASSIGN_OR_RETURN(std::optional<results::Timeline> timeline,
                          OpenTimeline(options.timeline, options.timeline_ranks, graph));
  engine::Options run;
  run.iterations = settings.iterations;
  run.seed = settings.seed;
  run.slowdown = settings.slowdown;
  if (trace.training) run.rank_noise = NoiseOf(graph, place.cluster);
  run.measured_communication = settings.measured;
  run.link_steps = settings.link_steps;
  if (run.link_steps == 0 && timeline && network::SeesLinks(options.network)) {
    run.link_steps = kTimelineSteps;
  }
  network::Parameters parameters = settings.network;
  parameters.packet = place.parameters.packet;
  const engine::Inputs inputs{.graph = &graph,
                              .cluster = &place.cluster,
                              .placement = &placement,
                              .compute = &compute,
                              .planner = &planner,
                              .network = options.network,
                              .network_parameters = parameters,
                              .place = trace.place};
  engine::Sink* sink = timeline ? &*timeline : nullptr;
  std::optional<results::RequestLog> requests;
  if (!trace.requests.all.empty()) sink = &requests.emplace(trace.requests, sink);
  if (trace.services) {
    ORRERY_ASSIGN_OR_RETURN(result.record,
                            engine::services::Run(inputs, trace.requests, *trace.services, sink));
  } else {
    ORRERY_ASSIGN_OR_RETURN(result.record, engine::Run(inputs, run, nullptr, sink));
  }
  if (requests) result.requests = requests->Take(result.record);
  if (!none && !joint) {
    result.cluster = place.description;
    result.worst_links = results::WorstLinks(result.record, place.cluster);
    result.over_time = results::OverTime(result.record, place.cluster, result.worst_links);
    if (result.record.packets) {
      result.packets = results::UseOfPackets(*result.record.packets, place.cluster);
    }
    result.assumed.insert(result.assumed.end(), place.assumed.begin(), place.assumed.end());
  }
  if (timeline) {
    timeline->AddCounters(result.over_time);
    ORRERY_RETURN_IF_ERROR(timeline->Finish());
  }
  if (holds && (joint || options.network != "loggops")) {
    SayLogGops(options, settings, joint, &result);
  }
  result.network = options.network;
  result.measured_communication = measured;
  FillResult(trace, settings, &result);
  result.simulation.wall_s = std::chrono::duration<double>(Clock::now() - began).count();
  result.simulation.peak_rss_bytes = PeakResidentBytes();
  return result;
}

// Kernels that another GPU than the cluster's has timed are rescaled to it.
Status MoveToCluster(const TraceOptions& options, const TraceSettings& settings,
                     ImportedTrace* trace) {
  if (options.cluster.empty()) return {};
  const std::string& gpu = settings.gpu.empty() ? trace->gpu : settings.gpu;
  if (gpu.empty()) {
    if (trace->measured >= 0) {
      trace->assumed.push_back("work takes what it took: the trace names no GPU (trace.gpu)");
    }
    return {};
  }
  const auto from = cluster::Catalog::BuiltIn().FindDriverName(gpu);
  if (!from) {
    if (!settings.gpu.empty()) {
      return InvalidInput("trace.gpu: no GPU '{}' in data/devices.yaml ('orrery list devices')",
                          Printable(gpu));
    }
    trace->warnings.push_back(fmt::format(
        "data/devices.yaml does not have the GPU '{}' of the trace: its kernels {}", Printable(gpu),
        trace->timed.empty() ? "take what they took" : "are priced by the model"));
    return {};
  }
  ORRERY_ASSIGN_OR_RETURN(const NetworkSetup place,
                          ReadNetworkSetup(options.cluster, 0, options.network, settings.of_cluster,
                                           options.constants));
  const cluster::DeviceSpec& to = place.cluster.spec().device;
  MoveKernels(*from, to, trace);
  return {};
}

// More replicas than were traced.
Status AddReplicas(const TraceOptions& options, const TraceSettings& settings,
                   ImportedTrace* trace) {
  if (settings.replicas == 1) return {};
  if (options.cluster.empty()) {
    return InvalidInput(
        "trace.replicas: nobody measured what {} replicas take for their communication: name a "
        "cluster with --cluster",
        settings.replicas);
  }
  if (!trace->requests.all.empty()) {
    return InvalidInput("trace.replicas: a storage trace is no data-parallel job");
  }
  const std::size_t ranks = trace->graph.bindings.size();
  Result<graph::Replicated> made =
      graph::Replicate(static_cast<std::size_t>(settings.replicas), &trace->graph);
  if (!made.ok()) return std::move(made).TakeStatus().In("trace.replicas");
  trace->measured = -1;
  trace->assumed.push_back(fmt::format(
      "{} replicas of the {} traced ranks, each with work, messages and buffers as traced: {} "
      "communicators are joined across replicas (data-parallel ones, and those of all traced "
      "ranks), {} stay within one; a sharded optimizer's share of the work stays, too",
      settings.replicas, ranks, made->joined, made->kept));
  if (made->joined == 0) {
    trace->warnings.push_back(
        "trace.replicas: no communicator is data-parallel or of all traced ranks, so that replicas "
        "never meet");
  }
  return {};
}

}  // namespace

Result<results::TraceResult> SimulateTrace(const Importer& importer, const TraceFiles& files,
                                           const TraceOptions& given) {
  const auto began = Clock::now();
  TraceOptions options = given;
  options.network = NetworkOf(importer, given);
  ORRERY_ASSIGN_OR_RETURN(const TraceSettings settings, ReadTraceSettings(importer, options));
  results::TraceResult result;
  result.source = files.paths.front();
  result.format = importer.title;
  // A timeline shows operations one by one.
  const bool compact = options.network == "flow" && options.timeline.empty();
  ORRERY_ASSIGN_OR_RETURN(
      ImportedTrace trace,
      importer.read(files, {&settings.import, options.strict, settings.tp, settings.pp, compact}));
  ORRERY_RETURN_IF_ERROR(AddReplicas(options, settings, &trace));
  ORRERY_RETURN_IF_ERROR(MoveToCluster(options, settings, &trace));
  result.assumed = trace.assumed;
  result.measured = trace.measured;
  Result<results::TraceResult> run = RunGraph(trace, options, settings, std::move(result), began);
  if (!run.ok() && run.status().code() == Code::kInfeasible) {
    return std::move(run).TakeStatus().In(fmt::format("'{}'", Printable(files.paths.front())));
  }
  if (run.ok()) {
    run->warnings.insert(run->warnings.begin(), trace.warnings.begin(), trace.warnings.end());
  }
  return run;
}

Status WithTrace(const Importer& importer, const TraceFiles& files, const TraceOptions& given,
                 const std::function<Status(const engine::Inputs&)>& use) {
  TraceOptions options = given;
  options.network = "analytic";
  ORRERY_ASSIGN_OR_RETURN(const TraceSettings settings, ReadTraceSettings(importer, options));
  ORRERY_ASSIGN_OR_RETURN(
      ImportedTrace trace,
      importer.read(files, {.options = &settings.import, .tp = settings.tp, .pp = settings.pp}));
  ORRERY_RETURN_IF_ERROR(AddReplicas(options, settings, &trace));
  const std::size_t ranks = trace.graph.bindings.size();
  ORRERY_ASSIGN_OR_RETURN(NetworkSetup place, ReadPlace(options, settings, ranks, false));
  ORRERY_ASSIGN_OR_RETURN(const cluster::Placement placement,
                          Place(place.cluster, ranks, settings, options.cluster.empty()));
  ORRERY_ASSIGN_OR_RETURN(const compute::CostModel compute,
                          compute::CostModel::Create(place.cluster.spec().device, {}));
  const collective::Planner planner(place.cluster, place.environment, place.pricing);
  if (trace.training) {
    const double noise = NoiseOf(trace.graph, place.cluster);
    for (graph::JobInfo& job : trace.graph.jobs) job.noise = noise;
  }
  return use({.graph = &trace.graph,
              .cluster = &place.cluster,
              .placement = &placement,
              .compute = &compute,
              .planner = &planner,
              .network = options.network,
              .network_parameters = settings.network});
}

}  // namespace orrery::job
