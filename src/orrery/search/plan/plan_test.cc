#include "orrery/search/plan/plan.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "orrery/job/simulate.h"
#include "orrery/search/plan/written.h"
#include "orrery/search/sweep/sweep.h"

namespace orrery::search {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

OpenJob Opened(std::string_view text, const std::vector<std::string>& vary = {}) {
  Result<Template> job = ReadTemplateText(text, "job.yaml", {}, "");
  EXPECT_TRUE(job.ok()) << job.status().message();
  Result<OpenJob> open = OpenSpace(*std::move(job), vary);
  EXPECT_TRUE(open.ok()) << open.status().message();
  return *std::move(open);
}

std::string OpenError(std::string_view text, const std::vector<std::string>& vary = {}) {
  Result<Template> job = ReadTemplateText(text, "job.yaml", {}, "");
  if (!job.ok()) return job.status().message();
  return OpenSpace(*std::move(job), vary).status().message();
}

// Spaces of several kinds: dense and experts, pipelines with and without chunks, context
// parallelism, FSDP, memory that decides, several sizes of cluster.
constexpr std::string_view kSpaces[] = {
    R"(
model: llama3-8b
cluster: h100-ib-400g
nodes: 4
parallel: auto
training: {global_batch: 128, micro_batch: auto, seq_len: 4096, recompute: [none, full], sharding: [none, zero1]}
)",
    R"(
model: mixtral-8x7b
cluster: h100-ib-400g
nodes: 4
parallel: {tp: [1, 2, 4], pp: 1..4, vpp: [1, 2], ep: [1, 2, 4, 8], sequence_parallel: true}
training: {global_batch: 64, micro_batch: [1, 2], seq_len: 4096, sharding: zero1}
)",
    R"(
model: gpt3-175b
cluster: a100-80g-ib-200g
nodes: [32, 64]
parallel: {tp: [4, 8], pp: [2, 4, 8, 16], sequence_parallel: [false, true]}
training: {global_batch: 512, micro_batch: [1, 2], seq_len: 2048, recompute: auto, sharding: zero1}
)",
    R"(
model: llama3-8b
cluster: h100-ib-400g
nodes: 2
framework: fsdp
parallel: {cp: [1, 2, 4]}
training: {global_batch: 64, micro_batch: [1, 2, 4], seq_len: 8192, recompute: [none, full], sharding: [zero2, zero3]}
)",
    R"(
model: llama3-8b
cluster: h100-ib-400g
nodes: 1
parallel: {tp: [1, 2], pp: [2, 4]}
schedule: auto
training: {global_batch: 32, seq_len: 4096, recompute: full, sharding: zero1}
)"};

// The truth: every point evaluated, the allocator replayed.
std::optional<SweepRow> BruteForce(const OpenJob& open) {
  Evaluator evaluator(open.job);
  std::optional<SweepRow> best;
  for (std::uint64_t p = 0; p < open.space.size(); ++p) {
    SweepRow row = EvaluateRow(&evaluator, open.space, p, true);
    if (row.status != RowStatus::kOk) continue;
    if (!best || row.tokens_per_s > best->tokens_per_s) best = std::move(row);
  }
  return best;
}

TEST(Plan, ProvenIsTheBestOfAll) {
  for (const std::string_view text : kSpaces) {
    const OpenJob open = Opened(text);
    const auto found = FindPlans(open, {.top = 3, .threads = 1, .sensitivity = false});
    const std::optional<SweepRow> truth = BruteForce(open);
    ASSERT_TRUE(truth.has_value()) << text;
    ASSERT_TRUE(found.ok()) << found.status().message() << text;
    EXPECT_TRUE(found->proven) << text;
    EXPECT_EQ(found->below_bound, 0u) << text;
    EXPECT_EQ(found->rows[0].result.tokens_per_s, truth->tokens_per_s) << text;
    EXPECT_EQ(found->rows[0].memory_bytes, truth->memory_bytes) << text;
    const PlanCounts& c = found->counts;
    EXPECT_EQ(c.points, c.not_sampled + c.equal + c.impossible + c.refused + c.pruned +
                            c.too_large + c.evaluated + c.left)
        << text;
  }
}

TEST(Plan, ThreadsChangeNothing) {
  const OpenJob open = Opened(kSpaces[0]);
  const auto one = FindPlans(open, {.threads = 1});
  const auto three = FindPlans(open, {.threads = 3});
  ASSERT_TRUE(one.ok() && three.ok());
  EXPECT_EQ(PlanToJson(*one), PlanToJson(*three));
  EXPECT_EQ(PlanToSvg(*one), PlanToSvg(*three));
}

