#include "orrery/search/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <unordered_map>
#include <utility>

#include "orrery/base/rng.h"
#include "orrery/base/text.h"
#include "orrery/memory/memory.h"
#include "orrery/search/plan/bounds.h"
#include "orrery/search/plan/objectives.h"
#include "orrery/search/plan/turns.h"

namespace orrery::search {
namespace {

constexpr std::size_t kRound = 64;       // points that are evaluated between two looks at the best
constexpr std::size_t kMostSeen = 2000;  // plans that the plot shows

constexpr double kSecondsPerHour = 3600;

// Whether a is at least as good as b in everything.
bool Covers(const std::vector<double>& a, const std::vector<double>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] > b[i]) return false;
  }
  return true;
}

struct Candidate {
  double bound = 0;  // of the step time, ps
  double work = 0;   // of it the mean rank is busy, ps
  std::uint64_t point = 0;
};

// What a rule says without the numbers of the case: messages of one rule are counted together.
std::string RuleOf(const std::string& message) {
  std::string rule;
  bool number = false;
  for (const char c :
       message.substr(message.find(": ") == std::string::npos ? 0 : message.find(": ") + 2)) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit) rule += c;
    if (digit && !number) rule += '#';
    number = digit;
  }
  return Printable(rule, 100);
}

class Search {
 public:
  Search(const OpenJob& open, const PlanOptions& options)
      : open_(open),
        options_(options),
        kept_(options.rerank.empty() ? options.top : std::max(options.top, kFinalists)),
        threads_(static_cast<std::size_t>(ThreadCount(options.threads))),
        evaluators_(threads_) {}

  Result<PlanResult> Run() {
    ORRERY_RETURN_IF_ERROR(Learn());
    List();
    ORRERY_RETURN_IF_ERROR(BoundFamilies());
    ORRERY_RETURN_IF_ERROR(Evaluate());
    ORRERY_RETURN_IF_ERROR(Finish());
    return std::move(result_);
  }

 private:
  struct Family {
    std::vector<std::uint64_t> points;
    FamilyWork work;
    bool known = false;
    double tokens_per_sequence = 0;
    std::optional<campaign::CostSettings> cost;  // of the job
    double power_limit_w = 0;                    // of its GPUs
    std::uint64_t refused = 0;  // members that were read and refused, from the front
    std::map<std::string, std::uint64_t> why;
    std::string first_refusal;
  };
  enum class Kind : std::uint8_t { kRow, kRefused, kTooLarge, kInfeasible };
  struct Outcome {
    Kind kind = Kind::kRefused;
    std::string why;
    PlanRow row;
  };

  Evaluator& Mine(std::size_t thread) {
    std::optional<Evaluator>& one = evaluators_[thread];
    if (!one) one.emplace(open_.job);
    return *one;
  }

  Status Learn() {
    result_.source = open_.job.name();
    result_.keys = open_.space.Keys();
    result_.objectives = options_.objectives;
    result_.by_default = open_.by_default;
    result_.counts.points = open_.space.size();
    ORRERY_ASSIGN_OR_RETURN(const workload::Model model,
                            job::ReadModelTree(open_.job.document, open_.job.folder));
    ORRERY_ASSIGN_OR_RETURN(HostSizes hosts, HostSizesOf(open_));
    reader_.emplace(open_, std::move(hosts), model.layers);
    const std::vector<std::string> keys = open_.space.Keys();
    one_price_ = std::none_of(keys.begin(), keys.end(), [](const std::string& key) {
      return key == "cluster" || key.starts_with("cluster.device") || key.starts_with("cost");
    });
    return {};
  }

  // Points that may be good, by family.
  void List() {
    PlanCounts& counts = result_.counts;
    const bool sampled = counts.points > kMostListed;
    const std::uint64_t looked = sampled ? kMostListed : counts.points;
    counts.not_sampled = counts.points - looked;
    CounterRng rng(options_.seed);
    std::vector<std::uint64_t> sample;
    if (sampled) {
      for (std::uint64_t i = 0; i < looked; ++i) sample.push_back(rng.Below(counts.points));
      std::sort(sample.begin(), sample.end());
      sample.erase(std::unique(sample.begin(), sample.end()), sample.end());
      counts.not_sampled = counts.points - sample.size();
    }
    for (std::uint64_t i = 0; i < (sampled ? sample.size() : looked); ++i) {
      const std::uint64_t point = sampled ? sample[i] : i;
      const std::vector<std::size_t> digits = open_.space.Digits(point);
      const Degrees degrees = reader_->At(digits);
      bool equal = false;
      const std::string_view why = reader_->Refuse(degrees, digits, &equal);
      if (!why.empty()) {
        ++(equal ? counts.equal : counts.impossible);
        if (!equal) ++counts.why[std::string(why)];
        continue;
      }
      const auto [at, fresh] = family_of_.emplace(reader_->Family(digits), families_.size());
      if (fresh) families_.emplace_back();
      families_[at->second].points.push_back(point);
    }
  }

