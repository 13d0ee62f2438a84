#include "orrery/job/inspect_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "orrery/base/text.h"
#include "orrery/engine/general/critical_path.h"
#include "orrery/graph/survey.h"

namespace orrery::job {
namespace {

constexpr std::size_t kMatrixRanks = 64;  // more are too wide for a matrix
constexpr std::size_t kBusiestPairs = 20;

std::string ProgramName(const graph::Graph& graph, ProgramId id) {
  return fmt::format("program {} '{}'", id.value, Printable(graph.programs[id.index()].name, 40));
}

void AddSizes(const graph::Graph& graph, const graph::Survey& survey, Facts* facts) {
  std::size_t ops = 0, calls = 0, free = 0;
  for (const graph::Block& block : graph.blocks) {
    ops += block.ops.size();
    free += block.issue == graph::Issue::kFree ? 1 : 0;
  }
  for (const graph::Program& program : graph.programs) calls += program.calls.size();
  facts->emplace_back("jobs", Count(graph.jobs.size()));
  facts->emplace_back("ranks", Count(graph.bindings.size()));
  facts->emplace_back(
      "programs", fmt::format("{}, {} calls in all", Count(graph.programs.size()), Count(calls)));
  facts->emplace_back(
      "blocks",
      fmt::format("{}, {} operations in all{}", Count(graph.blocks.size()), Count(ops),
                  free == 0 ? "" : fmt::format("; nobody issues {} of them", Count(free))));
  facts->emplace_back("groups", Count(graph.groups.size()));
  if (survey.column_numbers > 0) {
    facts->emplace_back("numbers by rank",
                        fmt::format("{} in columns, {}", Count(survey.column_numbers),
                                    HumanBytes(static_cast<std::int64_t>(survey.column_bytes))));
  }
  for (const graph::JobInfo& job : graph.jobs) {
    facts->emplace_back("job", fmt::format("{}: {} ranks, {} tokens a step{}", Printable(job.name),
                                           HumanCount(job.ranks), HumanCount(job.tokens_per_step),
                                           job.once ? ", runs once" : ""));
  }
}

using engine::general::CriticalPath;

void AddCriticalPath(const CriticalPath& path, Facts* facts) {
  switch (path.outcome) {
    case CriticalPath::Outcome::kTooLong:
      facts->emplace_back("critical path",
                          fmt::format("not looked for: more than {} operations in all",
                                      HumanCount(CriticalPath::kMostOperations)));
      return;
    case CriticalPath::Outcome::kStuck:
      facts->emplace_back("critical path",
                          "none: ranks wait for each other for ever; simulate names them");
      return;
    case CriticalPath::Outcome::kFound:
      break;
  }
  if (path.operations == 0) return;
  const std::string where =
      path.ranks == 1 ? fmt::format("on rank {}", path.last)
                      : fmt::format("through {} ranks, {} times from one to another, to rank {}",
                                    HumanCount(path.ranks), HumanCount(path.crossings), path.last);
  facts->emplace_back("critical path",
                      fmt::format("{} operations, {} of known times; {}",
                                  HumanCount(path.operations), HumanTime(path.known), where));
}

// The longest of all programs, each as its first rank has it.
void AddChain(const graph::Graph& graph, Facts* facts) {
  CriticalPath longest;
  ProgramId of;
  std::vector<bool> seen(graph.programs.size(), false);
  for (std::size_t r = 0; r < graph.bindings.size(); ++r) {
    const ProgramId program = graph.bindings[r].program;
    if (seen[program.index()]) continue;
    seen[program.index()] = true;
    CriticalPath chain = engine::general::FindChain(graph, RankId(r));
    if (chain.outcome == CriticalPath::Outcome::kTooLong) {
      facts->emplace_back(
          "longest chain within a rank",
          fmt::format("not looked for: {} has more than {} operations", ProgramName(graph, program),
                      HumanCount(CriticalPath::kMostOperations)));
      return;
    }
    if (of.valid() &&
        std::pair(chain.known, chain.operations) <= std::pair(longest.known, longest.operations)) {
      continue;
    }
    longest = std::move(chain);
    of = program;
  }
  if (longest.operations == 0) return;
  facts->emplace_back(
      "longest chain within a rank",
      fmt::format("{} operations, {} of known times; {}", HumanCount(longest.operations),
                  HumanTime(longest.known), ProgramName(graph, of)));
}

FactTable PathKinds(const CriticalPath& path) {
  FactTable table{"operations of the critical path", {"operation", "count", "known time"}, {}};
  for (const auto& [kind, share] : path.kinds) {
    table.rows.push_back({kind, HumanCount(share.operations), HumanTime(share.known)});
  }
  return table;
}

FactTable Kinds(const graph::Survey& survey) {
  FactTable table{"operations of all ranks, an iteration", {"operation", "count"}, {}};
  for (const auto& [kind, count] : survey.kinds) table.rows.push_back({kind, HumanCount(count)});
  return table;
}

FactTable Traffic(const graph::Survey& survey) {
  FactTable table{
      "communications of all ranks, an iteration", {"group", "kind", "count", "bytes"}, {}};
  for (const auto& [key, traffic] : survey.traffic) {
    table.rows.push_back({std::string(Name(key.first)), std::string(Name(key.second)),
                          HumanCount(traffic.count), HumanBytes(traffic.bytes)});
  }
  return table;
}

FactTable Matrix(const graph::Survey& survey, std::size_t ranks) {
  FactTable table{"bytes of messages, sender by receiver", {""}, {}};
  for (std::size_t to = 0; to < ranks; ++to) table.columns.push_back(std::to_string(to));
  for (std::uint32_t from = 0; from < ranks; ++from) {
    std::vector<std::string> row = {std::to_string(from)};
    for (std::uint32_t to = 0; to < ranks; ++to) {
      const auto at = survey.messages.find({from, to});
      row.push_back(at == survey.messages.end() ? "." : HumanBytes(at->second));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

FactTable BusiestPairs(const graph::Survey& survey) {
  FactTable table{fmt::format("bytes of messages: the busiest of {} pairs of ranks",
                              Count(survey.messages.size())),
                  {"from", "to", "bytes"},
                  {}};
  std::vector<std::pair<std::int64_t, std::pair<std::uint32_t, std::uint32_t>>> pairs;
  for (const auto& [pair, bytes] : survey.messages) pairs.emplace_back(-bytes, pair);
  const std::size_t shown = std::min(pairs.size(), kBusiestPairs);
  std::partial_sort(pairs.begin(), pairs.begin() + static_cast<std::ptrdiff_t>(shown), pairs.end());
  for (std::size_t i = 0; i < shown; ++i) {
    table.rows.push_back({std::to_string(pairs[i].second.first),
                          std::to_string(pairs[i].second.second), HumanBytes(-pairs[i].first)});
  }
  return table;
}

}  // namespace

GraphFacts FactsOfGraph(const graph::Graph& graph) {
  const graph::Survey survey = graph::SurveyOf(graph);
  GraphFacts found;
  AddSizes(graph, survey, &found.facts);
  found.facts.emplace_back("operations",
                           fmt::format("{} an iteration, over all ranks: kernels, communications, "
                                       "known times, work of the host",
                                       HumanCount(survey.operations)));
  found.facts.emplace_back("straight", survey.why_not_straight.empty()
                                           ? "yes: it may run on the fast machine"
                                           : "no: " + survey.why_not_straight);
  AddChain(graph, &found.facts);
  const CriticalPath path = engine::general::FindCriticalPath(graph, survey.operations);
  AddCriticalPath(path, &found.facts);
  std::set<std::string> assumed;
  for (const graph::Block& block : graph.blocks) {
    for (const graph::Assumption& a : block.assumed) assumed.insert(graph.name(a.text));
  }
  for (const std::string& text : assumed) found.facts.emplace_back("assumed", text);
  found.tables.push_back(Kinds(survey));
  if (!path.kinds.empty()) found.tables.push_back(PathKinds(path));
  if (!survey.traffic.empty()) found.tables.push_back(Traffic(survey));
  if (!survey.messages.empty()) {
    const std::size_t ranks = graph.bindings.size();
    found.tables.push_back(ranks <= kMatrixRanks ? Matrix(survey, ranks) : BusiestPairs(survey));
  }
  return found;
}

}  // namespace orrery::job
