#include "orrery/job/goal_writer.h"

#include <gtest/gtest.h>

#include "orrery/base/rng.h"
#include "orrery/job/job.h"
#include "orrery/job/simulate.h"
#include "orrery/workload/importers/goal/goal.h"

namespace orrery::job {
namespace {

using formats::GoalSchedule;
using Kind = GoalSchedule::Kind;

// Sends and receives in pairs, calcs, several processors and interfaces, dependencies of both
// kinds.
GoalSchedule Drawn(std::uint64_t seed) {
  CounterRng rng(seed);
  const auto below = [&](std::uint64_t n) { return static_cast<std::uint32_t>(rng.Below(n)); };
  const std::uint32_t ranks = 2 + below(6), rounds = 1 + below(8);
  std::vector<std::uint32_t> step(rounds);
  for (std::uint32_t& s : step) s = 1 + below(ranks - 1);
  formats::GoalBuilder builder;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    builder.BeginRank();
    for (std::uint32_t i = 0; i < rounds; ++i) {
      const auto cpu = static_cast<std::uint8_t>(below(3)),
                 nic = static_cast<std::uint8_t>(below(2));
      builder.Add(Kind::kCalc, below(5000), 0, 0, cpu);
      builder.Add(Kind::kSend, 1 + below(9000), (r + step[i]) % ranks, i, cpu, nic);
      builder.Add(Kind::kRecv, 9000, (r + ranks - step[i]) % ranks, i, cpu, nic);
      const std::uint32_t now = builder.ops_of_rank() - 3;
      if (now > 0) builder.Require(now, below(now), below(2) == 0);
      builder.Require(now + 1, now);
    }
  }
  return *builder.Take(false);
}

class GoalWriter : public ::testing::Test {
 protected:
  // On a cluster that plays no part.
  Result<GoalExport> Export(const graph::Graph& graph) {
    ReadOptions read;
    const Result<Job> job = ReadJobText(
        "model: gpt2\ncluster: h100-ib-400g\nparallel: {dp: 1}\n"
        "training: {global_batch: 1, micro_batch: 1, seq_len: 128}\n",
        "job", ".", read);
    EXPECT_TRUE(job.ok()) << job.status().message();
    Caches caches;
    const Result<Simulation> simulation = Simulation::Prepare(*job, {}, &caches);
    EXPECT_TRUE(simulation.ok());
    engine::Inputs inputs = simulation->inputs();
    inputs.graph = &graph;
    return ExportGoal(inputs, 1);
  }
};

TEST_F(GoalWriter, ASchedulesGraphIsTheSchedule) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const GoalSchedule schedule = Drawn(seed);
    const Result<graph::Graph> graph = workload::ImportGoal(schedule, "drawn");
    ASSERT_TRUE(graph.ok());
    const Result<GoalExport> out = Export(*graph);
    ASSERT_TRUE(out.ok()) << out.status().message();
    ASSERT_EQ(formats::GoalToText(out->schedule), formats::GoalToText(schedule)) << seed;
    EXPECT_EQ(out->lost.size(), 1u);  // names
  }
}

// A training step with collectives of every kind that a plan of four ranks has: what is sent is
// received, and the schedule ends.
TEST_F(GoalWriter, AJobsMessagesMatch) {
  const Result<Job> job = ReadJobText(
      "model: gpt2\ncluster: h100-ib-400g\nnodes: 1\nparallel: {tp: 2, pp: 2, dp: 2}\n"
      "training: {global_batch: 4, micro_batch: 1, seq_len: 128, sharding: zero1}\n",
      "job", ".", {});
  ASSERT_TRUE(job.ok()) << job.status().message();
  Caches caches;
  const Result<Simulation> simulation = Simulation::Prepare(*job, {}, &caches);
  ASSERT_TRUE(simulation.ok()) << simulation.status().message();
  const Result<GoalExport> out = ExportGoal(simulation->inputs(), 1);
  ASSERT_TRUE(out.ok()) << out.status().message();
  const Result<graph::Graph> graph = workload::ImportGoal(out->schedule, "job");
  ASSERT_TRUE(graph.ok());
  engine::Inputs inputs = simulation->inputs();
  inputs.graph = &*graph;
  inputs.network = "loggops";
  inputs.network_parameters.joint = {.L = 0, .o = 0, .g = 0, .G_as = 0, .S = 1 << 30};
  const Result<engine::Record> run = engine::Run(inputs, {});
  ASSERT_TRUE(run.ok()) << run.status().message();
  EXPECT_GT(run->messages.sent, 10'000u);
  EXPECT_EQ(run->messages.truncated, 0u);
}

}  // namespace
}  // namespace orrery::job
