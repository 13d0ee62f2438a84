// What must be equal to the picosecond, and what must differ, with the reason beside each.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "orrery/base/rng.h"
#include "tests/spine/scenario.h"

namespace orrery::testing {
namespace {

using engine::Options;
using engine::Record;

workload::Plan Plan(int tp, int pp, int dp, int vpp = 1) {
  workload::Plan plan = Gpt3Plan(tp, pp, dp, 8L * dp);
  plan.parallel.vpp = vpp;
  if (vpp > 1) plan.parallel.schedule = workload::Schedule::k1f1bInterleaved;
  return plan;
}

Record Rehearse(Scenario* s, const Options& options, std::string_view network = "analytic") {
  auto record = s->Run(options, network);
  EXPECT_TRUE(record.ok()) << record.status().message();
  return record.ok() ? *record : Record{};
}

Options Unfolded() {
  Options o;
  o.fold = false;
  return o;
}

class Shapes : public ::testing::TestWithParam<std::array<int, 4>> {};

TEST_P(Shapes, FoldedEqualsUnfolded) {
  const auto [tp, pp, dp, vpp] = GetParam();
  Scenario s("h100-ib-400g", 8);
  ASSERT_TRUE(s.Add(SmallGpt(), Plan(tp, pp, dp, vpp), "job").ok());
  s.PlacePacked();
  const Record folded = Rehearse(&s, {});
  const Record full = Rehearse(&s, Unfolded());
  EXPECT_TRUE(folded.folded);
  EXPECT_LT(folded.ranks_simulated, full.ranks_simulated);
  EXPECT_EQ(folded.fingerprint, full.fingerprint);
  EXPECT_EQ(folded.finish_time, full.finish_time);
  EXPECT_EQ(folded.jobs[0].step_time, full.jobs[0].step_time);
}

// A slow rank splits its pipeline off; the partly folded run still gives the whole answer.
TEST_P(Shapes, StragglerFoldsInPart) {
  const auto [tp, pp, dp, vpp] = GetParam();
  Scenario s("h100-ib-400g", 8);
  ASSERT_TRUE(s.Add(SmallGpt(), Plan(tp, pp, dp, vpp), "job").ok());
  s.PlacePacked();
  const Record even = Rehearse(&s, {});
  Options slow;
  slow.ranks = {{RankId(3), 0.9, 0}};
  const Record folded = Rehearse(&s, slow);
  slow.fold = false;
  const Record full = Rehearse(&s, slow);
  EXPECT_EQ(folded.fingerprint, full.fingerprint);
  EXPECT_NE(folded.fingerprint, even.fingerprint);  // one rank's kernels are longer
  EXPECT_GT(folded.jobs[0].step_time, even.jobs[0].step_time);
}

// The runs on 1, 2, 3 and 7 threads, whose fingerprints are to be equal.
std::map<int, Record> OnThreads(workload::Plan plan, std::int64_t global_batch, int nodes,
                                const char* network) {
  Scenario s("h100-ib-400g", nodes);
  plan.batch.global_batch = global_batch;
  plan.batch.seq_len = 256;
  EXPECT_TRUE(s.Add(SmallGpt(), plan, "job").ok());
  s.PlacePacked();
  std::map<int, Record> runs;
  for (int threads : {1, 2, 3, 7}) {
    Options o;
    o.threads = threads;
    o.iterations = 2;
    runs[threads] = Rehearse(&s, o, network);
    EXPECT_EQ(runs[threads].fingerprint, runs[1].fingerprint) << threads << " threads";
  }
  return runs;
}

TEST_P(Shapes, PartitionsOfLinksAgree) {
  const auto [tp, pp, dp, vpp] = GetParam();
  const auto runs =
      OnThreads(Plan(tp, pp, dp, vpp), static_cast<std::int64_t>(pp) * dp, 8, "links");
  for (const auto& [threads, r] : runs) EXPECT_EQ(r.threads_used, threads);
}

// All packets are in one fabric: more threads are not used, and a warning says so.
TEST(Fingerprint, PacketsAreTheSameForAnyThreads) {
  for (const auto& [threads, r] : OnThreads(Plan(8, 2, 2), 4, 4, "packet")) {
    EXPECT_EQ(r.threads_used, 1);
    EXPECT_EQ(r.warnings.size(), threads == 1 ? 0u : 1u);
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, Shapes,
                         ::testing::Values(std::array{8, 4, 2, 1}, std::array{4, 4, 4, 1},
                                           std::array{2, 2, 16, 1}, std::array{8, 4, 2, 2},
                                           std::array{1, 4, 16, 2}, std::array{8, 1, 8, 1}));

}  // namespace
}  // namespace orrery::testing
