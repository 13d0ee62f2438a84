// The plan to run instead: the best points of a job's open space.
//
//   1. Every point is looked at. One whose degrees cannot go together (tp · pp · cp · dp against
//      the GPUs, the batch against micro-batch · dp), or that says what another point says, is
//      counted and left out (bounds.h).
//   2. Points that differ only in pp, vpp, dp and nodes are a family: the work of a micro-batch is
//      the same in all of them. One member's graph gives it, and with it a bound below the step
//      time of each (bounds.h).
//   3. In order of their bounds points are evaluated, in rounds of a fixed size, until no bound is
//      below the `top`-th best value found: then the best are proven. A point whose live memory
//      exceeds the GPU is not run. What would enter the best is kept only if the allocator's replay
//      fits.
//   4. With `rerank` the kFinalists best (`top`, where that is more) are run again on that network,
//      and shown in its order; what is proven is so on the network of the search.
// A round's members are decided before it begins, so that neither threads nor their timing change
// what is found. `max_evaluations` ends the search early; the result then says how much better a
// point that was left out could be at most. Above kMostListed points a seeded sample is looked at.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/constants/spreads.h"
#include "orrery/job/simulate.h"
#include "orrery/search/plan/open.h"

namespace orrery::search {

inline constexpr std::string_view kPlanSchema = "orrery.plan/1";

enum class Objective : std::uint8_t { kThroughput, kCost, kMemory, kEnergy, kGoodput };
struct ObjectiveInfo {
  std::string_view name;
  std::string_view description;  // what is made small or large
  std::string_view unit;
};
const ObjectiveInfo& Info(Objective objective);
// "throughput", or several joined by commas, for a Pareto front.
Result<std::vector<Objective>> ParseObjectives(std::string_view text);

struct PlanOptions {
  std::vector<Objective> objectives = {Objective::kThroughput};
  std::size_t top = 5;
  int threads = 0;  // 0: one a core
  std::uint64_t seed = 1;
  std::uint64_t max_evaluations = 20'000;
  bool sensitivity = true;
  std::string rerank;  // network on which the finalists are run again; empty: they are not
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;
  const std::atomic<bool>* stop = nullptr;  // true: the round in hand is finished, no other begun
};

struct PlanRow {
  std::uint64_t point = 0;
  std::vector<std::string> values;
  std::int64_t gpus = 0;
  std::int64_t tokens_per_step = 0;
  results::JobResult result;  // without memory rows
  double compute_spread = 0;
  std::int64_t memory_bytes = 0;  // replayed, of the fullest rank
  std::int64_t least_bytes = 0;   // what lives at once, libraries included
  bool fits = true;
  std::uint64_t fingerprint = 0;
  std::vector<double> scores;  // by objective, smaller is better
  SimTime searched_step = 0;   // of the search, where the row was run again
  bool tie = false;            // the step time differs from the best by less than it may be off
};

// What became of the points of the space; they add up to `points`.
struct PlanCounts {
  std::uint64_t points = 0;
  std::uint64_t not_sampled = 0;  // of a space too large to list
  std::uint64_t equal = 0;        // say what another point says
  std::uint64_t impossible = 0;   // degrees that cannot go together
  std::uint64_t refused = 0;      // by a rule of job file, framework or model
  std::uint64_t pruned = 0;       // their bound is no better than what was found
  std::uint64_t too_large = 0;    // a graph was built: what lives at once exceeds the GPU
  std::uint64_t evaluated = 0;    // graph and engine ran
  std::uint64_t left = 0;         // the search ended before their turn
  std::uint64_t families = 0;     // whose work was priced for bounds; not of the points
  std::uint64_t replayed = 0;     // of those evaluated: the allocator, too
  std::uint64_t replay_full = 0;  // of those replayed: did not fit
  std::map<std::string, std::uint64_t> why;  // of impossible and refused, by rule
};

// At which change of a resource another of the best plans would be the first.
struct PlanTurn {
  std::string key;      // "cluster.nic_bandwidth"
  double factor = 1;    // of its value
  std::string value;    // with unit
  std::size_t row = 0;  // of `rows`, which is first then
};

struct PlanResult {
  std::string source;
  std::vector<std::string> keys;
  std::vector<Objective> objectives;
  bool by_default = false;
  std::string reranked;       // network on which the finalists were run again
  std::size_t finalists = 0;  // that were
  PlanCounts counts;
  bool proven = false;
  bool interrupted = false;
  double left_better = 0;         // a point left out could be better by this share, at most
  std::uint64_t below_bound = 0;  // points whose time came out below their bound: 0, or a bug
  std::vector<PlanRow> rows;      // best first; with several objectives the front
  std::vector<PlanRow>
      seen;  // other plans that were evaluated, for the plot: fastest first, capped
  std::optional<PlanRow> given;  // the job as it was, by_default
  std::string given_refused;     // why there is none
  std::vector<PlanTurn> turns;
  std::vector<std::string> steady;  // resources that may halve or double without a change
};

// Smaller is better; of a plan that ran. Memory is the replayed one, or before a replay
// least_bytes, which is no more. REQUIRES: cost and goodput of the result where the objective is of
// them.
double ScoreOf(Objective objective, const PlanRow& row);

inline constexpr std::size_t kFinalists = 12;

// Spaces of more points are sampled.
inline constexpr std::uint64_t kMostListed = 20'000'000;

Result<PlanResult> FindPlans(const OpenJob& open, const PlanOptions& options);

// The share by which the step time of one plan may be off against the other's: 80 % of errors,
// those that both plans share left out.
double TieWidth(const PlanRow& a, const PlanRow& b);

std::string PlanToJson(const PlanResult& result);
std::string PlanToText(const PlanResult& result);
// Step time against memory; the front joined.
std::string PlanToSvg(const PlanResult& result);

}  // namespace orrery::search