  // Reads members of a family until one is no refusal, and prices its work.
  void Price(Evaluator* evaluator, Family* family) const {
    for (const std::uint64_t point : family->points) {
      const Result<job::Job> job = evaluator->Read(open_.space.Assignments(point), false);
      Status status = job.ok() ? Status() : job.status();
      if (status.ok()) {
        Result<job::Simulation> simulation = evaluator->Prepare(*job);
        if (simulation.ok()) {
          Keep(*job, *simulation, family);
          return;
        }
        status = std::move(simulation).TakeStatus();
      }
      ++family->refused;
      ++family->why[RuleOf(status.message())];
      if (family->first_refusal.empty()) family->first_refusal = status.message();
    }
  }

  static void Keep(const job::Job& job, const job::Simulation& simulation, Family* family) {
    const workload::Plan& plan = job.workloads.front().plan;
    const auto m = static_cast<double>(plan.microbatches());
    family->tokens_per_sequence =
        static_cast<double>(simulation.graph().jobs.front().tokens_per_step) /
        static_cast<double>(plan.batch.global_batch);
    family->cost = job.cost;
    family->power_limit_w = job.cluster.device.power_w;
    const job::WorkFloor floor = simulation.Floor();
    for (const job::WorkFloor::Program& program : floor.programs) {
      family->work.layers_ps += static_cast<double>(program.layers) / m;
      family->work.ends_ps += static_cast<double>(program.ends) / m;
    }
    using workload::Schedule;
    family->work.fills =
        plan.parallel.layers_per_stage.empty() && !plan.experts.moe_comm_overlap &&
        (plan.parallel.schedule == Schedule::kGpipe || plan.parallel.schedule == Schedule::k1f1b ||
         plan.parallel.schedule == Schedule::k1f1bInterleaved);
    family->known = true;
  }

