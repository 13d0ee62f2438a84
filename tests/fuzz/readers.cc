// Readers of formats, graphs, clusters, models and libraries' settings.
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "orrery/base/check.h"
#include "orrery/base/units.h"
#include "orrery/cluster/readers/readers.h"
#include "orrery/collective/choice/graph_file.h"
#include "orrery/collective/choice/tuner.h"
#include "orrery/collective/collective.h"
#include "orrery/compute/measured_csv.h"
#include "orrery/constants/constants.h"
#include "orrery/formats/goal.h"
#include "orrery/formats/nccl_log.h"
#include "orrery/formats/spc.h"
#include "orrery/formats/toml.h"
#include "orrery/formats/tree.h"
#include "orrery/formats/xml.h"
#include "orrery/graph/forms/binary_form.h"
#include "orrery/graph/forms/text_form.h"
#include "orrery/graph/verify/verify.h"
#include "orrery/memory/allocator_conf.h"
#include "orrery/workload/families/config.h"
#include "orrery/workload/importers/mpi/mpi.h"
#include "orrery/workload/importers/storage/load.h"
#include "orrery/workload/importers/storage/storage.h"
#include "orrery/workload/routing.h"
#include "orrery/workload/schedule_file.h"
#include "orrery/workload/schedules/patterns.h"
#include "tests/fuzz/targets.h"

