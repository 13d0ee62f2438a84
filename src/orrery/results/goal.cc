#include "orrery/results/goal.h"

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

constexpr std::size_t kRanksShown = 16;

// Exact, as LogGOPSim prints it: whole nanoseconds where they are whole.
std::string Nanoseconds(SimTime ps) {
  std::string text = HumanCount(ps / kNanosecond);
  if (ps % kNanosecond != 0) text += fmt::format(".{:03}", ps % kNanosecond);
  return text + " ns";
}

// ns a byte.
double PerByte(std::int64_t rate_as) { return static_cast<double>(rate_as) / 1e9; }

std::string Parameters(const network::LogGops& p) {
  return fmt::format("L {}, o {}, g {}, G {} ns/B, O {} ns/B, S {} B{}", Nanoseconds(p.L),
                     Nanoseconds(p.o), Nanoseconds(p.g), PerByte(p.G_as), PerByte(p.O_as), p.S,
                     p.receiver_bandwidth ? "" : ", no bandwidth at the receiver");
}

// Ranks, latest first.
std::vector<std::size_t> Latest(const network::GoalRun& run) {
  std::vector<std::size_t> order(run.ranks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return run.ranks[a].finish > run.ranks[b].finish;
  });
  return order;
}

}  // namespace

std::string ToJson(const GoalResult& result) {
  const network::GoalRun& run = result.run;
  Json json;
  json["schema"] = kResultSchema;
  json["cluster"] = "none: every pair of ranks alike";
  json["finish_time_s"] = static_cast<double>(run.finish) / 1e12;
  json["finish_time_ps"] = run.finish;
  Json ranks = Json::array();
  for (const network::GoalRank& rank : run.ranks) {
    ranks.push_back({{"finish_time_ps", rank.finish},
                     {"calc_ps", rank.calc},
                     {"send_ps", rank.send},
                     {"receive_ps", rank.receive}});
  }
  json["goal"] = {{"operations", result.operations},
                  {"messages", run.messages},
                  {"bytes", run.bytes},
                  {"unexpected_messages", run.unexpected},
                  {"ranks", std::move(ranks)}};
  json["network"] = {{"backend", "loggops"}};
  json["provenance"] = {{"given", 1.0}};
  json["simulation"] = SimulationJson(result.simulation);
  json["assumed"] = Json::array();
  json["warnings"] = result.warnings;
  json["config"] = Json::parse(result.config_json, nullptr, false);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string Report(const GoalResult& result) {
  const network::GoalRun& run = result.run;
  const std::vector<std::size_t> order = Latest(run);
  std::string text =
      fmt::format("{}: {} ranks, {} operations, {} messages, {}\n\n", Printable(result.source, 60),
                  HumanCount(static_cast<std::int64_t>(run.ranks.size())),
                  HumanCount(static_cast<std::int64_t>(result.operations)),
                  HumanCount(static_cast<std::int64_t>(run.messages)), HumanBytes(run.bytes));
  text += fmt::format("  finish       {} ({}), rank {}\n", Nanoseconds(run.finish),
                      HumanTime(run.finish), order.front());
  text += fmt::format("  network      loggops: {}\n", Parameters(result.parameters));
  text += fmt::format("  unexpected   {} messages came before their receive was posted\n\n",
                      HumanCount(static_cast<std::int64_t>(run.unexpected)));
  TextTable table;
  table.Row({"rank", "finish", "calc", "sending", "receiving", "idle"});
  for (std::size_t column = 0; column < 6; ++column) table.AlignRight(column);
  for (std::size_t i = 0; i < std::min(order.size(), kRanksShown); ++i) {
    const network::GoalRank& rank = run.ranks[order[i]];
    const SimTime idle = rank.finish * result.cpus - rank.calc - rank.send - rank.receive;
    table.Row({fmt::format("{}", order[i]), Nanoseconds(rank.finish), HumanTime(rank.calc),
               HumanTime(rank.send), HumanTime(rank.receive),
               result.cpus == 1 ? HumanTime(idle) : ""});
  }
  text += table.Render("  ");
  if (order.size() > kRanksShown) {
    text += fmt::format("  and {} ranks that end no later; --json has all\n",
                        HumanCount(static_cast<std::int64_t>(order.size() - kRanksShown)));
  }
  for (const std::string& warning : result.warnings) text += "\n  warning: " + warning + "\n";
  text += fmt::format("\n  {} events in {}, {} of memory, fingerprint {:016x}\n",
                      HumanCount(static_cast<std::int64_t>(run.events)),
                      HumanSeconds(result.simulation.wall_s),
                      HumanBytes(result.simulation.peak_rss_bytes), run.fingerprint);
  return text;
}

}  // namespace orrery::results
