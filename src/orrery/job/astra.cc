#include "orrery/job/astra.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <tuple>

#include "orrery/astra/machine.h"
#include "orrery/astra/network.h"
#include "orrery/base/file.h"
#include "orrery/base/hash.h"
#include "orrery/base/rng.h"
#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/base/time.h"
#include "orrery/formats/chakra.h"
#include "orrery/formats/section.h"
#include "orrery/job/importers.h"
#include "orrery/job/simulate.h"
#include "orrery/results/timeline.h"
#include "orrery/workload/importers/astra_text/layers.h"
#include "orrery/workload/importers/astra_text/text_workload.h"
#include "orrery/workload/importers/chakra/files.h"
#include "orrery/workload/importers/chakra/groups.h"
#include "orrery/workload/importers/msccl/msccl.h"

namespace orrery::job {

using formats::Section;

namespace {

using Clock = std::chrono::steady_clock;

constexpr Option kAstra[] = {
    {.name = "congestion",
     .type = OptionType::kChoice,
     .fallback = "unaware",
     .choices = "unaware|aware",
     .doc = "Which of ASTRA-sim's analytical networks: unaware (a message's time is its own) or "
            "aware (links are FIFOs, store and forward)."},
    {.name = "inter_dimension",
     .type = OptionType::kChoice,
     .fallback = "ascending",
     .choices = "ascending|round-robin|greedy|greedy-flex",
     .doc =
         "In which order a collective's chunks visit the network's dimensions. ASTRA-sim always "
         "takes them ascending (all-gathers descending); the others, Themis's greedy among them, "
         "are in its code, and its reader never sets them."},
    {.name = "passes",
     .type = OptionType::kInteger,
     .fallback = "1",
     .min = 1,
     .max = 1000,
     .doc = "Forward and backward passes of a text workload."},
    {.name = "stalls",
     .type = OptionType::kBool,
     .fallback = "false",
     .doc =
         "Wait for ever where ASTRA-sim does by its defects (docs/formats/chakra.md), and report "
         "a deadlock; else the run goes on."},
};
constexpr OptionTable kAstraTable{
    .path = "astra", .doc = "How ASTRA-sim's files are run.", .options = kAstra};

Result<Section> ReadKeys(const std::vector<std::string>& set) {
  formats::Document document;
  for (const std::string& assignment : set) {
    const std::string_view section =
        std::string_view(assignment).substr(0, assignment.find_first_of(".="));
    if (section != "astra") {
      const std::string_view valid[] = {"astra"};
      return InvalidInput("--set {}: {}", Printable(assignment),
                          UnknownName("section", Printable(std::string(section)), valid));
    }
    ORRERY_RETURN_IF_ERROR(ApplySet(assignment, &document));
  }
  for (const formats::Field& field : document.root.fields) {
    return Section::Read(document, field.value, kAstraTable);
  }
  return Section(kAstraTable);
}

// All that ASTRA-sim's files say.
struct Configuration {
  astra::SystemConfig system;
  astra::NetworkConfig network;
  astra::MemoryConfig memory;
  astra::RunConfig run;
  std::vector<std::string> warnings;
};

Result<Configuration> ReadConfiguration(const AstraOptions& options, const Section& keys) {
  Configuration c;
  c.run = {options.num_queues_per_dim, options.injection_scale, options.rendezvous_protocol,
           keys.Bool("stalls")};
  ORRERY_ASSIGN_OR_RETURN(c.system,
                          astra::ReadSystem(options.system_configuration, c.run, &c.warnings));
  ORRERY_ASSIGN_OR_RETURN(c.network, astra::ReadNetwork(options.network_configuration));
  ORRERY_ASSIGN_OR_RETURN(c.memory,
                          astra::ReadMemory(options.remote_memory_configuration, &c.warnings));
  c.network.congestion_aware = keys.Text("congestion") == "aware";
  ORRERY_RETURN_IF_ERROR(
      astra::Network::Check(c.network).In(Printable(options.network_configuration)));
  const std::vector<std::string_view> orders = Choices(kAstra[1]);
  const std::string order = keys.Text("inter_dimension");
  c.system.inter_dimension =
      static_cast<astra::InterDimension>(std::ranges::find(orders, order) - orders.begin());
  return c;
}

Result<formats::ChakraTrace> ReadTrace(const std::string& path) {
  ORRERY_ASSIGN_OR_RETURN(std::string bytes, ReadFile(path, kLargestTrace));
  return formats::ParseChakra(std::move(bytes), path, kLargestTrace);
}

// An algorithm of MSCCL's, for the GPU at a place.
Result<formats::ChakraTrace> ReadMsccl(const std::string& path, std::uint32_t place,
                                       std::uint64_t bytes) {
  ORRERY_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, 256 << 20));
  const formats::Limits limits{.bytes = 256 << 20, .depth = 8, .values = 20'000'000};
  ORRERY_ASSIGN_OR_RETURN(const formats::XmlElement algo, formats::ParseXml(text, path, limits));
  Result<std::string> trace = workload::MscclToChakra(algo, place, bytes);
  if (!trace.ok()) return std::move(trace).TakeStatus().In(Printable(path));
  return formats::ParseChakra(*trace, path, kLargestTrace);
}

