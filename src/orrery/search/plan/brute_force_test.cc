// The search against the truth on drawn spaces: every point evaluated, the allocator replayed.
//
// ORRERY_SPACES=N looks at N spaces in place of a few, ORRERY_SPACES_SEED at others. A line for
// each is printed: its size, what a search to the end evaluated of it, and what one of a tenth of
// the evaluations found.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "orrery/base/rng.h"
#include "orrery/search/plan/plan.h"
#include "orrery/search/sweep/sweep.h"

namespace orrery::search {
namespace {

std::uint64_t FromEnvironment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

// A job file with the degrees and some more keys open: dense models and experts, two clusters,
// memory that decides or does not, one or several sizes, bad splits among them.
std::string DrawSpace(std::uint64_t seed) {
  CounterRng rng(seed);
  const auto pick = [&rng](const std::vector<std::string>& of) {
    return of[static_cast<std::size_t>(rng.Below(of.size()))];
  };
  const bool experts = rng.Below(4) == 0;
  const std::string model =
      experts ? "mixtral-8x7b" : pick({"llama3-8b", "llama2-13b", "gpt3-175b", "llama3-70b"});
  const bool large = model == "gpt3-175b" || model == "llama3-70b";
  std::string text = fmt::format(
      "model: {}\ncluster: {}\nnodes: {}\n", model, pick({"h100-ib-400g", "a100-80g-ib-200g"}),
      large ? pick({"16", "32", "[16, 32]"}) : pick({"2", "4", "[2, 4]", "8"}));
  text +=
      fmt::format("parallel: {{tp: [1, 2, 4, 8], pp: 1..{}, vpp: {}, sequence_parallel: {}{}}}\n",
                  large ? 16 : 8, pick({"1", "[1, 2]", "[1, 2, 4]"}),
                  pick({"true", "[false, true]"}), experts ? ", ep: [1, 2, 4, 8]" : "");
  text += fmt::format(
      "training: {{global_batch: {}, micro_batch: {}, seq_len: {}, recompute: {}, sharding: {}}}\n",
      pick({"64", "128", "256"}), pick({"[1, 2]", "[1, 2, 4]"}), pick({"2048", "4096"}),
      pick({"selective", "[none, full]", "[none, selective, full]"}),
      pick({"zero1", "[none, zero1]"}));
  return text;
}

// Most tokens per second of what fits, over all points; 0: nothing does.
double BestOf(const OpenJob& open, std::uint64_t* runs) {
  Evaluator evaluator(open.job);
  double best = 0;
  for (std::uint64_t p = 0; p < open.space.size(); ++p) {
    const SweepRow bound = EvaluateRow(&evaluator, open.space, p, false);
    if (bound.step_time > 0) ++*runs;
    if (bound.status != RowStatus::kOk || bound.tokens_per_s <= best) continue;
    const SweepRow row = EvaluateRow(&evaluator, open.space, p, true);
    if (row.status == RowStatus::kOk) best = row.tokens_per_s;
  }
  return best;
}

TEST(PlanAgainstBruteForce, DrawnSpaces) {
  const std::uint64_t spaces = FromEnvironment("ORRERY_SPACES", 3);
  const std::uint64_t seed = FromEnvironment("ORRERY_SPACES_SEED", 1);
  for (std::uint64_t i = 0; i < spaces; ++i) {
    const std::string text = DrawSpace(HashCombine(seed, i));
    SCOPED_TRACE(text);
    Result<Template> job = ReadTemplateText(text, "job.yaml", {}, "");
    ASSERT_TRUE(job.ok()) << job.status().message();
    const Result<OpenJob> open = OpenSpace(*std::move(job), {});
    ASSERT_TRUE(open.ok()) << open.status().message();
    std::uint64_t runs = 0;
    const double truth = BestOf(*open, &runs);
    const auto found = FindPlans(*open, {.top = 1, .threads = 1, .sensitivity = false});
    if (truth == 0) {
      EXPECT_FALSE(found.ok());
      fmt::print("space {:2}: {:6} points, none fits\n", i, open->space.size());
      continue;
    }
    ASSERT_TRUE(found.ok()) << found.status().message();
    EXPECT_TRUE(found->proven);
    EXPECT_EQ(found->below_bound, 0u);
    EXPECT_EQ(found->rows.front().result.tokens_per_s, truth);
    const auto early = FindPlans(*open, {.top = 1,
                                         .threads = 1,
                                         .max_evaluations = std::max<std::uint64_t>(runs / 10, 1),
                                         .sensitivity = false});
    const double reached = early.ok() ? early->rows.front().result.tokens_per_s / truth : 0;
    if (early.ok() && early->proven) {
      EXPECT_EQ(reached, 1);
    }
    fmt::print(
        "space {:2}: {:6} points, {:5} run; {:5} evaluated ({:4.1f} %) and proven; after "
        "{:4} {}: {:.2f} % of the best\n",
        i, open->space.size(), runs, found->counts.evaluated,
        100.0 * static_cast<double>(found->counts.evaluated) / static_cast<double>(runs),
        early.ok() ? early->counts.evaluated : 0,
        early.ok() && early->proven ? "(proven)" : "(not proven)", 100 * reached);
  }
}

// Every objective of money, energy and failures against all points, sizes of the cluster among
// them.
TEST(PlanAgainstBruteForce, CostEnergyGoodput) {
  constexpr std::string_view kText = R"(
model: llama3-8b
cluster: h100-ib-400g
nodes: [1, 2, 4]
parallel: {tp: [1, 2, 4, 8], pp: [1, 2, 4], sequence_parallel: true}
training: {global_batch: 64, micro_batch: [1, 2], seq_len: 4096, recompute: [none, full], sharding: zero1}
cost: {}
goodput: {mean_time_between_failures: 500, checkpoint: synchronous, storage_bandwidth: 5GB/s}
)";
  Result<Template> job = ReadTemplateText(kText, "job.yaml", {}, "");
  ASSERT_TRUE(job.ok()) << job.status().message();
  const Result<OpenJob> open = OpenSpace(*std::move(job), {});
  ASSERT_TRUE(open.ok()) << open.status().message();
  Evaluator evaluator(open->job);
  double cost = 1e300, energy = 1e300, slowness = 1e300;
  for (std::uint64_t p = 0; p < open->space.size(); ++p) {
    const SweepRow row = EvaluateRow(&evaluator, open->space, p, true);
    if (row.status != RowStatus::kOk) continue;
    cost = std::min(cost, row.usd);
    energy = std::min(energy, row.kwh);
    slowness = std::min(slowness, 1e6 / row.tokens_per_s / row.goodput);
  }
  const std::pair<Objective, double> kTruths[] = {
      {Objective::kCost, cost}, {Objective::kEnergy, energy}, {Objective::kGoodput, slowness}};
  for (const auto& [objective, truth] : kTruths) {
    const auto found =
        FindPlans(*open, {.objectives = {objective}, .top = 1, .threads = 1, .sensitivity = false});
    ASSERT_TRUE(found.ok()) << found.status().message();
    EXPECT_TRUE(found->proven) << Info(objective).name;
    EXPECT_NEAR(found->rows.front().scores.front() / truth, 1, 1e-12) << Info(objective).name;
  }
}

// Memory is what the allocator's replay has, in order and for the front: a plan whose bound is less
// may need more. Plans that run alike (sharding over one replica) stand once.
TEST(PlanAgainstBruteForce, Memory) {
  constexpr std::string_view kText = R"(
model: llama3-8b
cluster: h100-ib-400g
nodes: 2
parallel: {tp: [2, 4, 8], pp: [1, 2, 4], sequence_parallel: true}
training: {global_batch: 64, micro_batch: [1, 2], seq_len: 4096, recompute: [selective, full], sharding: [none, zero1]}
)";
  Result<Template> job = ReadTemplateText(kText, "job.yaml", {}, "");
  ASSERT_TRUE(job.ok()) << job.status().message();
  const Result<OpenJob> open = OpenSpace(*std::move(job), {});
  ASSERT_TRUE(open.ok()) << open.status().message();
  Evaluator evaluator(open->job);
  std::vector<std::pair<double, std::int64_t>> plans;  // step time, memory; each once
  for (std::uint64_t p = 0; p < open->space.size(); ++p) {
    const SweepRow row = EvaluateRow(&evaluator, open->space, p, true);
    if (row.status != RowStatus::kOk) continue;
    const std::pair plan(ToSeconds(row.step_time), row.memory_bytes);
    if (std::ranges::find(plans, plan) == plans.end()) plans.push_back(plan);
  }
  ASSERT_GT(plans.size(), 10u);
  std::ranges::sort(plans, {}, &std::pair<double, std::int64_t>::second);
  const auto least = FindPlans(*open, {.objectives = {Objective::kMemory}, .top = 5, .threads = 1});
  ASSERT_TRUE(least.ok()) << least.status().message();
  EXPECT_TRUE(least->proven);
  ASSERT_EQ(least->rows.size(), 5u);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(least->rows[i].memory_bytes, plans[i].second) << i;

