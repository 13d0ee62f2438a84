#include "orrery/search/plan/objectives.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/formats/section.h"

namespace orrery::search {
namespace {

constexpr ObjectiveInfo kObjectives[] = {
    {"throughput", "most tokens per second", "s per million tokens"},
    {"cost", "least GPU time a token, times the GPU's price where it is known",
     "GPU-hours or USD per million tokens"},
    {"memory", "least device memory of the fullest rank", "bytes"},
    {"energy", "least energy a token, of GPUs, servers and building", "kWh per million tokens"},
    {"goodput", "most tokens per second of a run in which things fail", "s per million tokens"},
};

constexpr double kMillion = 1e6;

}  // namespace

double SecondsPerMillion(double step_s, double tokens) {
  return step_s / std::max(tokens, 1.0) * kMillion;
}

Result<OpenJob> Asking(OpenJob open, const std::vector<Objective>& objectives) {
  const auto has = [&](Objective objective) {
    return std::ranges::find(objectives, objective) != objectives.end();
  };
  formats::Document& document = open.job.document;
  if ((has(Objective::kCost) || has(Objective::kEnergy)) && document.root.Find("cost") == nullptr) {
    ORRERY_RETURN_IF_ERROR(formats::ApplySet("cost={}", &document));
  }
  if (has(Objective::kGoodput) && document.root.Find("goodput") == nullptr) {
    ORRERY_RETURN_IF_ERROR(formats::ApplySet("goodput={}", &document));
  }
  return open;
}

const ObjectiveInfo& Info(Objective objective) {
  return kObjectives[static_cast<std::size_t>(objective)];
}

Result<std::vector<Objective>> ParseObjectives(std::string_view text) {
  std::vector<Objective> objectives;
  std::vector<std::string_view> names;
  for (const ObjectiveInfo& info : kObjectives) names.push_back(info.name);
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view word = text.substr(0, comma);
    const auto at = std::find(names.begin(), names.end(), word);
    if (at == names.end()) {
      return InvalidInput("{}", UnknownName("objective", Printable(word, 40), names));
    }
    const auto objective = static_cast<Objective>(at - names.begin());
    if (std::find(objectives.begin(), objectives.end(), objective) != objectives.end()) {
      return InvalidInput("the objective {} stands twice", word);
    }
    objectives.push_back(objective);
    if (comma == std::string_view::npos) return objectives;
    text = text.substr(comma + 1);
  }
}

double ScoreOf(Objective objective, const PlanRow& row) {
  const results::JobResult& result = row.result;
  switch (objective) {
    case Objective::kThroughput:
      return SecondsPerMillion(ToSeconds(result.step_time),
                               static_cast<double>(row.tokens_per_step));
    case Objective::kCost:
      return result.cost->gpu_hours_per_million_tokens *
             (result.cost->usd_per_gpu_hour > 0 ? result.cost->usd_per_gpu_hour : 1);
    case Objective::kMemory:
      return static_cast<double>(row.memory_bytes > 0 ? row.memory_bytes : row.least_bytes);
    case Objective::kEnergy:
      return result.cost->kwh_per_million_tokens;
    case Objective::kGoodput:
      return SecondsPerMillion(ToSeconds(result.step_time),
                               static_cast<double>(row.tokens_per_step)) /
             std::max(result.goodput->expected, 1e-9);
  }
  return 0;
}

}  // namespace orrery::search