namespace orrery::fuzz {
namespace {

constexpr std::int64_t kLargestCluster = 64;  // hosts that are built

void GraphText(std::string_view bytes) {
  const Result<graph::Graph> graph = graph::FromText(bytes);
  if (!graph.ok()) return;
  ORRERY_CHECK(graph::Verify(*graph).ok(), "what was read verifies");
  const std::string text = graph::ToText(*graph);
  const Result<graph::Graph> again = graph::FromText(text);
  ORRERY_CHECK(again.ok() && graph::ToText(*again) == text, "text round trip");
}

void GraphBinary(std::string_view bytes) {
  const Result<graph::Graph> graph = graph::FromBinary(bytes);
  if (!graph.ok()) return;
  const std::string binary = graph::ToBinary(*graph);
  const Result<graph::Graph> again = graph::FromBinary(binary);
  ORRERY_CHECK(again.ok() && graph::ToBinary(*again) == binary, "binary round trip");
}

void Topology(std::string_view bytes) {
  Result<cluster::Spec> spec = cluster::FindPreset("h100-ib-400g");
  ORRERY_CHECK(spec.ok(), "the preset is there");
  if (!cluster::ApplyTopology(bytes, "input", &*spec).ok()) return;
  if (spec->nodes <= kLargestCluster) (void)cluster::Cluster::Build(*spec);
}

// NAME=VALUE lines.
void NcclVariables(std::string_view bytes) {
  std::vector<std::pair<std::string, std::string>> variables;
  while (!bytes.empty()) {
    const std::string_view line = bytes.substr(0, bytes.find('\n'));
    bytes.remove_prefix(std::min(bytes.size(), line.size() + 1));
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view name = line.substr(0, equals);
    if (name.ends_with("_FILE")) continue;  // names a path, which is not the input
    variables.emplace_back(name, line.substr(equals + 1));
  }
  (void)collective::ParseEnvironment(variables);
}

void Units(std::string_view bytes) {
  for (const Dimension d : {Dimension::kTime, Dimension::kBytes, Dimension::kBandwidth}) {
    (void)ParseWhole(bytes, d,
                     d == Dimension::kTime    ? "us"
                     : d == Dimension::kBytes ? "B"
                                              : "GB/s");
  }
  (void)ParseReal(bytes, Dimension::kFlops, "TFLOP/s");
  (void)ParseReal(bytes, Dimension::kFraction, "");
  (void)ParseInteger(bytes);
}

// Ranks' files with lines "=" between.
void Mpi(std::string_view bytes) {
  constexpr std::size_t kMostRanks = 16;
  std::vector<std::string_view> texts;
  while (texts.size() < kMostRanks) {
    const std::size_t end = bytes.find("\n=\n");
    texts.push_back(bytes.substr(0, end));
    if (end == std::string_view::npos) break;
    bytes.remove_prefix(end + 3);
  }
  const std::vector<std::string> names(texts.size(), "input");
  const auto text = [&](std::size_t rank, const auto& use) { return use(texts[rank]); };
  const Result<workload::MpiImport> import =
      workload::ImportMpi(names, text, formats::Section(workload::MpiOptions()), "input");
  ORRERY_CHECK(!import.ok() || graph::Verify(import->graph).ok(), "what was imported verifies");
}

// Patterns small enough to be made many times a second.
void Pattern(std::string_view bytes) {
  const Result<formats::Section> section = workload::ParsePattern(bytes, "input");
  if (!section.ok()) return;
  constexpr std::int64_t kMostRanks = 64, kMostSteps = 8, kMostSegments = 64;
  if (section->Has("ranks") && section->Integer("ranks") > kMostRanks) return;
  if (section->Integer("steps") > kMostSteps) return;
  if (section->Integer("size") / section->Integer("segment") > kMostSegments) return;
  const Result<graph::Graph> graph = workload::MakePattern(*section);
  ORRERY_CHECK(!graph.ok() || graph::Verify(*graph).ok(), "what was made verifies");
}

void Serve(const workload::StorageLoad& load, const workload::StorageSettings& settings) {
  std::int64_t parts = 0;
  constexpr std::int64_t kMostParts = 1000;
  for (const auto& r : load.requests) parts += r.bytes / settings.service.slice + 1;
  if (parts * settings.service.replicas > kMostParts) return;
  auto import = workload::ImportStorage(load, settings.service, "input");
  if (import.ok()) workload::WriteOut(&*import);
  ORRERY_CHECK(!import.ok() || graph::Verify(import->graph).ok(), "what was imported verifies");
}

void Spc(std::string_view bytes) {
  const auto requests = formats::ParseSpc(bytes, "input", 100);
  if (!requests.ok()) return;
  const auto settings =
      workload::ReadStorageSettings(formats::Section(workload::StorageOptions()), true);
  const auto load = workload::LoadOfTrace(*requests, settings->load);
  if (load.ok()) Serve(*load, *settings);
}

// Loads small enough to be made many times a second.
void Storage(std::string_view bytes) {
  const Result<formats::Section> section = workload::ParseStorage(bytes, "input");
  if (!section.ok() || section->Has("trace")) return;
  const auto settings = workload::ReadStorageSettings(*section, false);
  constexpr std::int64_t kMost = 200, kMostSlices = 10'000, kMostHosts = 500;
  if (!settings.ok() || settings->load.requests > kMost) return;
  const workload::DirectDriveSettings& s = settings->service;
  if (settings->load.disk / s.slice > kMostSlices) return;
  const std::int64_t hosts = std::int64_t{settings->load.clients} + s.coordinators + s.stores +
                             s.metadata + s.gateways + s.balancers;
  if (hosts > kMostHosts) return;
  Serve(workload::DrawLoad(settings->load, s.slice), *settings);
}

constexpr std::array<Target, 23> kTargets = {{
    {"yaml", [](std::string_view b) { (void)formats::ParseYaml(b, "input"); }},
    {"json", [](std::string_view b) { (void)formats::ParseJson(b, "input"); }},
    {"toml", [](std::string_view b) { (void)formats::ParseToml(b, "input"); }},
    {"xml", [](std::string_view b) { (void)formats::ParseXml(b, "input"); }},
    {"goal", [](std::string_view b) { (void)formats::ParseGoal(b, "input.goal"); }},
    {"pattern", Pattern},
    {"mpi", Mpi},
    {"spc", Spc},
    {"storage", Storage},
    {"nccl-log", [](std::string_view b) { (void)formats::ParseNcclTestsLog(b, "input"); }},
    {"graph-text", GraphText},
    {"graph-binary", GraphBinary},
    {"topology", Topology},
    {"schedule", [](std::string_view b) { (void)workload::ParseSchedule("input", b); }},
    {"routing", [](std::string_view b) { (void)workload::ParseRouting("input", b); }},
    {"config-json",
     [](std::string_view b) {
       std::vector<std::string> notes;
       (void)workload::ReadConfig(AsFile(b), workload::families::Families::BuiltIn(), &notes);
     }},
    {"measured", [](std::string_view b) { (void)compute::ParseMeasured("input", b); }},
    {"constants", [](std::string_view b) { (void)constants::Read(AsFile(b)); }},
    {"tuner", [](std::string_view b) { (void)collective::ParseTunerFile(b, "input"); }},
    {"nccl-graph", [](std::string_view b) { (void)collective::ParseGraphFile(b, "input"); }},
    {"nccl-variables", NcclVariables},
    {"allocator", [](std::string_view b) { (void)memory::ParseAllocatorConf(b); }},
    {"units", Units},
}};

}  // namespace

std::span<const Target> Targets() { return kTargets; }

}  // namespace orrery::fuzz
