// A run whose steady phase is taken at once is the run that steps through it.
#include <gtest/gtest.h>

#include "orrery/job/test_support.h"
#include "orrery/results/json.h"

namespace orrery::job {
namespace {

void ExpectEqual(const results::RunResult& quick, const results::RunResult& full) {
  EXPECT_EQ(quick.simulation.fingerprint, full.simulation.fingerprint);
  EXPECT_EQ(quick.finish_time, full.finish_time);
  EXPECT_EQ(full.simulation.events_repeated, 0u);
  ASSERT_EQ(quick.jobs.size(), full.jobs.size());
  EXPECT_EQ(quick.jobs.front().step_time, full.jobs.front().step_time);
  EXPECT_EQ(quick.jobs.front().overall.parts, full.jobs.front().overall.parts);
  ASSERT_EQ(quick.links.size(), full.links.size());
  for (std::size_t i = 0; i < quick.links.size(); ++i) {
    EXPECT_EQ(quick.links[i].bytes, full.links[i].bytes);
    EXPECT_EQ(quick.links[i].busy_share, full.links[i].busy_share);
  }
}

TEST(Repeats, AreTheRunThatStepsThroughThem) {
  constexpr std::string_view kPlans[] = {
      "parallel: {tp: 1, pp: 4, vpp: 2, dp: 4}\nschedule: 1f1b-interleaved\n",
      "parallel: {tp: 2, pp: 4, vpp: 2, dp: 2, sequence_parallel: true}\n"
      "schedule: 1f1b-interleaved\nframework_options: {overlap_p2p: false}\n",
      "parallel: {tp: 4, pp: 2, cp: 2, dp: 1}\n"};
  for (const std::string_view plan : kPlans) {
    SCOPED_TRACE(plan);
    Job job = Read("model: llama3-8b\ncluster: h100-ib-400g\nnodes: 2\n" + std::string(plan) +
                   "training: {global_batch: 256, seq_len: 4096}\n");
    const results::RunResult quick = Predict(job);
    EXPECT_GT(quick.simulation.events_repeated, quick.simulation.events / 2);
    job.engine.stepwise = true;
    ExpectEqual(quick, Predict(job));
  }
}

// What draws each stretch anew repeats nothing.
TEST(Repeats, NotUnderJitter) {
  const Job job = Read(std::string(kSmall) + "perturb: {jitter: 0.05}\n");
  EXPECT_EQ(Predict(job).simulation.events_repeated, 0u);
}

}  // namespace
}  // namespace orrery::job
