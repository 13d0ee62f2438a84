#include "orrery/job/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>

#include "orrery/base/hash.h"
#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/cluster/catalog.h"
#include "orrery/cluster/readers/readers.h"
#include "orrery/constants/constants.h"
#include "orrery/engine/engine.h"
#include "orrery/engine/options.h"
#include "orrery/engine/services/services.h"
#include "orrery/formats/section.h"
#include "orrery/graph/replicate.h"
#include "orrery/job/network_setup.h"
#include "orrery/job/read_slowdown.h"
#include "orrery/job/reprice.h"
#include "orrery/job/simulate.h"
#include "orrery/memory/allocator_conf.h"
#include "orrery/network/network.h"
#include "orrery/network/options.h"
#include "orrery/results/timeline.h"

namespace orrery::job {

using formats::Section;

namespace {

using Clock = std::chrono::steady_clock;

constexpr Option kTrace[] = {
    {.name = "communication",
     .type = OptionType::kText,
     .fallback = "auto",
     .doc = "Of communication that a trace has timed: measured, priced on the cluster, or auto: "
            "priced where --cluster names one."},
    {.name = "gpu",
     .type = OptionType::kText,
     .doc = "The GPU that a trace ran on, where the trace does not say or says it otherwise; on a "
            "cluster of other GPUs its kernels are rescaled."},
    {.name = "replicas",
     .type = OptionType::kInteger,
     .fallback = "1",
     .min = 1,
     .max = 1 << 20,
     .doc = "How many copies of a traced job run, joined in data-parallel groups and in groups of "
            "all its ranks; the rest stays within a copy. PyTorch profiles: pytorch.replicas."},
    {.name = "tp",
     .type = OptionType::kInteger,
     .fallback = "0",
     .max = 1 << 16,
     .doc = "The tensor-parallel size in place of the traced one, where the trace tells enough "
            "(SimAI's workloads); 0: as traced."},
    {.name = "pp",
     .type = OptionType::kInteger,
     .fallback = "0",
     .max = 1 << 16,
     .doc = "The number of pipeline stages in place of the traced one, likewise; 0: as traced."},
};
constexpr OptionTable kTraceTable{
    .path = "trace", .doc = "How a trace that has times runs.", .options = kTrace};

std::string Nanoseconds(SimTime ps) {
  return ps % kNanosecond == 0 ? fmt::format("{} ns", ps / kNanosecond)
                               : fmt::format("{:.3f} ns", static_cast<double>(ps) / 1e3);
}

// What --set says, apart from the cluster's keys.
struct Settings {
  Section import;  // the importer's
  network::Parameters network;
  bool whole_nodes = false;  // goal.rank=node, mpi.rank=node
  bool measured = true;      // communication takes what was measured
  std::string gpu;           // that the trace ran on
  std::int64_t replicas = 1;
  std::int64_t tp = 0, pp = 0;  // 0: as traced
  std::shared_ptr<const interference::Learned> slowdown;
  std::string slowdown_file;
  int iterations = 0;
  std::uint64_t seed = 1;
  std::vector<std::string> of_cluster;  // for ReadNetworkSetup
  std::string config;                   // JSON
};

std::string NetworkOf(const Importer& importer, const TraceOptions& options) {
  return options.network.empty() ? std::string(importer.network) : options.network;
}

Status ReadLogGops(const Section& section, network::Parameters* p) {
  p->joint = {
      .L = section.Integer("L"),
      .o = section.Integer("o"),
      .g = section.Integer("g"),
      .G_as = network::Attoseconds(section.Real("G")),
      .O_as = network::Attoseconds(section.Real("O")),
      .S = section.Integer("S"),
      .receiver_bandwidth = section.Bool("receiver_bandwidth"),
      .hosts = {.ranks = section.Integer("host_ranks"),
                .L = section.Integer("host_L"),
                .o = section.Integer("host_o"),
                .copy_Bps = section.Integer("host_copy"),
                .memory_Bps = section.Has("host_memory") ? section.Integer("host_memory") : 0,
                .S = section.Integer("host_S")}};
  if (p->joint.hosts.ranks > 1 && !p->joint.receiver_bandwidth) {
    return InvalidInput("{}: hosts need loggops.receiver_bandwidth=true",
                        section.Where("host_ranks"));
  }
  for (const std::string_view key : {"host_L", "host_o", "host_copy", "host_memory", "host_S"}) {
    if (p->joint.hosts.ranks > 1 || !section.Has(key)) continue;
    return InvalidInput("{}: has no effect without loggops.host_ranks", section.Where(key));
  }
  const std::string endpoints = section.Text("endpoints");
  using network::LogGopsEndpoints;
  if (endpoints == "staged") {
    p->endpoints = LogGopsEndpoints::kStaged;
  } else if (endpoints == "joint") {
    p->endpoints = LogGopsEndpoints::kJoint;
  } else if (endpoints != "auto") {
    return InvalidInput("{}: '{}' is none of auto, staged, joint", section.Where("endpoints"),
                        Printable(endpoints));
  }
  // Staged endpoints take what was said, and the path's otherwise.
  if (section.Has("L")) p->loggops.L = p->joint.L;
  if (section.Has("G")) p->loggops.G_as = p->joint.G_as;
  if (section.Has("o")) p->loggops.o = p->joint.o;
  if (section.Has("g")) p->loggops.g = p->joint.g;
  if (section.Has("O")) p->loggops.O_as = p->joint.O_as;
  return {};
}

// Why a format's traces run at no other sizes.
Status CannotResize(const Importer& importer, const Section& times) {
  const bool shards = times.Integer("tp") > 0;
  const std::string where = times.Where(shards ? "tp" : "pp");
  const std::string_view kernels =
      "it holds the traced shards' kernels alone; those of another tensor-parallel size have other "
      "shapes, and nobody timed them";
  if (importer.name == "orrery-trace") {
    return InvalidInput(
        "{}: {}: {}. Trace the script with the other size, which takes seconds a rank and no GPU "
        "(orrery trace --world-size N --rank all -- python train.py …). Other numbers of "
        "micro-batches (orrery trace --extend) and of replicas (trace.replicas) need no new trace",
        where, importer.title,
        shards ? kernels
               : "a layer that moves to another stage takes along its part of flat parameter and "
                 "gradient buffers, of their buckets and of the order of micro-batches, and the "
                 "program lays these out anew for each plan");
  }
  return InvalidInput(
      "{}: {}: {}. Trace the job at that size (docs/tracing.md: no GPU is needed), or describe it "
      "in a job file",
      where, importer.description,
      shards ? kernels
             : "it does not say which layer an operation belongs to, so that layers cannot move "
               "between stages");
}

Result<Settings> ReadSettings(const Importer& importer, const TraceOptions& options) {
  static constexpr OptionTable kNone;
  const OptionTable& own = importer.options != nullptr ? *importer.options : kNone;
  Settings settings{.import = Section(own)};
  formats::Document document;
  for (const std::string& assignment : options.set) {
    const std::string_view section =
        std::string_view(assignment).substr(0, assignment.find_first_of(".="));
    std::vector<std::string_view> valid = {"loggops",    "trace", "simulation", "cluster",
                                           "collective", "nccl",  "packet",     "perturb"};
    if (importer.options != nullptr) valid.insert(valid.begin() + 1, own.path);
    if (std::ranges::find(valid, section) == valid.end()) {
      return InvalidInput("--set {}: {}", Printable(assignment),
                          UnknownName("section", Printable(std::string(section)), valid));
    }
    if (section == "loggops" || section == own.path || section == "simulation" ||
        section == "trace") {
      ORRERY_RETURN_IF_ERROR(ApplySet(assignment, &document));
    } else {
      settings.of_cluster.push_back(assignment);
    }
  }
  Section loggops(network::LogGopsOptions()), simulation(engine::SimulationOptions());
  Section times(kTraceTable);
  for (const formats::Field& field : document.root.fields) {
    const bool is_own = field.key == own.path && importer.options != nullptr;
    Section& section = is_own                   ? settings.import
                       : field.key == "loggops" ? loggops
                       : field.key == "trace"   ? times
                                                : simulation;
    const OptionTable& table = section.table();
    ORRERY_ASSIGN_OR_RETURN(section, Section::Read(document, field.value, table));
  }
  ORRERY_RETURN_IF_ERROR(ReadLogGops(loggops, &settings.network));
  const std::string communication = times.Text("communication");
  if (communication != "auto" && communication != "measured" && communication != "priced") {
    return InvalidInput("{}: '{}' is none of auto, measured, priced", times.Where("communication"),
                        Printable(communication));
  }
  if (times.Has("gpu")) settings.gpu = times.Text("gpu");
  settings.replicas = times.Integer("replicas");
  if (settings.replicas > 1 && FindOption(own.options, "replicas") != nullptr) {
    return InvalidInput("{}: of this format {}.replicas says it", times.Where("replicas"),
                        own.path);
  }
  settings.tp = times.Integer("tp");
  settings.pp = times.Integer("pp");
  if (!importer.resizes && settings.tp + settings.pp > 0) return CannotResize(importer, times);
  settings.measured =
      communication == "auto" ? options.cluster.empty() : communication == "measured";
  if (FindOption(own.options, "rank") != nullptr) {
    const std::string rank = settings.import.Text("rank");
    if (rank != "gpu" && rank != "node") {
      return InvalidInput("{}: '{}' is none of gpu, node", settings.import.Where("rank"),
                          Printable(rank));
    }
    settings.whole_nodes = rank == "node";
  }
  if (simulation.Has("iterations")) {
    settings.iterations = static_cast<int>(simulation.Integer("iterations"));
  }
  settings.seed = static_cast<std::uint64_t>(simulation.Integer("seed"));
  if (simulation.Has("slowdown")) {
    auto learned = ReadSlowdown(simulation.Text("slowdown"));
    if (!learned.ok()) return std::move(learned).TakeStatus().In(simulation.Where("slowdown"));
    settings.slowdown = *std::move(learned);
    settings.slowdown_file = simulation.Text("slowdown");
  }
  nlohmann::ordered_json saved;
  saved["network"] = NetworkOf(importer, options);
  if (settings.slowdown) saved["simulation"]["slowdown"] = settings.slowdown_file;
  if (!options.cluster.empty()) saved["cluster"] = options.cluster;
  if (options.nodes > 0) saved["nodes"] = options.nodes;
  const auto save = [&](const OptionTable& table, const Section& section) {
    for (const Option& option : table.options) {
      if (option.fallback.empty() && !section.Has(option.name)) continue;
      saved[std::string(table.path)][std::string(option.name)] =
          FormatOption(option, section.Value(option.name));
    }
  };
  save(network::LogGopsOptions(), loggops);
  if (std::ranges::any_of(kTrace, [&](const Option& o) { return times.Has(o.name); })) {
    save(kTraceTable, times);
  }
  const bool chosen = std::ranges::any_of(
      own.options, [&](const Option& o) { return settings.import.Has(o.name); });
  if (importer.options != nullptr && (chosen || !options.cluster.empty())) {
    save(own, settings.import);
  }
  if (!settings.of_cluster.empty()) saved["set"] = settings.of_cluster;
  settings.config = saved.dump();
  return settings;
}

// Where a trace runs: its cluster, or a single GPU where no cluster plays a part.
Result<NetworkSetup> ReadPlace(const TraceOptions& options, const Settings& settings,
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
                                 const Settings& settings, bool none) {
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

Result<memory::AllocatorSettings> AllocatorOf(const Settings& settings) {
  if (!settings.import.Has("allocator")) return memory::AllocatorSettings();
  Result<memory::AllocatorSettings> read =
      memory::ParseAllocatorConf(settings.import.Text("allocator"));
  if (!read.ok()) return std::move(read).TakeStatus().In(settings.import.Where("allocator"));
  return read;
}

// Runs a verified graph.
Result<results::TraceResult> RunGraph(const ImportedTrace& trace, const TraceOptions& options,
                                      const Settings& settings, results::TraceResult result,
                                      Clock::time_point began) {
  const graph::Graph& graph = trace.graph;
  const bool holds = HoldsInterfaces(graph);
  using network::LogGopsEndpoints;
  const LogGopsEndpoints endpoints = settings.network.endpoints;
  const bool joint =
      options.network == "loggops" &&
      (endpoints == LogGopsEndpoints::kJoint || (endpoints == LogGopsEndpoints::kDefault && holds));
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
  std::optional<results::Timeline> timeline;
  if (!options.timeline.empty()) {
    std::vector<RankId> shown = results::DefaultRanks(graph);
    if (!options.timeline_ranks.empty()) {
      ORRERY_ASSIGN_OR_RETURN(shown, results::ParseRanks(options.timeline_ranks, ranks));
    }
    ORRERY_ASSIGN_OR_RETURN(timeline, results::Timeline::Create(options.timeline, graph, shown));
  }
  engine::Options run;
  run.iterations = settings.iterations;
  run.seed = settings.seed;
  run.slowdown = settings.slowdown;
  if (trace.training) {
    run.rank_noise = place.cluster.spec().device.constants[constants::kRankNoise];
  }
  run.measured_communication = settings.measured;
  if (timeline && network::SeesLinks(options.network)) run.link_steps = 256;
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
    const auto given = [&](std::string_view key) {
      return std::ranges::any_of(options.set,
                                 [&](const std::string& s) { return s.starts_with(key); });
    };
    result.parameters = ParametersText(settings.network.joint, joint);
    for (const std::string_view key : {"L", "g", "G", "receiver_bandwidth"}) {
      if (joint || !given(fmt::format("loggops.{}=", key))) continue;
      result.warnings.push_back(
          fmt::format("loggops.{} plays no part on network '{}', whose paths have their own", key,
                      options.network));
    }
    if (!given("loggops.")) {
      result.assumed.push_back(
          joint ? "loggops: LogGOPSim's default parameters (--set loggops.L=… and others)"
                : "loggops.o, O and S: LogGOPSim's defaults; L, g and G are the path's");
    }
  }
  for (const graph::Block& block : graph.blocks) {
    for (const graph::Assumption& a : block.assumed) {
      const std::string& text = graph.name(a.text);
      if (std::ranges::find(result.assumed, text) == result.assumed.end()) {
        result.assumed.push_back(text);
      }
    }
  }
  result.network = options.network;
  result.measured_communication = measured;
  result.operations = trace.services ? trace.services->operations : OperationsOf(graph);
  result.programs = graph.programs.size();
  result.processors = ProcessorsOf(graph);
  result.repeats = graph.jobs.size() == 1 && !graph.jobs[0].once;
  if (result.repeats) result.model_flops = graph.jobs[0].model_flops_per_step;
  result.warnings.insert(result.warnings.end(), result.record.warnings.begin(),
                         result.record.warnings.end());
  result.config_json = settings.config;
  results::Simulation& s = result.simulation;
  results::FillSimulation(result.record, &s);
  s.version = Version();
  s.seed = settings.seed;
  s.config_hash = Hasher().Add(std::string_view(result.config_json)).value();
  s.wall_s = std::chrono::duration<double>(Clock::now() - began).count();
  s.peak_rss_bytes = PeakResidentBytes();
  return result;
}

// Kernels that another GPU than the cluster's has timed are rescaled to it.
Status MoveToCluster(const TraceOptions& options, const Settings& settings, ImportedTrace* trace) {
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
Status AddReplicas(const TraceOptions& options, const Settings& settings, ImportedTrace* trace) {
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
  ORRERY_ASSIGN_OR_RETURN(const Settings settings, ReadSettings(importer, options));
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
  ORRERY_ASSIGN_OR_RETURN(const Settings settings, ReadSettings(importer, options));
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
  return use({.graph = &trace.graph,
              .cluster = &place.cluster,
              .placement = &placement,
              .compute = &compute,
              .planner = &planner,
              .network = options.network,
              .network_parameters = settings.network});
}

}  // namespace orrery::job