// What is written runs, and is the plan.
TEST(Plan, IsAJobFileThatRuns) {
  for (const std::string_view text : kSpaces) {
    const OpenJob open = Opened(text);
    const auto found = FindPlans(open, {.top = 2, .threads = 1, .sensitivity = false});
    ASSERT_TRUE(found.ok());
    for (const PlanRow& row : found->rows) {
      const auto file = JobFileOf(open, row.point);
      ASSERT_TRUE(file.ok());
      const auto job = job::ReadJobText(*file, "plan.yaml", "", {});
      ASSERT_TRUE(job.ok()) << job.status().message() << *file;
      const auto result = job::Simulate(*job);
      ASSERT_TRUE(result.ok());
      EXPECT_EQ(result->jobs[0].step_time, row.result.step_time) << *file;
      EXPECT_EQ(result->simulation.fingerprint, row.fingerprint) << *file;
      EXPECT_FALSE(result->out_of_memory());
    }
  }
}

// Of clusters, nodes and lengths of a sequence, at once: bounds and ties are of a token, not of a
// step, and hosts differ in size.
TEST(Plan, ClustersAreComparedByTheToken) {
  const OpenJob open = Opened(R"(
model: llama3-8b
cluster: [h100-ib-400g, gb200-nvl72-ib-400g]
nodes: [2, 4]
parallel: {tp: [1, 2, 4], pp: [1, 2]}
training: {global_batch: 64, micro_batch: [1, 2], seq_len: [4096, 8192], sharding: zero1}
cost: {}
)");
  Evaluator evaluator(open.job);
  std::vector<SweepRow> rows;
  for (std::uint64_t p = 0; p < open.space.size(); ++p) {
    rows.push_back(EvaluateRow(&evaluator, open.space, p, true));
  }
  std::erase_if(rows, [](const SweepRow& row) { return row.status != RowStatus::kOk; });
  for (const Objective objective : {Objective::kThroughput, Objective::kCost, Objective::kEnergy}) {
    const auto score = [&](const SweepRow& row) {
      return objective == Objective::kThroughput ? -row.tokens_per_s
             : objective == Objective::kCost     ? row.usd
                                                 : row.kwh;
    };
    const auto best = std::ranges::min_element(rows, {}, score);
    const auto found =
        FindPlans(open, {.objectives = {objective}, .top = 5, .threads = 1, .sensitivity = false});
    ASSERT_TRUE(found.ok()) << found.status().message();
    EXPECT_TRUE(found->proven);
    EXPECT_EQ(found->below_bound, 0u);
    EXPECT_EQ(found->rows.front().point, best->point) << Info(objective).name;
    for (std::size_t i = 1; i < found->rows.size(); ++i) {
      const PlanRow& row = found->rows[i];
      const double behind = row.scores[0] / found->rows[0].scores[0] - 1;
      EXPECT_EQ(row.tie, behind <= TieWidth(found->rows[0], row));
    }
  }
}

TEST(Plan, AFrontHasNoPlanThatIsWorseInEverything) {
  const OpenJob open = Opened(kSpaces[2]);
  const auto found =
      FindPlans(open, {.objectives = {Objective::kThroughput, Objective::kMemory}, .threads = 1});
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_TRUE(found->proven);
  ASSERT_GE(found->rows.size(), 2u);
  for (std::size_t i = 1; i < found->rows.size(); ++i) {
    EXPECT_GT(found->rows[i].scores[0], found->rows[i - 1].scores[0]);
    EXPECT_LT(found->rows[i].scores[1], found->rows[i - 1].scores[1]);
  }
  const auto fastest = FindPlans(open, {.top = 1, .threads = 1, .sensitivity = false});
  EXPECT_EQ(found->rows[0].scores[0], fastest->rows[0].scores[0]);
}

TEST(Plan, EndsEarlyAndSaysHowMuchMayBeLost) {
  const OpenJob open = Opened(kSpaces[2]);
  const auto found =
      FindPlans(open, {.top = 1, .threads = 1, .max_evaluations = 1, .sensitivity = false});
  ASSERT_TRUE(found.ok()) << found.status().message();
  const auto all = FindPlans(open, {.top = 1, .threads = 1, .sensitivity = false});
  ASSERT_TRUE(all.ok());
  if (found->counts.left > 0) {
    EXPECT_FALSE(found->proven);
    const double lost = 1 - all->rows[0].scores[0] / found->rows[0].scores[0];
    EXPECT_LE(lost, found->left_better + 1e-9);
  }
}

TEST(Plan, ImpossibleSpacesSayWhy) {
  const OpenJob open = Opened(R"(
model: gpt3-175b
cluster: h100-ib-400g
nodes: 1
parallel: {tp: [1, 2, 4, 8]}
training: {global_batch: 8, seq_len: 2048}
)");
  const auto found = FindPlans(open, {.threads = 1});
  EXPECT_EQ(found.status().code(), Code::kInfeasible);
  EXPECT_THAT(found.status().message(), HasSubstr("4 do not fit the GPU's memory"));
}

TEST(Plan, DegreesOutsideTheirRangeAreRefused) {
  for (const char* const vary :
       {"parallel.tp=0,1", "parallel.pp=0,1", "parallel.cp=0,1", "training.micro_batch=0,1",
        "parallel.pp=9223372036854775807,1", "parallel.dp=9223372036854775807,16"}) {
    const OpenJob open = Opened(R"(
model: gpt2
cluster: h100-ib-400g
nodes: 2
training: {global_batch: 64, seq_len: 1024}
)",
                                {vary});
    const auto found = FindPlans(open, {.threads = 1});
    ASSERT_TRUE(found.ok()) << vary << ": " << found.status().message();
    EXPECT_EQ(found->counts.refused, 1u) << vary;
    EXPECT_EQ(found->rows.size(), 1u) << vary;
  }
}