// Graphs of custom collectives, read once each.
class CustomPrograms {
 public:
  explicit CustomPrograms(std::size_t ranks) : ranks_(ranks) {}
  Result<const astra::Program*> Find(const std::string& prefix, std::uint32_t place,
                                     std::uint64_t bytes) {
    const bool msccl = prefix.ends_with(".xml");
    std::unique_ptr<astra::Program>& kept = known_[{prefix, place, msccl ? bytes : 0}];
    if (kept == nullptr) {
      const std::string path = msccl ? prefix : fmt::format("{}.{}.et", prefix, place);
      Result<formats::ChakraTrace> trace = msccl ? ReadMsccl(path, place, bytes) : ReadTrace(path);
      if (!trace.ok()) return std::move(trace).TakeStatus();
      Result<astra::Program> program = astra::MakeCustomProgram(*trace, ranks_);
      if (!program.ok()) return std::move(program).TakeStatus().In(Printable(path));
      kept = std::make_unique<astra::Program>(*std::move(program));
    }
    return static_cast<const astra::Program*>(kept.get());
  }

 private:
  std::size_t ranks_;
  std::map<std::tuple<std::string, std::uint32_t, std::uint64_t>, std::unique_ptr<astra::Program>>
      known_;
};

// All ranks run what one text says.
Result<astra::Workload> ReadText(const std::string& path, const Configuration& c,
                                 std::int64_t passes, bool names) {
  ORRERY_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kLargestTrace));
  ORRERY_ASSIGN_OR_RETURN(const std::string trace,
                          workload::ReadTextWorkload(text, path, static_cast<int>(passes)));
  return astra::MakeWorkload(
      c.network.npus(),
      [&](std::size_t) {
        return astra::RankFile{path, trace};
      },
      {}, c.system, names);
}

Result<astra::Workload> ReadWorkload(const AstraOptions& options, const Configuration& c,
                                     const Section& keys) {
  const std::size_t npus = c.network.npus();
  const bool names = !options.timeline.empty();
  const TraceFiles named = OpenTrace({options.workload_configuration});
  switch (workload::SniffLayerText(named.start)) {
    case workload::LayerTextKind::kAstra:
      return ReadText(options.workload_configuration, c, keys.Integer("passes"), names);
    case workload::LayerTextKind::kSimai:
      return InvalidInput("{} is a workload of SimAI, which ASTRA-sim does not read",
                          Printable(options.workload_configuration));
    case workload::LayerTextKind::kNone:
      break;
  }
  ORRERY_ASSIGN_OR_RETURN(const std::vector<std::string> files,
                          workload::ChakraFiles({options.workload_configuration}));
  if (files.size() < npus) {
    return InvalidInput("'{}' has {} ranks, and the network {} NPUs",
                        Printable(options.workload_configuration), files.size(), npus);
  }
  astra::GroupMembers groups;
  const std::string& listed = options.comm_group_configuration;
  if (!listed.empty() && listed.find("empty") == std::string::npos) {
    ORRERY_ASSIGN_OR_RETURN(const workload::ChakraGroups read,
                            workload::ReadCommGroups(listed, npus));
    for (const auto& [id, members] : read) {
      if (id > 2000) {
        return InvalidInput("{}: group {}: ids go up to 2,000", Printable(listed), id);
      }
      groups[static_cast<std::uint32_t>(id)] = members;
    }
  }
  const auto read = [&files](std::size_t rank) -> Result<astra::RankFile> {
    ORRERY_ASSIGN_OR_RETURN(std::string bytes, ReadFile(files[rank], kLargestTrace));
    return astra::RankFile{files[rank], std::move(bytes)};
  };
  return astra::MakeWorkload(npus, read, std::move(groups), c.system, names);
}

std::string ShapeOf(const astra::NetworkConfig& network) {
  constexpr std::string_view kShapes[] = {"Ring", "FullyConnected", "Switch"};
  std::string text;
  for (const astra::Dimension& d : network.dimensions) {
    text += fmt::format("{}{}({})", text.empty() ? "" : " × ",
                        kShapes[static_cast<std::size_t>(d.shape)], d.npus);
  }
  return text;
}

