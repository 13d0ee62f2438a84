// Users' own schedules: form, rules, the program.
#include "orrery/workload/schedule_file.h"

#include <gtest/gtest.h>

#include "orrery/graph/verify.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

constexpr std::string_view kTwoStages =
    "orrery.schedule/1\n"
    "stage 0: F0 F1 B0 B1   # comments reach to the end\n"
    "stage 1: F0 D0 F1 W0 B1\n";

Plan Given(std::string_view text) {
  auto schedule = ParseSchedule("my.schedule", text);
  EXPECT_TRUE(schedule.ok()) << schedule.status().message();
  Plan plan{.pp = 2, .global_batch = 2, .seq_len = 128, .schedule = Schedule::kGiven};
  if (schedule.ok()) plan.given = std::make_shared<const GivenSchedule>(*schedule);
  return plan;
}
std::string Refusal(std::string_view text) { return Validate(SmallGpt(2), Given(text)).message(); }

TEST(GivenSchedule, RunsAsWritten) {
  const graph::Graph g = Make(SmallGpt(2), Given(kTwoStages));
  EXPECT_EQ(Passes(g, g.programs[0]), "F0/0 F1/0 B0/0 B1/0");
  EXPECT_EQ(Passes(g, g.programs[1]), "F0/0 B0/0 F1/0 B1/0");
  const Status status = graph::Verify(g, graph::VerifyLevel::kFull);
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(GivenSchedule, FormErrorsNameTheLine) {
  EXPECT_EQ(ParseSchedule("a", "stage 0: F0\n").status().message(),
            "a, line 1: the first word must be orrery.schedule/1, not 'stage'");
  EXPECT_EQ(ParseSchedule("a", "orrery.schedule/1\nstage 1: F0\n").status().message(),
            "a, line 2: stage '1:'; stages come in order, this is '0:'");
  EXPECT_TRUE(ParseSchedule("a", "orrery.schedule/1\nstage 0: F0 X1\n")
                  .status()
                  .message()
                  .starts_with("a, line 2: 'X1'; a pass is F"));
  EXPECT_FALSE(ParseSchedule("a", "").ok());
}

TEST(GivenSchedule, RulesOfAStage) {
  EXPECT_EQ(Refusal("orrery.schedule/1\nstage 0: F0 F1 B0\nstage 1: F0 B0 F1 B1\n"),
            "my.schedule: stage 0: micro-batch 1 of chunk 0 is not finished");
  EXPECT_TRUE(Refusal("orrery.schedule/1\nstage 0: B0 F0 F1 B1\nstage 1: F0 B0 F1 B1\n")
                  .starts_with("my.schedule: stage 0: B0/0: a forward comes once"));
  EXPECT_TRUE(Refusal("orrery.schedule/1\nstage 0: F0 F1 W0 D0 B1\nstage 1: F0 B0 F1 B1\n")
                  .starts_with("my.schedule: stage 0: W0/0: "));
  EXPECT_TRUE(Refusal("orrery.schedule/1\nstage 0: F0 B0 F1 B1\n")
                  .starts_with("parallel.pp: 2 for my.schedule of 1 stages"));
}

}  // namespace
}  // namespace orrery::workload
