#include "orrery/search/plan/turns.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "orrery/results/compare/compare.h"

namespace orrery::search {
namespace {

constexpr std::size_t kMostPlans = 8;
constexpr int kBisections = 6;  // of a factor of two: to 1.1 %

struct Resource {
  std::string key;
  std::int64_t value = 0;  // bytes/s
};

class Turns {
 public:
  Turns(const OpenJob& open, Evaluator* evaluator, PlanResult* result)
      : open_(open), evaluator_(evaluator), result_(*result) {}

  Status Find(const Resource& resource) {
    bool steady = true;
    for (const double end : {0.5, 2.0}) {
      std::optional<std::size_t> first = FirstAt(resource, end);
      if (!first || *first == 0) continue;
      steady = false;
      double near = 1, far = end;  // at `near` the best is first, at `far` another
      for (int i = 0; i < kBisections; ++i) {
        const double middle = std::sqrt(near * far);
        const std::optional<std::size_t> there = FirstAt(resource, middle);
        if (!there) return {};
        if (*there == 0) {
          near = middle;
        } else {
          far = middle;
          first = there;
        }
      }
      result_.turns.push_back(
          {.key = resource.key, .factor = far, .value = Written(resource, far), .row = *first});
    }
    if (steady) result_.steady.push_back(resource.key);
    return {};
  }

 private:
  static std::string Written(const Resource& resource, double factor) {
    return fmt::format("{:.0f}B/s", static_cast<double>(resource.value) * factor);
  }

  // Which of the best plans is first with the resource changed; none where it cannot be said.
  std::optional<std::size_t> FirstAt(const Resource& resource, double factor) {
    std::optional<std::size_t> first;
    double least = 0;
    for (std::size_t i = 0; i < std::min(result_.rows.size(), kMostPlans); ++i) {
      std::vector<std::string> assignments = open_.space.Assignments(result_.rows[i].point);
      assignments.push_back(fmt::format("{}={}", resource.key, Written(resource, factor)));
      const Result<job::Job> job = evaluator_->Read(assignments, false);
      if (!job.ok()) return {};
      Result<job::Simulation> simulation = evaluator_->Prepare(*job);
      if (!simulation.ok()) return {};
      const Result<job::Evaluation> evaluation = simulation->Evaluate();
      if (!evaluation.ok()) return {};
      const auto own = static_cast<double>(evaluation->job.step_time) /
                       static_cast<double>(std::max<std::int64_t>(evaluation->tokens_per_step, 1));
      if (!first || own < least) {
        first = i;
        least = own;
      }
    }
    return first;
  }

  const OpenJob& open_;
  Evaluator* evaluator_;
  PlanResult& result_;
};

}  // namespace

Status FindTurns(const OpenJob& open, Evaluator* evaluator, PlanResult* result) {
  if (result->rows.size() < 2 || result->objectives.front() != Objective::kThroughput) return {};
  for (const std::string& key : result->keys) {
    if (key.starts_with("cluster")) return {};  // it is varied itself
  }
  ORRERY_ASSIGN_OR_RETURN(
      const job::Job best,
      evaluator->Read(open.space.Assignments(result->rows.front().point), false));
  Turns turns(open, evaluator, result);
  ORRERY_RETURN_IF_ERROR(turns.Find({"cluster.nic_bandwidth", best.cluster.nic_Bps}));
  return turns.Find({"cluster.nvlink_bandwidth", best.cluster.nvlink_Bps});
}

double TieWidth(const PlanRow& a, const PlanRow& b) {
  const auto step = [](const PlanRow& row) {
    return results::StepParts{row.result.step_time, row.result.overall.parts, row.compute_spread};
  };
  return results::DifferenceWidth(step(a), step(b));
}

}  // namespace orrery::search