std::string ConfigJson(const AstraOptions& options, const Section& keys) {
  nlohmann::ordered_json saved;
  saved["format"] = "astra-sim";
  saved["workload-configuration"] = options.workload_configuration;
  saved["system-configuration"] = options.system_configuration;
  saved["network-configuration"] = options.network_configuration;
  saved["remote-memory-configuration"] = options.remote_memory_configuration;
  if (!options.comm_group_configuration.empty()) {
    saved["comm-group-configuration"] = options.comm_group_configuration;
  }
  saved["num-queues-per-dim"] = options.num_queues_per_dim;
  saved["injection-scale"] = options.injection_scale;
  saved["rendezvous-protocol"] = options.rendezvous_protocol;
  for (const Option& option : kAstra) {
    saved["astra"][std::string(option.name)] = FormatOption(option, keys.Value(option.name));
  }
  return saved.dump();
}

void FillRecord(const astra::MachineResult& run, results::TraceResult* result) {
  engine::Record& record = result->record;
  record.ranks = static_cast<std::uint32_t>(run.ranks.size());
  record.ranks_simulated = run.folded ? 1 : record.ranks;
  record.iterations = 1;
  record.events = run.events;
  record.messages.sent = run.messages;
  record.messages.bytes = static_cast<std::int64_t>(run.bytes);
  record.folded = run.folded;
  record.not_folded_because = run.not_folded_because;
  record.provenance[static_cast<std::size_t>(compute::Provenance::kGiven)] = 1;
  for (std::size_t r = 0; r < run.ranks.size(); ++r) {
    const astra::RankTimes& times = run.ranks[r];
    const auto ps = [](astra::Tick ns) { return static_cast<SimTime>(ns) * kNanosecond; };
    engine::RankClass c;
    c.representative = RankId(r);
    c.job = JobId(std::size_t{0});
    c.finish_time = c.iteration_time = ps(times.finish);
    c.breakdown[static_cast<std::size_t>(engine::Part::kCompute)] = ps(times.compute);
    c.breakdown[static_cast<std::size_t>(engine::Part::kHost)] = ps(times.other);
    c.breakdown[static_cast<std::size_t>(engine::Part::kExposed) +
                static_cast<std::size_t>(graph::GroupSlot::kModel)] = ps(times.exposed);
    c.breakdown[static_cast<std::size_t>(engine::Part::kWaiting)] =
        ps(times.finish - times.compute - times.other - times.exposed);
    record.finish_time = std::max(record.finish_time, c.finish_time);
    record.classes.push_back(c);
    result->counts.push_back({ps(times.communication), ps(times.compute_ticks)});
    record.fingerprint += Mix64(Hasher()
                                    .Add(r)
                                    .Add(times.finish)
                                    .Add(times.compute_ticks)
                                    .Add(times.communication)
                                    .Add(times.exposed)
                                    .value());
  }
}

// Tracks of a rank: what its units do. Receives have none of their own.
constexpr std::string_view kTracks[] = {"GPU", "CPU", "communication", "receives", "remote memory"};
std::uint32_t TrackOf(const astra::Node& node) {
  if (node.kind == astra::NodeKind::kMemory) return 4;
  switch (node.unit) {
    case astra::Unit::kGpu:
      return 0;
    case astra::Unit::kCpu:
      return 1;
    case astra::Unit::kCommunication:
      return 2;
    case astra::Unit::kNone:
      break;
  }
  return 3;
}

// What a timeline shows of the run, as a graph of names.
graph::Graph NamesOf(const astra::Workload& workload) {
  graph::Graph graph;
  graph.jobs.push_back({.name = "ASTRA-sim",
                        .ranks = static_cast<std::uint32_t>(workload.program_of.size()),
                        .once = true});
  for (const std::string_view track : kTracks) graph.streams.push_back({graph.Intern(track)});
  for (const auto& program : workload.programs) {
    graph.programs.emplace_back().name = "trace";
    for (const std::string& name : program->names) graph.Intern(Printable(name, 200));
  }
  for (std::size_t r = 0; r < workload.program_of.size(); ++r) {
    graph::Binding b;
    b.program = ProgramId(std::size_t{workload.program_of[r]});
    b.job = JobId(std::size_t{0});
    b.logical_rank = static_cast<std::uint32_t>(r);
    graph.bindings.push_back(b);
  }
  return graph;
}

