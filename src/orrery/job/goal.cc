#include "orrery/job/goal.h"

#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "orrery/base/file.h"
#include "orrery/base/hash.h"
#include "orrery/base/text.h"
#include "orrery/formats/goal.h"
#include "orrery/job/settings.h"
#include "orrery/job/simulate.h"
#include "orrery/network/options.h"

namespace orrery::job {
namespace {

// A schedule in memory takes about as much again.
constexpr std::int64_t kLargestSchedule = std::int64_t{16} << 30;

// 10⁻¹⁸ s from ns.
std::int64_t Attoseconds(double ns) { return static_cast<std::int64_t>(ns * 1e9 + 0.5); }

Result<network::LogGops> ReadParameters(const std::vector<std::string>& set, std::string* config) {
  formats::Document document;
  for (const std::string& assignment : set) {
    ORRERY_RETURN_IF_ERROR(ApplySet(assignment, &document));
  }
  const OptionTable& table = network::LogGopsOptions();
  Section section(table);
  for (const formats::Field& field : document.root.fields) {
    if (field.key != table.path) {
      return InvalidInput("{}: a GOAL schedule takes keys of {} only, for example --set {}.L=2500",
                          document.Where(field.value), table.path, table.path);
    }
    ORRERY_ASSIGN_OR_RETURN(section, Section::Read(document, field.value, table));
  }
  nlohmann::ordered_json saved;
  for (const Option& option : table.options) {
    saved[std::string(option.name)] = FormatOption(option, section.Value(option.name));
  }
  *config = nlohmann::ordered_json{{table.path, std::move(saved)}}.dump();
  return network::LogGops{.L = section.Integer("L"),
                          .o = section.Integer("o"),
                          .g = section.Integer("g"),
                          .G_as = Attoseconds(section.Real("G")),
                          .O_as = Attoseconds(section.Real("O")),
                          .S = section.Integer("S"),
                          .receiver_bandwidth = section.Bool("receiver_bandwidth")};
}

}  // namespace

Result<results::GoalResult> SimulateGoal(const std::string& path,
                                         const std::vector<std::string>& set) {
  const auto began = std::chrono::steady_clock::now();
  results::GoalResult result;
  result.source = path;
  ORRERY_ASSIGN_OR_RETURN(result.parameters, ReadParameters(set, &result.config_json));
  formats::GoalSchedule schedule;
  {
    ORRERY_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, kLargestSchedule));
    ORRERY_ASSIGN_OR_RETURN(schedule, formats::ParseGoal(bytes, path));
  }
  result.operations = schedule.operations();
  result.cpus = schedule.cpus;
  Result<network::GoalRun> run = network::RunGoal(schedule, result.parameters);
  if (!run.ok()) return std::move(run).TakeStatus().In(fmt::format("'{}'", Printable(path)));
  result.run = *std::move(run);
  if (result.run.truncated > 0) {
    result.warnings.push_back(
        fmt::format("{} messages are longer than the receive that took them; the message's length "
                    "was used",
                    result.run.truncated));
  }
  results::Simulation& s = result.simulation;
  s.events = result.run.events;
  s.ranks = s.ranks_simulated = static_cast<std::uint32_t>(schedule.ranks());
  s.iterations = 1;
  s.not_folded_because = "a GOAL schedule gives each rank its own operations";
  s.version = Version();
  s.config_hash = Hasher().Add(std::string_view(result.config_json)).value();
  s.fingerprint = result.run.fingerprint;
  s.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  s.peak_rss_bytes = PeakResidentBytes();
  return result;
}

}  // namespace orrery::job
