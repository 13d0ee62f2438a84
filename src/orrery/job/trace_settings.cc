#include "orrery/job/trace_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "orrery/base/schema.h"
#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/engine/options.h"
#include "orrery/job/read_slowdown.h"
#include "orrery/job/reader.h"
#include "orrery/network/options.h"

namespace orrery::job {

using formats::Section;

namespace {

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

struct TraceSections {
  Section import, loggops, simulation, trace;
};

// Keys of other sections are the cluster's and go to `of_cluster`.
Result<TraceSections> ReadTraceSections(const Importer& importer,
                                        const std::vector<std::string>& set,
                                        std::vector<std::string>* of_cluster) {
  const OptionTable& own = KeysOf(importer);
  std::vector<std::string_view> valid = {"loggops",    "trace", "simulation", "cluster",
                                         "collective", "nccl",  "packet",     "perturb"};
  if (importer.options != nullptr) valid.insert(valid.begin() + 1, own.path);
  formats::Document document;
  for (const std::string& assignment : set) {
    const std::string_view section =
        std::string_view(assignment).substr(0, assignment.find_first_of(".="));
    if (std::ranges::find(valid, section) == valid.end()) {
      return InvalidInput("--set {}: {}", Printable(assignment),
                          UnknownName("section", Printable(std::string(section)), valid));
    }
    if (section == "loggops" || section == own.path || section == "simulation" ||
        section == "trace") {
      ORRERY_RETURN_IF_ERROR(ApplySet(assignment, &document));
    } else {
      of_cluster->push_back(assignment);
    }
  }
  TraceSections sections{Section(own), Section(network::LogGopsOptions()),
                         Section(engine::SimulationOptions()), Section(kTraceTable)};
  for (const formats::Field& field : document.root.fields) {
    const bool is_own = field.key == own.path && importer.options != nullptr;
    Section& section = is_own                   ? sections.import
                       : field.key == "loggops" ? sections.loggops
                       : field.key == "trace"   ? sections.trace
                                                : sections.simulation;
    const OptionTable& table = section.table();
    ORRERY_ASSIGN_OR_RETURN(section, Section::Read(document, field.value, table));
  }
  return sections;
}

// The section `trace`.
Status ReadTimes(const Importer& importer, const TraceOptions& options, const Section& times,
                 TraceSettings* settings) {
  const OptionTable& own = KeysOf(importer);
  const std::string communication = times.Text("communication");
  if (communication != "auto" && communication != "measured" && communication != "priced") {
    return InvalidInput("{}: '{}' is none of auto, measured, priced", times.Where("communication"),
                        Printable(communication));
  }
  if (times.Has("gpu")) settings->gpu = times.Text("gpu");
  settings->replicas = times.Integer("replicas");
  if (settings->replicas > 1 && FindOption(own.options, "replicas") != nullptr) {
    return InvalidInput("{}: of this format {}.replicas says it", times.Where("replicas"),
                        own.path);
  }
  settings->tp = times.Integer("tp");
  settings->pp = times.Integer("pp");
  if (!importer.resizes && settings->tp + settings->pp > 0) return CannotResize(importer, times);
  settings->measured =
      communication == "auto" ? options.cluster.empty() : communication == "measured";
  return {};
}

Status ReadTraceSimulation(const Section& simulation, std::string_view network,
                           TraceSettings* settings) {
  if (simulation.Has("iterations")) {
    settings->iterations = static_cast<int>(simulation.Integer("iterations"));
  }
  ORRERY_ASSIGN_OR_RETURN(settings->link_steps, ReadLinkSteps(simulation, network));
  settings->seed = static_cast<std::uint64_t>(simulation.Integer("seed"));
  if (!simulation.Has("slowdown")) return {};
  settings->slowdown_file = simulation.Text("slowdown");
  auto learned = ReadSlowdown(settings->slowdown_file);
  if (!learned.ok()) return std::move(learned).TakeStatus().In(simulation.Where("slowdown"));
  settings->slowdown = *std::move(learned);
  return {};
}

// The configuration as results keep it: what was said, and defaults that move the answer.
std::string ConfigText(const Importer& importer, const TraceOptions& options,
                       const TraceSections& sections, const TraceSettings& settings) {
  nlohmann::ordered_json saved;
  saved["network"] = NetworkOf(importer, options);
  if (settings.slowdown) saved["simulation"]["slowdown"] = settings.slowdown_file;
  if (settings.link_steps > 0) saved["simulation"]["link_steps"] = settings.link_steps;
  if (!options.cluster.empty()) saved["cluster"] = options.cluster;
  if (options.nodes > 0) saved["nodes"] = options.nodes;
  const auto save = [&](const Section& section) {
    const OptionTable& table = section.table();
    for (const Option& option : table.options) {
      if (option.fallback.empty() && !section.Has(option.name)) continue;
      saved[std::string(table.path)][std::string(option.name)] =
          FormatOption(option, section.Value(option.name));
    }
  };
  const auto any_said = [](const Section& section) {
    return std::ranges::any_of(section.table().options,
                               [&](const Option& o) { return section.Has(o.name); });
  };
  save(sections.loggops);
  if (any_said(sections.trace)) save(sections.trace);
  if (importer.options != nullptr && (any_said(sections.import) || !options.cluster.empty())) {
    save(sections.import);
  }
  if (!settings.of_cluster.empty()) saved["set"] = settings.of_cluster;
  return saved.dump();
}

}  // namespace

std::string NetworkOf(const Importer& importer, const TraceOptions& options) {
  return options.network.empty() ? std::string(importer.network) : options.network;
}

Result<TraceSettings> ReadTraceSettings(const Importer& importer, const TraceOptions& options) {
  std::vector<std::string> of_cluster;
  ORRERY_ASSIGN_OR_RETURN(const TraceSections sections,
                          ReadTraceSections(importer, options.set, &of_cluster));
  TraceSettings settings{.import = sections.import};
  settings.of_cluster = std::move(of_cluster);
  ORRERY_RETURN_IF_ERROR(ReadLogGops(sections.loggops, &settings.network));
  ORRERY_RETURN_IF_ERROR(ReadTimes(importer, options, sections.trace, &settings));
  ORRERY_ASSIGN_OR_RETURN(settings.whole_nodes, RanksAreHosts(sections.import));
  ORRERY_RETURN_IF_ERROR(
      ReadTraceSimulation(sections.simulation, NetworkOf(importer, options), &settings));
  settings.config = ConfigText(importer, options, sections, settings);
  return settings;
}

}  // namespace orrery::job