Status WriteTimeline(const std::string& path, const std::vector<RankId>& ranks,
                     const astra::Workload& workload, const astra::MachineResult& run) {
  graph::Graph graph = NamesOf(workload);
  ORRERY_ASSIGN_OR_RETURN(results::Timeline timeline,
                          results::Timeline::Create(path, graph, ranks));
  const auto add = [&](RankId rank, const astra::NodeTime& time) {
    const astra::Program& program = workload.of(rank.index());
    const astra::Node& node = program.nodes[time.node];
    engine::Sink::Interval interval;
    interval.rank = rank;
    interval.stream = TrackOf(node);
    interval.start = static_cast<SimTime>(time.start) * kNanosecond;
    interval.end = static_cast<SimTime>(time.end) * kNanosecond;
    interval.name = graph.Intern(Printable(program.names[time.node], 200));
    if (interval.stream >= 2 && node.kind != astra::NodeKind::kBroadcast) {
      interval.bytes = static_cast<std::int64_t>(node.amount);
    }
    timeline.Add(interval);
  };
  for (const RankId rank : ranks) {
    std::vector<astra::NodeTime> own;
    for (const astra::NodeTime& time : run.nodes) {
      if (run.folded || time.rank == rank.value) own.push_back(time);
    }
    std::stable_sort(own.begin(), own.end(),
                     [](const auto& a, const auto& b) { return a.start < b.start; });
    for (const astra::NodeTime& time : own) add(rank, time);
  }
  return timeline.Finish();
}

Status NeedFiles(const AstraOptions& o) {
  const std::pair<std::string_view, const std::string*> needed[] = {
      {"workload", &o.workload_configuration},
      {"system", &o.system_configuration},
      {"network", &o.network_configuration},
      {"remote-memory", &o.remote_memory_configuration}};
  for (const auto& [name, path] : needed) {
    if (path->empty()) {
      return InvalidInput("--format astra-sim needs --{}-configuration=…, as ASTRA-sim does", name);
    }
  }
  return {};
}

}  // namespace

const OptionTable& AstraKeys() { return kAstraTable; }

Result<results::TraceResult> SimulateAstra(const AstraOptions& options) {
  const auto began = Clock::now();
  ORRERY_RETURN_IF_ERROR(NeedFiles(options));
  ORRERY_ASSIGN_OR_RETURN(const Section keys, ReadKeys(options.set));
  ORRERY_ASSIGN_OR_RETURN(const Configuration c, ReadConfiguration(options, keys));
  const std::string source = fmt::format("'{}'", Printable(options.workload_configuration));
  Result<astra::Workload> workload = ReadWorkload(options, c, keys);
  if (!workload.ok()) return std::move(workload).TakeStatus().In(source);
  CustomPrograms custom(c.network.npus());
  astra::MachineInputs in;
  in.workload = &*workload;
  in.system = &c.system;
  in.network = &c.network;
  in.memory = &c.memory;
  in.run = c.run;
  in.custom = [&custom](const std::string& prefix, std::uint32_t place, std::uint64_t bytes) {
    return custom.Find(prefix, place, bytes);
  };
  std::vector<RankId> shown;
  if (!options.timeline.empty()) {
    ORRERY_ASSIGN_OR_RETURN(
        shown, results::ParseRanks(options.timeline_ranks.empty() ? "0" : options.timeline_ranks,
                                   c.network.npus()));
    in.watched.assign(c.network.npus(), false);
    for (const RankId rank : shown) in.watched[rank.index()] = true;
  }
  Result<astra::MachineResult> run = astra::RunMachine(in, options.fold);
  if (!run.ok()) return std::move(run).TakeStatus().In(source);
  if (!options.timeline.empty()) {
    ORRERY_RETURN_IF_ERROR(WriteTimeline(options.timeline, shown, *workload, *run));
  }
  results::TraceResult result;
  result.source = options.workload_configuration;
  result.format = "ASTRA-sim";
  result.network =
      c.network.congestion_aware ? "ASTRA-sim, congestion-aware" : "ASTRA-sim, congestion-unaware";
  result.cluster = fmt::format("{} NPUs: {}", c.network.npus(), ShapeOf(c.network));
  result.operations = workload->operations;
  result.programs = workload->programs.size();
  result.warnings = c.warnings;
  result.warnings.insert(result.warnings.end(), workload->warnings.begin(),
                         workload->warnings.end());
  FillRecord(*run, &result);
  result.config_json = ConfigJson(options, keys);
  results::Simulation& s = result.simulation;
  results::FillSimulation(result.record, &s);
  s.version = Version();
  s.config_hash = Hasher().Add(std::string_view(result.config_json)).value();
  s.wall_s = std::chrono::duration<double>(Clock::now() - began).count();
  s.peak_rss_bytes = PeakResidentBytes();
  return result;
}

}  // namespace orrery::job