  const auto front =
      FindPlans(*open, {.objectives = {Objective::kThroughput, Objective::kMemory}, .threads = 1});
  ASSERT_TRUE(front.ok()) << front.status().message();
  std::vector<std::pair<double, std::int64_t>> found;
  for (const PlanRow& row : front->rows) {
    found.emplace_back(ToSeconds(row.result.step_time), row.memory_bytes);
  }
  std::vector<std::pair<double, std::int64_t>> truth;
  for (const auto& a : plans) {
    const bool covered = std::ranges::any_of(
        plans, [&](const auto& b) { return b != a && b.first <= a.first && b.second <= a.second; });
    if (!covered) truth.push_back(a);
  }
  EXPECT_THAT(found, ::testing::UnorderedElementsAreArray(truth));
}

// The finalists in the order of another network: no plan of the twelve is faster there.
TEST(PlanAgainstBruteForce, FinalistsRunAgain) {
  constexpr std::string_view kText = R"(
model: llama3-8b
cluster: h100-ib-400g
nodes: 2
parallel: {tp: [1, 2, 4, 8], pp: [1, 2], sequence_parallel: true}
training: {global_batch: 32, micro_batch: [1, 2], seq_len: 2048, recompute: [none, full], sharding: zero1}
)";
  Result<Template> job = ReadTemplateText(kText, "job.yaml", {}, "");
  ASSERT_TRUE(job.ok()) << job.status().message();
  const Result<OpenJob> open = OpenSpace(*std::move(job), {});
  ASSERT_TRUE(open.ok()) << open.status().message();
  const auto wide = FindPlans(*open, {.top = kFinalists, .threads = 1, .sensitivity = false});
  const auto again =
      FindPlans(*open, {.top = 3, .threads = 1, .sensitivity = false, .rerank = "flow"});
  ASSERT_TRUE(wide.ok() && again.ok());
  EXPECT_EQ(again->finalists, wide->rows.size());
  Evaluator evaluator(open->job);
  SimTime least = kNever;
  for (const PlanRow& row : wide->rows) {
    std::vector<std::string> assignments = open->space.Assignments(row.point);
    assignments.emplace_back("network=flow");
    const auto one = evaluator.Read(assignments, false);
    ASSERT_TRUE(one.ok());
    auto simulation = evaluator.Prepare(*one);
    ASSERT_TRUE(simulation.ok());
    least = std::min(least, simulation->Evaluate()->job.step_time);
  }
  EXPECT_EQ(again->rows.front().result.step_time, least);
  EXPECT_GT(again->rows.front().searched_step, 0);
  ASSERT_EQ(again->rows.size(), 3u);
  EXPECT_LE(again->rows[0].result.step_time, again->rows[1].result.step_time);
}

}  // namespace
}  // namespace orrery::search
