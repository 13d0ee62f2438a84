#include "orrery/search/validate/collectives.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/search/validate/machines.h"

namespace orrery::search {
namespace {

using collective::Environment;
using graph::Collective;
using Assumed = std::vector<std::string>;

constexpr std::array kCollectives = {
    std::pair{std::string_view("all_reduce"), Collective::kAllReduce},
    std::pair{std::string_view("all_gather"), Collective::kAllGather},
    std::pair{std::string_view("reduce_scatter"), Collective::kReduceScatter},
    std::pair{std::string_view("broadcast"), Collective::kBroadcast},
    std::pair{std::string_view("sendrecv"), Collective::kSend},
    std::pair{std::string_view("hypercube"), Collective::kSend},
    std::pair{std::string_view("alltoall"), Collective::kAllToAll},
    std::pair{std::string_view("all_to_all"), Collective::kAllToAll},
    std::pair{std::string_view("gather"), Collective::kGather},
    std::pair{std::string_view("scatter"), Collective::kScatter},
    // The same chain the other way round, whose members add what they pass on.
    std::pair{std::string_view("reduce"), Collective::kBroadcast},
};

// Short for a variable's name; others only lack NCCL_.
constexpr std::array kShort = {
    std::pair{std::string_view("QPS"), std::string_view("NCCL_IB_QPS_PER_CONNECTION")},
    std::pair{std::string_view("CHANNELS"), std::string_view("NCCL_MIN_NCHANNELS")},
};

bool IsOfName(char c) { return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }

// Variables that a column's words carry, "(ALGO=Ring PROTO=LL128)" or "NCCL_MIN_CTAS=24"; one that
// NCCL or its model here does not know is passed over, and said.
void ReadVariables(std::string_view text, Variables* variables, Assumed* assumed) {
  for (std::size_t at = text.find('='); at != std::string_view::npos; at = text.find('=', at + 1)) {
    std::size_t from = at;
    while (from > 0 && IsOfName(text[from - 1])) --from;
    if (from == at) continue;
    const std::string_view word = text.substr(from, at - from);
    std::string name(word);
    if (!word.starts_with("NCCL_")) name.insert(0, "NCCL_");
    for (const auto& [brief, whole] : kShort) {
      if (word == brief) name = whole;
    }
    std::string_view value = text.substr(at + 1);
    value = value.substr(0, value.find_first_of(" ;,)"));
    const std::pair one{name, std::string(value)};
    if (collective::ParseEnvironment(std::span(&one, 1)).ok()) {
      variables->push_back(one);
    } else {
      assumed->push_back(
          fmt::format("{}={} passed over", Printable(name, 40), Printable(value, 40)));
    }
  }
}

// Switches that reduce, which NCCL must be told to use.
void SetSharp(std::string_view words, CollectiveCase* out, Variables* variables, Assumed* assumed) {
  cluster::Spec& spec = out->cluster;
  if (NamedIn(words, "sharp") != Named::kOn || spec.fabric != cluster::Fabric::kInfiniBand) return;
  spec.sharp = true;
  variables->emplace_back("NCCL_COLLNET_ENABLE", "1");
  assumed->push_back("SHARP: NCCL_COLLNET_ENABLE=1");
}

// "NCCL 2.26.2" as the library's own variable; what names no release that is modelled says nothing.
void ReadVersion(std::string_view text, Variables* variables) {
  for (const std::string_view before : {"NCCL ", "v"}) {
    if (text.starts_with(before)) text.remove_prefix(before.size());
  }
  const std::pair one{std::string("NCCL_VERSION"),
                      std::string(text.substr(0, text.find_first_not_of("0123456789.")))};
  if (collective::ParseEnvironment(std::span(&one, 1)).ok()) variables->push_back(one);
}

Result<Environment> EnvironmentOf(const Configuration& row, const RowTables& tables,
                                  CollectiveCase* out, Assumed* assumed) {
  Variables variables;
  const std::vector<const Host*> named = tables.hosts.Named(row);
  for (const Host* host : named) {
    variables.insert(variables.end(), host->nccl.begin(), host->nccl.end());
    if (!host->note.empty()) assumed->push_back(host->note);
  }
  const std::string words = WordsOf(row);
  SetSharp(words, out, &variables, assumed);
  if (NamedIn(words, "nvls") == Named::kOff) variables.emplace_back("NCCL_NVLS_ENABLE", "0");
  ReadVariables(row.text("system"), &variables, assumed);
  ReadVariables(row.text("network"), &variables, assumed);
  ReadVersion(row.text("nccl_version"), &variables);
  ORRERY_ASSIGN_OR_RETURN(Environment environment,
                          collective::ParseEnvironment(variables, tables.data->nccl));
  for (const Host* host : named) {
    environment.tuner.insert(environment.tuner.end(), host->tuner.begin(), host->tuner.end());
    if (host->efa_latency_us > 0) environment.efa_latency_us = host->efa_latency_us;
  }
  return environment;
}

collective::GroupShape Everyone(const cluster::Cluster& cluster) {
  std::vector<DeviceId> members;
  for (std::size_t i = 0; i < cluster.devices(); ++i) members.emplace_back(i);
  return collective::ShapeOf(cluster, members);
}

// nccl-tests' sendrecv: the pair that crosses a boundary, if there is one.
std::size_t LastOfFirstDomain(const cluster::Cluster& cluster) {
  const auto domain = static_cast<std::size_t>(cluster.spec().gpus_per_nvlink_domain);
  return domain < cluster.devices() ? domain - 1 : 0;
}

collective::GroupShape Pair(const cluster::Cluster& cluster, std::size_t from, std::size_t to) {
  const DeviceId pair[2] = {DeviceId(from), DeviceId(to)};
  return collective::ShapeOf(cluster, pair);
}

// Each rank sends what it has to the one whose number differs by a bit, and has twice as much.
Result<double> PriceHypercube(const CollectiveCase& c, const cluster::Cluster& cluster,
                              double* fixed_share) {
  const collective::Planner planner(cluster, c.environment);
  const collective::GroupShape everyone = Everyone(cluster);
  const auto ranks = static_cast<std::int64_t>(cluster.devices());
  SimTime total = 0, fixed = 0;
  for (std::int64_t bit = 1; bit < ranks; bit *= 2) {
    ORRERY_ASSIGN_OR_RETURN(
        const collective::Plan plan,
        planner.MakePlan(c.collective, c.bytes / ranks * bit,
                         Pair(cluster, 0, static_cast<std::size_t>(bit)), everyone));
    const collective::Cost cost = planner.ClosedForm(plan);
    total += cost.total();
    fixed += cost.fixed;
  }
  *fixed_share = static_cast<double>(fixed) / static_cast<double>(std::max<SimTime>(1, total));
  return ToSeconds(total);
}

}  // namespace

std::vector<std::string_view> CollectiveNames() {
  std::vector<std::string_view> names;
  for (const auto& entry : kCollectives) names.push_back(entry.first);
  return names;
}

Result<CollectiveCase> MapCollective(const Configuration& row, Assumed* assumed,
                                     const RowTables& tables) {
  ORRERY_RETURN_IF_ERROR(tables.words.CheckScope(row));
  ORRERY_RETURN_IF_ERROR(row.Check());
  CollectiveCase out;
  const std::string_view name = row.text("collective");
  const auto kind = std::find_if(kCollectives.begin(), kCollectives.end(),
                                 [&](const auto& entry) { return entry.first == name; });
  if (kind == kCollectives.end()) {
    return InvalidInput("{}", UnknownName("collective", Printable(name, 40), CollectiveNames()));
  }
  out.collective = kind->second;
  out.hypercube = name == "hypercube";
  if (name == "reduce") assumed->push_back("reduce: as a broadcast from its root");
  if (!row.has("dtype")) assumed->push_back("dtype=float (blank: nccl-tests' default)");
  ORRERY_ASSIGN_OR_RETURN(out.bytes, row.Needed("size_bytes"));
  ORRERY_ASSIGN_OR_RETURN(out.cluster, MapCollectiveMachine(row, tables, assumed));
  ORRERY_ASSIGN_OR_RETURN(out.environment, EnvironmentOf(row, tables, &out, assumed));
  if (!out.environment.version_stated) {
    const int release = collective::ReleaseOn(out.cluster.device.arch, out.environment);
    assumed->push_back(fmt::format("nccl_version={} (not stated)", release));
  }
  if (static_cast<std::int64_t>(out.cluster.nodes) * out.cluster.gpus_per_node < 2) {
    return InvalidInput("nodes·gpus_per_node = 1: a collective needs two GPUs");
  }
  return out;
}

Result<double> PriceCollective(const CollectiveCase& c, const cluster::Cluster& cluster,
                               double* fixed_share, Assumed* assumed) {
  if (c.hypercube) return PriceHypercube(c, cluster, fixed_share);
  const collective::Planner planner(cluster, c.environment);
  const collective::GroupShape everyone = Everyone(cluster);
  const bool pair = c.collective == Collective::kSend;
  const std::size_t first = LastOfFirstDomain(cluster);
  ORRERY_ASSIGN_OR_RETURN(
      const collective::Plan plan,
      planner.MakePlan(c.collective, c.bytes, pair ? Pair(cluster, first, first + 1) : everyone,
                       everyone));
  assumed->push_back(fmt::format("planned {}, {}, {} channels", collective::Name(plan.algorithm),
                                 collective::Name(plan.protocol), plan.channels));
  if (plan.restricted()) {
    assumed->push_back(
        fmt::format("the library would have chosen {}, not modelled yet", plan.instead_of));
  }
  const collective::Cost cost = planner.ClosedForm(plan);
  *fixed_share =
      static_cast<double>(cost.fixed) / static_cast<double>(std::max<SimTime>(1, cost.total()));
  return ToSeconds(cost.total());
}

std::string_view CollectiveStratum(const Configuration& row) {
  const auto bytes = row.Whole("size_bytes");
  const bool large = bytes.value_or(0) >= (std::int64_t{1} << 20);
  return large ? "collectives >= 1 MB" : "collectives < 1 MB";
}

}  // namespace orrery::search
