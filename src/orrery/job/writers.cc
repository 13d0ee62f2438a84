#include "orrery/job/writers.h"

#include <fmt/format.h>

#include <algorithm>

#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/formats/goal.h"
#include "orrery/graph/binary_form.h"
#include "orrery/graph/text_form.h"
#include "orrery/job/chakra_writer.h"
#include "orrery/job/goal_writer.h"

namespace orrery::job {
namespace {

// What a cluster decides: how long kernels take, which messages a collective is.
bool NeedsCluster(const graph::Graph& graph) {
  return std::ranges::any_of(graph.blocks, [](const graph::Block& b) {
    return !b.kernels.empty() || std::ranges::any_of(b.comms, [](const graph::Comm& c) {
      return !graph::IsPointToPoint(c.collective);
    });
  });
}

Result<GoalExport> Goal(const WriterInputs& in) {
  if (!in.has_cluster && NeedsCluster(*in.engine->graph)) {
    return InvalidInput(
        "GOAL says how long kernels take and which messages a collective is, which a cluster "
        "decides: name one with --cluster");
  }
  return ExportGoal(*in.engine, in.iterations);
}
Result<Written> WriteGoalText(const WriterInputs& in) {
  ORRERY_ASSIGN_OR_RETURN(GoalExport out, Goal(in));
  return Written{formats::GoalToText(out.schedule), {}, std::move(out.lost)};
}
Result<Written> WriteGoalBinary(const WriterInputs& in) {
  ORRERY_ASSIGN_OR_RETURN(GoalExport out, Goal(in));
  return Written{formats::GoalToBinary(out.schedule), {}, std::move(out.lost)};
}
Result<Written> WriteGraphText(const WriterInputs& in) {
  return Written{graph::ToText(*in.engine->graph), {}, {}};
}
Result<Written> WriteGraphBinary(const WriterInputs& in) {
  return Written{graph::ToBinary(*in.engine->graph), {}, {}};
}

Result<Written> WriteChakra(const WriterInputs& in) {
  const auto kernels = [](const graph::Block& b) { return !b.kernels.empty(); };
  if (!in.has_cluster && std::ranges::any_of(in.engine->graph->blocks, kernels)) {
    return InvalidInput(
        "Chakra says how long kernels take, which a cluster decides: name one with --cluster");
  }
  ORRERY_ASSIGN_OR_RETURN(ChakraExport out, ExportChakra(*in.engine, in.iterations));
  Written written;
  written.lost = std::move(out.lost);
  for (std::size_t r = 0; r < out.ranks.size(); ++r) {
    written.files.emplace_back(fmt::format(".{}.et", r), std::move(out.ranks[r]));
  }
  if (!out.groups.empty()) written.files.emplace_back(".groups.json", std::move(out.groups));
  return written;
}

constexpr Writer kWriters[] = {
    {"goal", ".goal", "GOAL's text form, as LogGOPSim's txt2bin reads it", WriteGoalText},
    {"goal-binary", ".bin", "GOAL's binary form, as LogGOPSim and ATLAHS run it", WriteGoalBinary},
    {"chakra", ".et",
     "Chakra execution traces, PREFIX.RANK.et, and PREFIX.groups.json with their communicators",
     WriteChakra},
    {"graph-text", ".txt", "Orrery's own graph, as text", WriteGraphText},
    {"graph", ".graph", "Orrery's own graph, binary", WriteGraphBinary},
};

}  // namespace

std::span<const Writer> Writers() { return kWriters; }

Result<const Writer*> FindWriter(const std::string& path, const std::string& format) {
  std::vector<std::string_view> names;
  for (const Writer& w : kWriters) {
    if (format.empty() ? path.ends_with(w.ending) : w.name == format) return &w;
    names.push_back(w.name);
  }
  if (!format.empty()) {
    return InvalidInput("--to: {}", UnknownName("format", Printable(format), names));
  }
  return InvalidInput("'{}': its name says no format; add --to with one of {}", Printable(path),
                      fmt::join(names, ", "));
}

}  // namespace orrery::job