TEST(Open, ListsRangesAndAuto) {
  const OpenJob open = Opened(R"(
model: llama3-8b
cluster: [h100-ib-400g, a100-80g-ib-200g]
nodes: 2
parallel: {tp: auto, pp: 1..2, layers_per_stage: [[16, 16], [15, 17]]}
training: {global_batch: 32, seq_len: 4096, recompute: auto}
)",
                              {"training.micro_batch=1,2"});
  EXPECT_THAT(open.space.Keys(),
              ElementsAre("training.micro_batch", "cluster", "parallel.tp", "parallel.pp",
                          "parallel.layers_per_stage", "training.recompute"));
  EXPECT_EQ(open.space.size(), 2u * 2 * 4 * 2 * 2 * 3);
  EXPECT_FALSE(open.by_default);
}

TEST(Open, AFinishedJobHasItsDegreesOpened) {
  const OpenJob open = Opened(R"(
model: llama3-8b
cluster: h100-ib-400g
nodes: 2
parallel: {tp: 2, pp: 4, dp: 2}
training: {global_batch: 32, seq_len: 4096}
)");
  EXPECT_TRUE(open.by_default);
  EXPECT_THAT(open.given_first, ElementsAre("parallel.tp=2", "parallel.pp=4", "parallel.dp=2"));
}

// An imported job says its degrees and no hosts. Opened, it was searched on as many GPUs as each
// plan's tp and pp made, and "the best plan" took four times as long as the job itself.
TEST(Open, AFinishedJobWithoutNodesKeepsItsGpus) {
  const OpenJob open = Opened(R"(
model: llama3-8b
cluster: h100-ib-400g
parallel: {tp: 2, dp: 16}
training: {global_batch: 32, seq_len: 4096}
)");
  ASSERT_NE(open.job.document.root.Find("nodes"), nullptr);
  EXPECT_EQ(open.job.document.root.Find("nodes")->text, "4");  // 2 x 16 GPUs, 8 a host
  EXPECT_THAT(OpenError("model: llama3-8b\ncluster: h100-ib-400g\nparallel: {tp: 1, dp: 12}\n"
                        "training: {global_batch: 12, seq_len: 1024}\n"),
              HasSubstr("its degrees make 12 GPUs, hosts have 8; write nodes: 2"));
}

// A key or a value that is none ends the search, whatever was opened.
TEST(Plan, TyposOfAFinishedJobAreSaid) {
  constexpr std::string_view kJob =
      "model: gpt2\ncluster: h100-ib-400g\nnodes: 1\nparallel: {{tp{}: 2, pp: 2, dp: 2}}\n"
      "training: {{global_batch: 16, seq_len: 1024, recompute: full{}}}\n";
  const OpenJob open = Opened(fmt::format(fmt::runtime(kJob), "p", ""));
  const auto found = FindPlans(open, {.threads = 1});
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.status().code(), Code::kInvalidInput);
  EXPECT_THAT(found.status().message(), HasSubstr("unknown key of parallel 'tpp'"));
  const OpenJob space = Opened(
      "model: gpt2\ncluster: h100-ib-400g\nnodes: 1\nparallel: auto\n"
      "training: {global_batch: 16, seq_len: 1024, micro_bach: 1}\n");
  EXPECT_THAT(FindPlans(space, {.threads = 1}).status().message(),
              HasSubstr("unknown key of training 'micro_bach'; did you mean 'micro_batch'?"));
  EXPECT_THAT(OpenError(fmt::format(fmt::runtime(kJob), "", "l")),
              HasSubstr("training.recompute: unknown recompute 'fulll'; did you mean 'full'?"));
}

TEST(Open, WhatIsWrongIsSaid) {
  EXPECT_THAT(OpenError("model: llama3-8b\ncluster: h100-ib-400g\nparallel: auto\n"
                        "training: {global_batch: 8, seq_len: 1024}\n"),
              HasSubstr("nodes is missing"));
  EXPECT_THAT(OpenError("model: llama3-8b\ncluster: h100-ib-400g\nnodes: 1\nparallel: {dp: auto}\n"
                        "training: {global_batch: 8, seq_len: 1024}\n"),
              HasSubstr("parallel.dp: auto has no meaning here"));
  EXPECT_THAT(OpenError("model: llama3-8b\ncluster: h100-ib-400g\nnodes: 1\n"
                        "training: {global_batch: 8, seq_len: 1024}\n",
                        {"parallel.tpp=auto"}),
              HasSubstr("there is no key of this name"));
  EXPECT_THAT(ParseObjectives("throughput,speed").status().message(),
              HasSubstr("unknown objective 'speed'"));
}

}  // namespace
}  // namespace orrery::search
