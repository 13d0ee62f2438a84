#include "orrery/results/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "orrery/base/text.h"
#include "orrery/results/json.h"
#include "orrery/results/json_parts.h"
#include "orrery/results/table.h"

namespace orrery::results {
namespace {

using Json = nlohmann::ordered_json;
using engine::Part;
using engine::RankClass;

constexpr std::size_t kRanksShown = 16;

// Exact, as LogGOPSim prints it: whole nanoseconds where they are whole.
std::string Nanoseconds(SimTime ps) {
  std::string text = HumanCount(ps / kNanosecond);
  if (ps % kNanosecond != 0) text += fmt::format(".{:03}", ps % kNanosecond);
  return text + " ns";
}

// Ranks, latest first.
std::vector<std::size_t> Latest(const std::vector<RankClass>& ranks) {
  std::vector<std::size_t> order(ranks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return ranks[a].finish_time > ranks[b].finish_time;
  });
  return order;
}

SimTime Of(const RankClass& rank, Part part) {
  return rank.breakdown[static_cast<std::size_t>(part)];
}
SimTime Compute(const RankClass& rank) {
  return Of(rank, Part::kCompute) + Of(rank, Part::kOptimizer) + Of(rank, Part::kInterference);
}
SimTime Exposed(const RankClass& rank) {
  SimTime sum = 0;
  for (std::size_t role = 0; role < graph::kGroupSlots; ++role) {
    sum += rank.breakdown[static_cast<std::size_t>(Part::kExposed) + role];
  }
  return sum;
}
SimTime Waiting(const RankClass& rank) {
  return Of(rank, Part::kWaiting) + Of(rank, Part::kBubble);
}

Json RankJson(const RankClass& rank, bool processors) {
  Json json = {{"finish_time_ps", rank.finish_time}};
  if (processors) {
    json["calc_ps"] = rank.held_calc;
    json["send_ps"] = rank.held_send;
    json["receive_ps"] = rank.held_receive;
  }
  for (std::size_t part = 0; part < rank.breakdown.size(); ++part) {
    if (rank.breakdown[part] == 0 && part >= static_cast<std::size_t>(Part::kExposed)) continue;
    json[PartName(part) + "_ps"] = rank.breakdown[part];
  }
  return json;
}

}  // namespace

void FillSimulation(const engine::Record& record, Simulation* s) {
  s->events = record.events;
  s->ranks = record.ranks;
  s->ranks_simulated = record.ranks_simulated;
  s->iterations = record.iterations;
  s->threads_used = record.threads_used;
  s->folded = record.folded;
  s->not_folded_because = record.not_folded_because;
  s->fingerprint = record.fingerprint;
}

std::string ToJson(const TraceResult& result) {
  const engine::Record& run = result.record;
  Json json;
  json["schema"] = kResultSchema;
  json["cluster"] = result.cluster.empty() ? "none: every pair of ranks alike" : result.cluster;
  json["finish_time_s"] = static_cast<double>(run.finish_time) / 1e12;
  json["finish_time_ps"] = run.finish_time;
  Json ranks = Json::array();
  for (const RankClass& rank : run.classes) {
    ranks.push_back(RankJson(rank, result.processors > 0));
  }
  // GOAL's section is older than other formats; it has the same content under its own name.
  json[result.format == "GOAL" ? "goal" : "trace"] = {
      {"format", result.format},     {"operations", result.operations},
      {"programs", result.programs}, {"messages", run.messages.sent},
      {"bytes", run.messages.bytes}, {"unexpected_messages", run.messages.unexpected},
      {"ranks", std::move(ranks)}};
  json["network"] = NetworkJson(result.network, run.network, result.worst_links);
  Json provenance;
  for (std::size_t p = 0; p < run.provenance.size(); ++p) {
    provenance[std::string(compute::Name(static_cast<compute::Provenance>(p)))] = run.provenance[p];
  }
  json["provenance"] = std::move(provenance);
  json["simulation"] = SimulationJson(result.simulation);
  json["assumed"] = result.assumed;
  json["warnings"] = result.warnings;
  json["config"] = Json::parse(result.config_json, nullptr, false);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string Report(const TraceResult& result) {
  const engine::Record& run = result.record;
  const std::vector<std::size_t> order = Latest(run.classes);
  std::string text = fmt::format(
      "{}: {}, {} ranks ({} distinct), {} operations, {} messages, {}\n\n",
      Printable(result.source, 60), result.format,
      HumanCount(static_cast<std::int64_t>(run.classes.size())), result.programs,
      HumanCount(static_cast<std::int64_t>(result.operations)),
      HumanCount(static_cast<std::int64_t>(run.messages.sent)), HumanBytes(run.messages.bytes));
  text += fmt::format("  finish       {} ({}), rank {}\n", Nanoseconds(run.finish_time),
                      HumanTime(run.finish_time), order.front());
  if (!result.cluster.empty()) text += fmt::format("  cluster      {}\n", result.cluster);
  text += fmt::format("  network      {}{}{}\n", result.network,
                      result.parameters.empty() ? "" : ": ", result.parameters);
  if (run.messages.sent > 0) {
    text += fmt::format("  unexpected   {} messages came before their receive was posted\n",
                        HumanCount(static_cast<std::int64_t>(run.messages.unexpected)));
  }
  text += "\n";
  TextTable table;
  const bool processors = result.processors > 0;
  table.Row(processors ? std::vector<std::string>{"rank", "finish", "calc", "sending", "receiving",
                                                  "communication", "waiting"}
                       : std::vector<std::string>{"rank", "finish", "compute", "communication",
                                                  "waiting", "host"});
  for (std::size_t column = 0; column < (processors ? 7 : 6); ++column) table.AlignRight(column);
  for (std::size_t i = 0; i < std::min(order.size(), kRanksShown); ++i) {
    const RankClass& r = run.classes[order[i]];
    std::vector<std::string> row = {fmt::format("{}", order[i]), Nanoseconds(r.finish_time)};
    if (processors) {
      for (const SimTime t : {r.held_calc, r.held_send, r.held_receive, Exposed(r), Waiting(r)}) {
        row.push_back(HumanTime(t));
      }
    } else {
      for (const SimTime t : {Compute(r), Exposed(r), Waiting(r), Of(r, Part::kHost)}) {
        row.push_back(HumanTime(t));
      }
    }
    table.Row(row);
  }
  text += table.Render("  ");
  if (order.size() > kRanksShown) {
    text += fmt::format("  and {} ranks that end no later; --json has all\n",
                        HumanCount(static_cast<std::int64_t>(order.size() - kRanksShown)));
  }
  for (const WorstLink& link : result.worst_links) {
    if (&link == &result.worst_links.front()) text += "\n  busiest links\n";
    if (&link - result.worst_links.data() >= 5) break;
    text += fmt::format("    {:<24} {:>12}  {:.1f} % of its capacity\n", link.name,
                        HumanBytes(link.bytes), 100 * link.utilisation);
  }
  if (!result.assumed.empty()) text += "\n  assumed\n";
  for (const std::string& assumed : result.assumed) text += "    " + assumed + "\n";
  for (const std::string& warning : result.warnings) text += "\n  warning: " + warning + "\n";
  text += fmt::format("\n  {} events in {}, {} of memory, fingerprint {:016x}\n",
                      HumanCount(static_cast<std::int64_t>(run.events)),
                      HumanSeconds(result.simulation.wall_s),
                      HumanBytes(result.simulation.peak_rss_bytes), run.fingerprint);
  return text;
}

}  // namespace orrery::results
