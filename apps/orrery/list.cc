#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/cluster/catalog.h"
#include "orrery/collective/choice/inert_variables.h"
#include "orrery/compute/constants.h"
#include "orrery/constants/constants.h"
#include "orrery/job/frameworks.h"
#include "orrery/network/network.h"
#include "orrery/network/packet/settings.h"
#include "orrery/recipes/import.h"
#include "orrery/results/table.h"
#include "orrery/search/validate/row_tables.h"
#include "orrery/traffic/flows.h"
#include "orrery/workload/families/family.h"
#include "orrery/workload/model.h"
#include "orrery/workload/plan.h"
#include "orrery/workload/schedules/patterns.h"
#include "verb.h"

namespace orrery::app {
namespace {

using Entry = std::pair<std::string, std::string>;  // name, description

// Every kind of extension has a table of names with one sentence each.
template <class Table>
std::vector<Entry> Entries(const Table& table) {
  std::vector<Entry> entries;
  for (const auto& row : table) entries.emplace_back(row.name, row.description);
  return entries;
}

// Value, range, meaning and source of every number of the models: those that the fit may move, then
// those of compute.
std::vector<Entry> ConstantEntries() {
  std::vector<Entry> entries;
  const auto with_unit = [](const std::string& value, std::string_view unit) {
    return unit.empty() ? value : value + " " + std::string(unit);
  };
  for (const constants::Definition& c : constants::Definitions()) {
    entries.emplace_back(c.name, fmt::format("{} ({:g} to {:g}; a priori {:g}): {}. A priori: {}",
                                             with_unit(fmt::format("{:.4g}", c.fitted), c.unit),
                                             c.low, c.high, c.prior, c.explains, c.source));
  }
  for (const compute::Constant& c : compute::Constants()) {
    const std::string range = c.low < c.high ? fmt::format(" ({:g} to {:g})", c.low, c.high) : "";
    entries.emplace_back(
        c.name, fmt::format("{}{}: {}. Source: {}", with_unit(fmt::format("{:g}", c.value), c.unit),
                            range, c.meaning, c.source));
  }
  return entries;
}

// Variables of NCCL that are accepted without effect, each with the reason.
std::vector<Entry> VariableEntries() {
  std::vector<Entry> entries;
  const auto add = [&entries](const collective::InertVariable& v) {
    std::string text(v.why);
    if (!v.only.empty()) {
      std::string values;
      for (const char c : v.only) values += c == '|' ? ", " : std::string(1, c);
      text += fmt::format(" (only {}; else it {})", values, v.otherwise);
    }
    entries.emplace_back(v.name, std::move(text));
  };
  for (const collective::InertVariable& v : collective::InertVariables()) add(v);
  add(*collective::FindInert("NCCL_SYM_"));
  return entries;
}

// Of tables of measured runs.
std::vector<Entry> ColumnEntries(const search::Columns& columns) {
  std::vector<Entry> entries;
  for (const search::Column& column : columns.all()) {
    entries.emplace_back(
        column.name, column.means.empty() ? column.description : "another name of " + column.means);
  }
  return entries;
}

struct FormatRow {
  std::string_view name, description;
};
constexpr std::array<FormatRow, 32> kFormats = {{
    {"job", "Orrery's job file, YAML or JSON (docs/formats/job.md): read"},
    {"cluster", "Orrery's cluster definition, YAML or JSON: read"},
    {"simai-topology", "SimAI's topology file: read as cluster.topology, inspect"},
    {"ns3-topology", "ns-3's topology file (ASTRA-sim, HPCC): read as cluster.topology, inspect"},
    {"astra-network", "ASTRA-sim's analytical network, YAML: read as cluster.topology, inspect"},
    {"htsim-topo", "htsim's .topo, fat trees of 2 and 3 tiers: read as cluster.topology, inspect"},
    {"nccl-xml", "NCCL's topology of one host, XML: read as cluster.topology, inspect"},
    {"config.json",
     "Hugging Face model configuration, as 'model' of a job (docs/experts.md): read, inspect"},
    {"graph",
     "Orrery's graph as text, orrery.graph/2 (docs/formats/graph.md): simulate, inspect, "
     "convert"},
    {"graph-binary",
     "Orrery's graph in compact form (docs/formats/graph.md): simulate, inspect, convert"},
    {"goal",
     "GOAL schedule, text or binary (docs/formats/goal.md): simulate on any network, inspect, "
     "convert"},
    {"mpi",
     "Traces of MPI programs by liballprof or DUMPI, a text file a rank (docs/formats/mpi.md): "
     "simulate on any network, inspect, convert"},
    {"pattern",
     "A communication pattern by name (docs/formats/pattern.md): simulate on any network, inspect, "
     "convert"},
    {"spc",
     "Storage traces (SPC, as the UMass repository's) (docs/formats/storage.md): simulate on any "
     "network, inspect, convert"},
    {"storage",
     "A storage load by its keys (docs/formats/storage.md): simulate on any network, inspect, "
     "convert"},
    {"chakra",
     "Chakra execution traces, .et (docs/formats/chakra.md): simulate on any network, inspect"},
    {"orrery-trace",
     "What orrery-trace wrote, a folder (docs/formats/trace.md): simulate on any network, inspect"},
    {"astra-sim",
     "ASTRA-sim's workload, system, network and memory files (docs/formats/chakra.md): simulate "
     "--format astra-sim, to the nanosecond"},
    {"astra-text",
     "ASTRA-sim's text workloads (docs/formats/chakra.md): simulate, on any network or with "
     "--format astra-sim"},
    {"simai", "SimAI's workloads, .txt (docs/formats/simai.md): simulate on any network, inspect"},
    {"memory-snapshot",
     "PyTorch's memory snapshot, a pickle read as data (docs/tracing.md): inspect, replayed"},
    {"pytorch",
     "PyTorch profiles (Kineto) and execution traces, .json or .json.gz (docs/formats/pytorch.md): "
     "simulate on any network or as measured, inspect, convert"},
    {"nsys",
     "Nsight Systems reports, SQLite, with NCCL's logs or without (docs/formats/pytorch.md): "
     "simulate, inspect, convert"},
    {"nccl",
     "NCCL's log of calls, or its inspector's records (docs/formats/pytorch.md): simulate, "
     "inspect, convert"},
    {"result", "Orrery's result, JSON, orrery.result/1 (docs/formats/result.md): write, inspect"},
    {"schedule", "A pipeline schedule of one's own (docs/formats/schedule.md): read"},
    {"connection-matrix", "htsim's .cm, flows of 'orrery traffic' (docs/traffic.md): read"},
    {"nccl-tests", "Output of nccl-tests: calibrate, traffic --compare"},
    {"measured-kernels", "CSV of the measuring kit (docs/formats/measured-kernels.md): calibrate"},
    {"calibration", "Constants of 'orrery calibrate', JSON (docs/constants.md): write, read"},
    {"measured-runs", "CSV of training runs or collectives (docs/validation.md): validate"},
    {"pftrace", "Perfetto timeline, open at ui.perfetto.dev: write"},
}};

// Of Hugging Face's config.json: those that are read, then those that are refused.
std::vector<Entry> ModelTypeEntries(const workload::families::Families& families) {
  std::vector<Entry> entries;
  for (const bool read : {true, false}) {
    for (const workload::families::Family& family : families.all()) {
      if (family.not_modelled.empty() == read) {
        entries.emplace_back(family.type, family.description);
      }
    }
  }
  return entries;
}

using Tables = search::RowTables;

struct Kind {
  std::string_view name;
  std::vector<Entry> (*entries)(const Tables& tables);
};
constexpr std::array<Kind, 19> kKinds = {{
    {"models", [](const Tables& tables) { return Entries(tables.data->models.list()); }},
    {"model-types",
     [](const Tables& tables) { return ModelTypeEntries(tables.data->models.families()); }},
    {"clusters", [](const Tables& tables) { return Entries(tables.data->clusters.clusters()); }},
    {"devices", [](const Tables& tables) { return Entries(tables.data->clusters.devices()); }},
    {"topologies", [](const Tables&) { return Entries(cluster::Topologies()); }},
    {"pcie-trees", [](const Tables&) { return Entries(cluster::PcieTrees()); }},
    {"networks", [](const Tables&) { return Entries(network::Backends()); }},
    {"congestion-controls", [](const Tables&) { return Entries(network::packet::Controls()); }},
    {"load-balancing", [](const Tables&) { return Entries(network::packet::LoadBalancers()); }},
    {"schedules", [](const Tables&) { return Entries(workload::Schedules()); }},
    {"frameworks", [](const Tables& tables) { return Entries(tables.data->frameworks.rows()); }},
    {"formats", [](const Tables&) { return Entries(kFormats); }},
    {"recipes", [](const Tables&) { return Entries(recipes::Dialects()); }},
    {"columns", [](const Tables& tables) { return ColumnEntries(tables.columns); }},
    {"patterns", [](const Tables&) { return Entries(traffic::Patterns()); }},
    {"schedule-patterns", [](const Tables&) { return Entries(workload::SchedulePatterns()); }},
    {"flow-sizes", [](const Tables&) { return Entries(traffic::SizeDistributions()); }},
    {"nccl-variables", [](const Tables&) { return VariableEntries(); }},
    {"constants", [](const Tables&) { return ConstantEntries(); }},
}};

class ListVerb final : public Verb {
 public:
  std::string_view name() const override { return "list"; }
  std::string_view examples() const override {
    return "  orrery list models\n"
           "  orrery list clusters --json -\n"
           "  orrery list frameworks fsdp2\n";
  }
  std::string_view description() const override {
    return "list what is known by name: models, clusters, devices, topologies, networks, "
           "schedules, recipes, …";
  }
  void Declare(CLI::App* app) override {
    app->add_option(
           "KIND", kind_,
           "models, model-types (of Hugging Face's config.json), clusters, devices, topologies, "
           "pcie-trees, networks, congestion-controls, "
           "load-balancing, schedules, frameworks, formats, recipes, columns (of measured runs), "
           "patterns, schedule-patterns, flow-sizes, nccl-variables (without effect) or constants")
        ->required();
    app->add_option("NAME", part_,
                    "Only names that contain NAME; for frameworks one family (fsdp2), with all "
                    "that it is assumed to do");
    app->add_option("--data", data_, "Folder of tables of your own, listed with the rest")
        ->allow_extra_args(false);
    app->add_option("--json", json_, "As JSON to FILE, or to stdout (-)");
  }
  Status Run(Session* session) override {
    ORRERY_ASSIGN_OR_RETURN(const std::shared_ptr<const search::RowTables> own,
                            search::ReadRowTables(data_));
    const search::RowTables& known = own != nullptr ? *own : search::BuiltInRowTables();
    std::vector<std::string_view> names;
    for (const Kind& kind : kKinds) {
      names.push_back(kind.name);
      if (kind.name != kind_) continue;
      results::TextTable table;
      nlohmann::ordered_json entries = nlohmann::ordered_json::array();
      for (const auto& [entry, description] : kind.entries(known)) {
        if (entry.find(part_) == std::string::npos) continue;
        table.Row({entry, description});
        entries.push_back({{"name", entry}, {"description", description}});
      }
      if (entries.empty()) {
        return InvalidInput("no name of {} holds '{}'; 'orrery list {}' has all", kind_,
                            Printable(part_), kind_);
      }
      nlohmann::ordered_json json = {
          {"schema", "orrery.list/1"}, {"kind", kind_}, {"entries", std::move(entries)}};
      std::string text = table.Render("");
      if (kind_ == "frameworks") {
        const std::string page = job::FrameworkPage(part_);
        if (!page.empty()) json["page"] = text = page.substr(1);  // it begins with an empty line
      }
      return session->Answer(json_, json.dump(2) + "\n", text);
    }
    return InvalidInput("{}", UnknownName("kind", Printable(kind_), names));
  }

 private:
  std::string kind_, part_, json_;
  std::vector<std::string> data_;
};

}  // namespace

std::unique_ptr<Verb> MakeList() { return std::make_unique<ListVerb>(); }

}  // namespace orrery::app
