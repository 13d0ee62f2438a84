#include "orrery/job/writers.h"

#include <fmt/format.h>

#include <algorithm>

#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/engine/prices.h"
#include "orrery/engine/rank_noise.h"
#include "orrery/formats/chakra.h"
#include "orrery/formats/goal.h"
#include "orrery/graph/forms/binary_form.h"
#include "orrery/graph/forms/text_form.h"
#include "orrery/job/chakra_texts.h"
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

// What forms that know no noise lose of it.
void AddNoise(const engine::Inputs& in, std::vector<std::string>* lost) {
  double deviation = 0, most = 1;
  for (const graph::JobInfo& job : in.graph->jobs) deviation = std::max(deviation, job.noise);
  if (deviation == 0) return;
  engine::PriceCache prices(*in.compute, *in.planner);
  for (const double pace : engine::RankPaces(*in.graph, deviation, &prices)) {
    most = std::max(most, pace);
  }
  lost->push_back(fmt::format(
      "the noise of equal ranks: a step waits for the slowest, whose kernels take {:.1f} % longer "
      "(rank_noise)",
      100 * (most - 1)));
}

Result<GoalExport> Goal(const WriterInputs& in) {
  if (!in.has_cluster && NeedsCluster(*in.engine->graph)) {
    return InvalidInput(
        "GOAL says how long kernels take and which messages a collective is, which a cluster "
        "decides: name one with --cluster");
  }
  ORRERY_ASSIGN_OR_RETURN(GoalExport out, ExportGoal(*in.engine, in.iterations));
  AddNoise(*in.engine, &out.lost);
  return out;
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

Result<ChakraExport> Chakra(const WriterInputs& in) {
  const auto kernels = [](const graph::Block& b) { return !b.kernels.empty(); };
  if (!in.has_cluster && std::ranges::any_of(in.engine->graph->blocks, kernels)) {
    return InvalidInput(
        "Chakra says how long kernels take, which a cluster decides: name one with --cluster");
  }
  ORRERY_ASSIGN_OR_RETURN(ChakraExport out, ExportChakra(*in.engine, in.iterations));
  AddNoise(*in.engine, &out.lost);
  return out;
}
Result<Written> WriteChakra(const WriterInputs& in) {
  ORRERY_ASSIGN_OR_RETURN(ChakraExport out, Chakra(in));
  Written written;
  written.lost = std::move(out.lost);
  for (std::size_t r = 0; r < out.ranks.size(); ++r) {
    written.files.emplace_back(fmt::format(".{}.et", r), std::move(out.ranks[r]));
  }
  if (!out.groups.empty()) written.files.emplace_back(".groups.json", std::move(out.groups));
  return written;
}

// The same as text, a file a rank.
template <class Text>
Result<Written> WriteChakraText(const WriterInputs& in, const char* ending, const Text& text) {
  ORRERY_ASSIGN_OR_RETURN(ChakraExport out, Chakra(in));
  Written written;
  written.lost = std::move(out.lost);
  for (std::size_t r = 0; r < out.ranks.size(); ++r) {
    const std::string rank = std::move(out.ranks[r]);
    ORRERY_ASSIGN_OR_RETURN(
        const formats::ChakraTrace trace,
        formats::ParseChakra(rank, "export", static_cast<std::int64_t>(rank.size())));
    written.files.emplace_back(fmt::format(".{}{}", r, ending), text(trace, r));
  }
  return written;
}
Result<Written> WriteChakraJson(const WriterInputs& in) {
  return WriteChakraText(in, ".json", [](const formats::ChakraTrace& trace, std::size_t) {
    return ChakraToJson(trace);
  });
}
Result<Written> WriteDot(const WriterInputs& in) {
  return WriteChakraText(in, ".dot", [](const formats::ChakraTrace& trace, std::size_t rank) {
    return ChakraToDot(trace, fmt::format("rank {}", rank));
  });
}

constexpr Writer kWriters[] = {
    {"goal", ".goal", "GOAL's text form, as LogGOPSim's txt2bin reads it", WriteGoalText},
    {"goal-binary", ".bin", "GOAL's binary form, as LogGOPSim and ATLAHS run it", WriteGoalBinary},
    {"chakra", ".et",
     "Chakra execution traces, PREFIX.RANK.et, and PREFIX.groups.json with their communicators",
     WriteChakra},
    {"chakra-json", ".json", "the same as Chakra's jsonizer writes it, a node a line",
     WriteChakraJson},
    {"dot", ".dot", "the same as graphs of Graphviz, PREFIX.RANK.dot", WriteDot},
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
  if (path.ends_with(".pftrace") || format == "pftrace" || format == "perfetto") {
    return InvalidInput(
        "a timeline of Perfetto is of a run: 'orrery simulate FILE --timeline FILE.pftrace'");
  }
  if (!format.empty()) {
    return InvalidInput("--to: {}", UnknownName("format", Printable(format), names));
  }
  return InvalidInput("'{}': its name says no format; add --to with one of {}", Printable(path),
                      fmt::join(names, ", "));
}

}  // namespace orrery::job