  Status BoundFamilies() {
    ForEach(
        static_cast<int>(threads_), families_.size(),
        [&](std::size_t thread, std::size_t i) { Price(&Mine(thread), &families_[i]); },
        options_.stop);
    PlanCounts& counts = result_.counts;
    counts.families = families_.size();
    for (Family& family : families_) {
      counts.refused += family.refused;
      if (first_refusal_.empty()) first_refusal_ = family.first_refusal;
      for (const auto& [why, times] : family.why) counts.why[why] += times;
      for (std::size_t i = family.refused; i < family.points.size(); ++i) {
        const std::uint64_t point = family.points[i];
        const Degrees degrees = reader_->At(open_.space.Digits(point));
        Candidate candidate{.bound = 0, .work = 0, .point = point};
        if (family.known) {
          candidate.bound = reader_->StepBound(family.work, degrees);
          candidate.work = reader_->WorkBound(family.work, degrees);
        }
        candidates_.push_back(candidate);
      }
      family.points = {};
    }
    std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) {
      return a.bound != b.bound ? a.bound < b.bound : a.point < b.point;
    });
    return {};
  }

  Outcome EvaluateOne(Evaluator* evaluator, std::uint64_t point) const {
    return EvaluateAssignments(evaluator, open_.space.Assignments(point), point);
  }

  Outcome EvaluateAssignments(Evaluator* evaluator, const std::vector<std::string>& assignments,
                              std::uint64_t point) const {
    Outcome out;
    const auto failed = [&out](Kind kind, const Status& status) {
      out.kind = kind;
      out.why = status.message();
      return std::move(out);
    };
    const Result<job::Job> job = evaluator->Read(assignments, false);
    if (!job.ok()) return failed(Kind::kRefused, job.status());
    Result<job::Simulation> simulation = evaluator->Prepare(*job);
    if (!simulation.ok()) return failed(Kind::kRefused, simulation.status());
    Result<job::Evaluation> evaluation = simulation->Evaluate(true);
    if (!evaluation.ok()) return failed(Kind::kInfeasible, evaluation.status());
    out.kind = evaluation->too_large() ? Kind::kTooLarge : Kind::kRow;
    PlanRow& row = out.row;
    row.point = point;
    row.gpus = static_cast<std::int64_t>(job->ranks());
    row.tokens_per_step = evaluation->tokens_per_step;
    row.result = std::move(evaluation->job);
    row.compute_spread = evaluation->compute_spread;
    row.least_bytes = evaluation->least_bytes;
    row.fingerprint = evaluation->fingerprint;
    if (out.kind != Kind::kRow) return out;
    for (const Objective objective : options_.objectives) {
      const std::string& gpu = job->cluster.device.name;
      if (objective == Objective::kEnergy && job->cluster.device.power_w <= 0) {
        return failed(Kind::kRefused,
                      InvalidInput("{}: the power of {} is not known; say cluster.device.power",
                                   open_.job.name(), gpu));
      }
      if (objective == Objective::kCost && !one_price_ && !Priced(job->cost)) {
        return failed(Kind::kRefused,
                      InvalidInput("{}: the price of {} is not known, others' is; say "
                                   "cost.price_per_gpu_hour",
                                   open_.job.name(), gpu));
      }
      row.scores.push_back(ScoreOf(objective, row));
    }
    return out;
  }

  // The allocator replayed: memory_bytes, fits, and the score that is of it.
  Status Replay(Evaluator* evaluator, const std::vector<std::string>& assignments,
                PlanRow* row) const {
    ORRERY_ASSIGN_OR_RETURN(const job::Job job, evaluator->Read(assignments, false));
    ORRERY_ASSIGN_OR_RETURN(const job::Simulation simulation, evaluator->Prepare(job));
    ORRERY_ASSIGN_OR_RETURN(const DeviceMemory memory, evaluator->Memory(job, simulation));
    row->fits = memory.fits;
    SetMemory(memory.bytes, row);
    return {};
  }
  void SetMemory(std::int64_t bytes, PlanRow* row) const {
    row->memory_bytes = bytes;
    for (std::size_t i = 0; i < row->scores.size(); ++i) {
      if (options_.objectives[i] == Objective::kMemory) {
        row->scores[i] = ScoreOf(Objective::kMemory, *row);
      }
    }
  }

  static bool Priced(const std::optional<campaign::CostSettings>& cost) {
    return cost && cost->usd_per_gpu_hour > 0;
  }

  // The scores that a point cannot be better than.
  std::vector<double> BoundScores(const Candidate& candidate) const {
    const std::vector<std::size_t> digits = open_.space.Digits(candidate.point);
    const Degrees degrees = reader_->At(digits);
    const Family& family = families_[family_of_.at(reader_->Family(digits))];
    const double tokens = family.tokens_per_sequence * static_cast<double>(degrees.global_batch);
    // Of a family of which nothing is known the bound is 0, and so is each of these.
    const double per_million = SecondsPerMillion(candidate.bound * 1e-12, tokens);
    const double gpu_hours =
        per_million * static_cast<double>(reader_->Gpus(degrees)) / kSecondsPerHour;
    std::vector<double> scores;
    for (const Objective objective : options_.objectives) {
      switch (objective) {
        case Objective::kThroughput:
        case Objective::kGoodput:
          scores.push_back(per_million);
          break;
        case Objective::kCost:
          scores.push_back(gpu_hours * (Priced(family.cost) ? family.cost->usd_per_gpu_hour : 1));
          break;
        case Objective::kEnergy:
          scores.push_back(family.cost
                               ? gpu_hours / 1000 *
                                     campaign::LeastWatts(*family.cost, family.power_limit_w,
                                                          candidate.work, candidate.bound)
                               : 0);
          break;
        case Objective::kMemory:
          scores.push_back(0);
      }
    }
    return scores;
  }

  // Whether a point with these scores at best could still change the answer.
  bool Matters(const std::vector<double>& scores) const {
    if (options_.objectives.size() > 1) {
      return std::none_of(best_.begin(), best_.end(),
                          [&](const PlanRow& row) { return Covers(row.scores, scores); });
    }
    return best_.size() < kept_ || scores.front() < best_.back().scores.front();
  }

  // A plan that fits takes its place among the best, unless one there runs just the same: sharding
  // over one replica, for one.
  void Enter(PlanRow row) {
    const auto same = [&row](const PlanRow& one) {
      return one.fingerprint == row.fingerprint && one.memory_bytes == row.memory_bytes &&
             one.scores == row.scores;
    };
    if (std::ranges::any_of(best_, same)) return;
    const auto before = [](const PlanRow& a, const PlanRow& b) {
      return a.scores != b.scores ? a.scores < b.scores : a.point < b.point;
    };
    if (options_.objectives.size() > 1) {
      std::erase_if(best_, [&](const PlanRow& one) { return Covers(row.scores, one.scores); });
    }
    best_.insert(std::upper_bound(best_.begin(), best_.end(), row, before), std::move(row));
    if (options_.objectives.size() == 1 && best_.size() > kept_) {
      Remember(std::move(best_.back()));
      best_.pop_back();
    }
  }
  void Remember(PlanRow row) {
    if (result_.seen.size() < kMostSeen) result_.seen.push_back(std::move(row));
  }

  // One round: the next candidates that matter, evaluated side by side, taken in order of their
  // scores. Before the replay the score of memory is a bound below it.
  Status Round(const std::vector<Candidate>& round) {
    std::vector<Outcome> outcomes(round.size());
    ForEach(static_cast<int>(threads_), round.size(), [&](std::size_t thread, std::size_t i) {
      outcomes[i] = EvaluateOne(&Mine(thread), round[i].point);
    });
    PlanCounts& counts = result_.counts;
    std::vector<PlanRow> rows;
    for (std::size_t i = 0; i < round.size(); ++i) {
      Outcome& out = outcomes[i];
      if (out.kind == Kind::kRefused) {
        ++counts.refused;
        ++counts.why[RuleOf(out.why)];
      } else if (out.kind == Kind::kInfeasible) {
        ++counts.refused;
        ++counts.why[Printable(out.why, 100)];
      } else if (out.kind == Kind::kTooLarge) {
        ++counts.too_large;
      } else {
        ++counts.evaluated;
        if (static_cast<double>(out.row.result.step_time) < round[i].bound) ++result_.below_bound;
        rows.push_back(std::move(out.row));
      }
    }
    std::sort(rows.begin(), rows.end(), [](const PlanRow& a, const PlanRow& b) {
      return a.scores != b.scores ? a.scores < b.scores : a.point < b.point;
    });
    for (PlanRow& row : rows) {
      if (!Matters(row.scores)) {
        Remember(std::move(row));
        continue;
      }
      ++counts.replayed;
      const Status replayed = Replay(&Mine(0), open_.space.Assignments(row.point), &row);
      if (!replayed.ok() || !row.fits) {
        ++counts.replay_full;
      } else if (Matters(row.scores)) {
        Enter(std::move(row));
      } else {
        Remember(std::move(row));
      }
    }
    return {};
  }

  Status Evaluate() {
    std::size_t next = 0;
    PlanCounts& counts = result_.counts;
    while (next < candidates_.size()) {
      if (options_.stop != nullptr && options_.stop->load(std::memory_order_relaxed)) {
        result_.interrupted = true;
        break;
      }
      // A refusal costs next to nothing, so that it does not count.
      if (counts.evaluated + counts.too_large >= options_.max_evaluations) break;
      std::vector<Candidate> round;
      while (next < candidates_.size() && round.size() < kRound) {
        const Candidate& candidate = candidates_[next++];
        if (!Matters(BoundScores(candidate))) {
          ++counts.pruned;
        } else {
          round.push_back(candidate);
        }
      }
      if (round.empty()) continue;
      ORRERY_RETURN_IF_ERROR(Round(round));
      if (options_.progress) options_.progress(next, candidates_.size());
    }
    CountLeft(next);
    return {};
  }

  // Candidates whose turn did not come, and what they could be better by.
  void CountLeft(std::size_t next) {
    PlanCounts& counts = result_.counts;
    for (; next < candidates_.size(); ++next) {
      const std::vector<double> scores = BoundScores(candidates_[next]);
      if (!Matters(scores)) {
        ++counts.pruned;
        continue;
      }
      ++counts.left;
      if (!best_.empty() && best_.front().scores.front() > 0) {
        result_.left_better =
            std::max(result_.left_better, 1 - scores.front() / best_.front().scores.front());
      }
    }
    result_.proven = counts.left == 0 && counts.not_sampled == 0 && result_.below_bound == 0;
  }

  // The best again on the network that decides, in its order.
  Status Rerank() {
    if (options_.rerank.empty() || best_.empty()) return {};
    result_.reranked = options_.rerank;
    result_.finalists = best_.size();
    std::vector<Outcome> outcomes(best_.size());
    ForEach(static_cast<int>(threads_), best_.size(), [&](std::size_t thread, std::size_t i) {
      std::vector<std::string> assignments = open_.space.Assignments(best_[i].point);
      assignments.push_back("network=" + options_.rerank);
      outcomes[i] = EvaluateAssignments(&Mine(thread), assignments, best_[i].point);
    });
    std::vector<PlanRow> rows = std::move(best_);
    best_.clear();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (outcomes[i].kind != Kind::kRow) {
        return InvalidInput("--network {}: {}", options_.rerank, outcomes[i].why);
      }
      PlanRow& row = outcomes[i].row;
      SetMemory(rows[i].memory_bytes, &row);
      row.searched_step = rows[i].result.step_time;
      Enter(std::move(row));
    }
    while (options_.objectives.size() == 1 && best_.size() > options_.top) best_.pop_back();
    return {};
  }

  Status Finish() {
    ORRERY_RETURN_IF_ERROR(Rerank());
    result_.rows = std::move(best_);
    for (PlanRow& row : result_.rows) row.values = open_.space.Values(row.point);
    if (open_.by_default) {
      Outcome given = EvaluateAssignments(&Mine(0), open_.given_first, 0);
      if (given.kind == Kind::kRow || given.kind == Kind::kTooLarge) {
        const Status replayed = Replay(&Mine(0), open_.given_first, &given.row);
        if (!replayed.ok()) result_.given_refused = replayed.message();
        result_.given = std::move(given.row);
      } else {
        result_.given_refused = given.why;
      }
    }
    if (result_.rows.empty()) return NoPlan();
    MarkTies();
    if (options_.sensitivity && options_.objectives.size() == 1 && options_.rerank.empty()) {
      ORRERY_RETURN_IF_ERROR(FindTurns(open_, &Mine(0), &result_));
    }
    return {};
  }

  // Scores that are times (or proportional to them) tie where the times may.
  void MarkTies() {
    if (options_.objectives.front() == Objective::kMemory) return;
    const PlanRow& first = result_.rows.front();
    for (PlanRow& row : result_.rows) {
      const double best = first.scores.front();
      row.tie = &row != &first && row.scores.front() - best <= best * TieWidth(first, row);
    }
  }

  Status NoPlan() const {
    const PlanCounts& c = result_.counts;
    if (result_.interrupted) return {Code::kInterrupted, "interrupted before a plan was found"};
    constexpr std::size_t kMostReasons = 3;
    std::vector<std::pair<std::uint64_t, std::string_view>> reasons;
    for (const auto& [why, count] : c.why) reasons.emplace_back(count, why);
    std::ranges::stable_sort(reasons, std::greater<>{}, &decltype(reasons)::value_type::first);
    reasons.resize(std::min(reasons.size(), kMostReasons));
    std::string most;
    for (const auto& [times, why] : reasons) {
      most += fmt::format("{}{}", most.empty() ? "; most often: " : "; ", why);
    }
    // The job as it is and the plans around it break one rule: a key that there is not.
    if (!result_.given_refused.empty() && c.why.contains(RuleOf(result_.given_refused))) {
      return InvalidInput("{}", result_.given_refused);
    }
    if (c.refused == c.points && !first_refusal_.empty()) {
      return InvalidInput("{}{}", first_refusal_,
                          c.points > 1 ? " (no other plan is possible, either)" : "");
    }
    std::string counts;
    const auto count = [&counts](std::uint64_t n, std::string_view what) {
      if (n == 0) return;
      counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ",
                            HumanCount(static_cast<std::int64_t>(n)), what);
    };
    count(c.too_large + c.replay_full, "do not fit the GPU's memory");
    count(c.impossible, "have degrees that do not go together");
    count(c.refused, "break a rule");
    count(c.left + c.not_sampled, "were not reached when the search ended");
    const bool ended = c.left + c.not_sampled > 0;
    return Infeasible(
        "{}: no plan was found among {}: {}{}; {}open more keys (training.recompute, "
        "training.sharding, parallel.pp) or give more nodes",
        result_.source, HumanCount(static_cast<std::int64_t>(c.points)), counts, most,
        ended ? "raise --evaluations, " : "");
  }

  const OpenJob& open_;
  const PlanOptions& options_;
  std::size_t kept_;  // plans that the search looks for
  std::size_t threads_;
  std::vector<std::optional<Evaluator>> evaluators_;
  std::optional<PointReader> reader_;
  std::unordered_map<std::uint64_t, std::size_t> family_of_;
  std::vector<Family> families_;
  std::vector<Candidate> candidates_;
  std::vector<PlanRow> best_;
  std::string first_refusal_;
  bool one_price_ = false;  // all plans are on one GPU at one price
  PlanResult result_;
};

}  // namespace

Result<PlanResult> FindPlans(const OpenJob& open, const PlanOptions& options) {
  ORRERY_ASSIGN_OR_RETURN(const OpenJob asking, Asking(open, options.objectives));
  return Search(asking, options).Run();
}

}  // namespace orrery::search
