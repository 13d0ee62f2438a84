#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "orrery/base/text.h"
#include "orrery/base/time.h"
#include "orrery/results/table.h"
#include "orrery/search/queue/read_queue.h"

namespace orrery::search {
namespace {

std::string Human(double seconds) {
  if (seconds >= 7200) return fmt::format("{:.2f} h", seconds / 3600);
  if (seconds >= 120) return fmt::format("{:.1f} min", seconds / 60);
  return fmt::format("{:.1f} s", seconds);
}

}  // namespace

std::string QueueText(const QueueFile& file, std::span<const QueueRow> rows) {
  std::string text =
      fmt::format("A queue of {} for {}\n\n",
                  file.jobs.size() == 1 ? "1 job" : fmt::format("{} jobs", file.jobs.size()),
                  Printable(file.cluster));
  results::TextTable table;
  table.Row({"order", "placement", "mean wait", "mean completion", "p95", "makespan",
             "hosts in use", "racks over fewest"});
  for (std::size_t column = 2; column < 8; ++column) table.AlignRight(column);
  for (const QueueRow& row : rows) {
    table.Row({row.order, row.placement, Human(row.run.mean_wait_s),
               Human(row.run.mean_completion_s), Human(row.run.p95_completion_s),
               Human(row.run.makespan_s), fmt::format("{:.1f} %", 100 * row.run.utilisation),
               fmt::format("{:.3f}", row.run.racks_over_fewest)});
  }
  text += table.Render("  ");
  text +=
      "\n  Completion is from arrival to end. Jobs have their hosts for themselves; that they "
      "slow each other\n  in the network is left out ('orrery simulate' of jobs has it).\n";
  if (file.times.simulated() > 0) {
    text += fmt::format("  Training jobs: {} on different racks simulated.\n",
                        file.times.simulated() == 1
                            ? "1 placement"
                            : fmt::format("{} placements", file.times.simulated()));
  }
  for (const std::string& line : file.assumed) text += fmt::format("  Assumed: {}\n", line);
  return text;
}

std::string QueueJson(const QueueFile& file, std::span<const QueueRow> rows) {
  nlohmann::ordered_json json = {{"schema", "orrery.queue/1"},
                                 {"cluster", file.cluster},
                                 {"placements_simulated", file.times.simulated()},
                                 {"assumed", file.assumed}};
  for (const QueueRow& row : rows) {
    nlohmann::ordered_json jobs = nlohmann::ordered_json::array();
    for (std::size_t j = 0; j < file.jobs.size(); ++j) {
      const QueueRun::Row& one = row.run.jobs[j];
      jobs.push_back({{"name", file.jobs[j].name},
                      {"arrival_s", file.jobs[j].arrival_s},
                      {"start_s", one.start_s},
                      {"end_s", one.end_s},
                      {"racks", one.racks},
                      {"hosts", one.hosts}});
    }
    json["runs"].push_back({{"order", row.order},
                            {"placement", row.placement},
                            {"mean_wait_s", row.run.mean_wait_s},
                            {"mean_completion_s", row.run.mean_completion_s},
                            {"p95_completion_s", row.run.p95_completion_s},
                            {"makespan_s", row.run.makespan_s},
                            {"utilisation", row.run.utilisation},
                            {"racks_over_fewest", row.run.racks_over_fewest},
                            {"jobs", std::move(jobs)}});
  }
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace orrery::search
