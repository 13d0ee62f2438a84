#include "orrery/job/goal_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "orrery/base/rng.h"
#include "orrery/graph/general_samples.h"
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

std::vector<std::string> SortedLines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

class GoalWriter : public ::testing::Test {
 protected:
  // A cluster of 64 GPUs.
  GoalWriter()
      : job_(ReadJobText("model: gpt2\ncluster: h100-ib-400g\nnodes: 8\nparallel: {dp: 64}\n"
                         "training: {global_batch: 64, micro_batch: 1, seq_len: 128}\n",
                         "job", ".", {})) {
    EXPECT_TRUE(job_.ok()) << job_.status().message();
    Result<Simulation> simulation = Simulation::Prepare(*job_, {}, &caches_);
    EXPECT_TRUE(simulation.ok()) << simulation.status().message();
    simulation_.emplace(*std::move(simulation));
  }
  engine::Inputs InputsOf(const graph::Graph& graph) {
    placement_.device.clear();
    for (std::size_t r = 0; r < graph.bindings.size(); ++r) {
      placement_.device.emplace_back(static_cast<std::uint32_t>(r));
    }
    engine::Inputs inputs = simulation_->inputs();
    inputs.graph = &graph;
    inputs.placement = &placement_;
    return inputs;
  }
  Result<GoalExport> Export(const graph::Graph& graph) { return ExportGoal(InputsOf(graph), 1); }
  // On a network that takes no time.
  Result<engine::Record> Run(const GoalSchedule& schedule) {
    const Result<graph::Graph> graph = workload::ImportGoal(schedule, "written");
    EXPECT_TRUE(graph.ok());
    engine::Inputs inputs = InputsOf(*graph);
    inputs.network = "loggops";
    inputs.network_parameters.joint = {.L = 0, .o = 0, .g = 0, .G_as = 0, .S = 1 << 30};
    return engine::Run(inputs, {});
  }

 private:
  const Result<Job> job_;
  Caches caches_;
  std::optional<Simulation> simulation_;
  cluster::Placement placement_;
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
  const Result<engine::Record> run = Run(out->schedule);
  ASSERT_TRUE(run.ok()) << run.status().message();
  EXPECT_GT(run->messages.sent, 10'000u);
  EXPECT_EQ(run->messages.truncated, 0u);
}

// Graphs of every kind of operation, stream and peer: both forms say one schedule, and it ends with
// every message received.
TEST_F(GoalWriter, ADrawnGraphsScheduleEnds) {
  int collectives = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    const graph::Graph graph = graph::GeneralGraph(seed, graph::AnyGeneralShape(seed));
    const Result<GoalExport> out = Export(graph);
    ASSERT_TRUE(out.ok()) << out.status().message();
    EXPECT_EQ(out->lost.back(), "names of operations, modules, layers and micro-batches");
    const std::string text = formats::GoalToText(out->schedule);
    const Result<GoalSchedule> of_text = formats::ParseGoal(text, "text");
    ASSERT_TRUE(of_text.ok()) << of_text.status().message();
    const Result<GoalSchedule> of_binary =
        formats::ParseGoal(formats::GoalToBinary(out->schedule), "binary");
    ASSERT_TRUE(of_binary.ok()) << of_binary.status().message();
    ASSERT_EQ(formats::GoalToText(*of_text), text);
    // Which keeps what waits for an end apart from what waits for a start.
    ASSERT_EQ(SortedLines(formats::GoalToText(*of_binary)), SortedLines(text));
    const Result<engine::Record> run = Run(*of_text);
    ASSERT_TRUE(run.ok()) << run.status().message();
    EXPECT_EQ(run->messages.truncated, 0u);
    for (const std::string& lost : out->lost) collectives += lost.starts_with("collectives");
  }
  EXPECT_GT(collectives, 30);
}

}  // namespace
}  // namespace orrery::job
