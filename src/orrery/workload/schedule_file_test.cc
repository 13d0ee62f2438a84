// Users' own schedules: form, rules, the program.
#include "orrery/workload/schedule_file.h"

#include <gtest/gtest.h>

#include "orrery/graph/verify/verify.h"
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
  Plan plan{.parallel = {.pp = 2, .schedule = Schedule::kGiven},
            .batch = {.global_batch = 2, .seq_len = 128}};
  if (schedule.ok()) plan.parallel.given = std::make_shared<const GivenSchedule>(*schedule);
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

// Stage 1 takes micro-batch 1 before 0, stage 0 sends them as 0, 1.
TEST(GivenSchedule, MatchesInOrderOrByMicrobatch) {
  const std::string stages = "stage 0: F0 F1 B1 B0\nstage 1: F1 B1 F0 B0\n";
  EXPECT_EQ(Refusal("orrery.schedule/1\n" + stages),
            "my.schedule: stage 1 runs F1/0 where stage 0 runs F0/0: messages match in "
            "order, so that it would get the other's; list both alike, or say 'match microbatch'");
  EXPECT_EQ(Refusal("orrery.schedule/1\nmatch order\nstage 0: F0 F1 B0 B1\n"
                    "stage 1: F0 F1 B1 B0\n"),
            "my.schedule: stage 0 runs the backward of 0/0 where stage 1 runs the backward of 1/0: "
            "messages match in order, so that it would get the other's; list both alike, or say "
            "'match microbatch'");
  const graph::Graph g = Make(SmallGpt(2), Given("orrery.schedule/1\nmatch microbatch\n" + stages));
  const Status status = graph::Verify(g, graph::VerifyLevel::kFull);
  EXPECT_TRUE(status.ok()) << status.message();
  // Both receives are posted, in the sender's order, before the pass that takes the second.
  std::string taken;
  for (const graph::Call& call : g.programs[1].calls) {
    const graph::Block& block = g.blocks[call.block.index()];
    if (!block.comms.empty() && block.comms[0].collective == graph::Collective::kRecv) {
      taken += 'r' + std::to_string(call.microbatch);
    }
    if (g.name(block.name) == "layer.forward") taken += 'F' + std::to_string(call.microbatch);
  }
  EXPECT_EQ(taken, "r0r1F1F0");
  EXPECT_EQ(ParseSchedule("a", "orrery.schedule/1\nmatch tag\n").status().message(),
            "a, line 2: match 'tag'; must be order or microbatch");
}

// A stage may take last what comes first: receives posted until then need an event each, of which
// a program has 2^15. With 40,000 micro-batches their number had become negative.
TEST(GivenSchedule, FewEnoughPassesMatchByMicrobatch) {
  Plan plan =
      Given("orrery.schedule/1\nmatch microbatch\nstage 0: F0 F1 B1 B0\nstage 1: F1 B1 F0 B0\n");
  plan.batch.global_batch = 16'001;
  EXPECT_EQ(Validate(SmallGpt(2), plan).message(),
            "training.global_batch: 16001 makes 16001 micro-batches of 1 chunks a stage, more than "
            "the 16000 passes that my.schedule may match by micro-batch; use a smaller "
            "global_batch or 'match order'");
}

// Interleaved 1F1B written out: the passes of the built-in schedule of two stages and three chunks,
// in its order, are the same program but for when receives are posted.
TEST(GivenSchedule, ThreeChunksGoRoundTheStages) {
  Plan built{.parallel = {.pp = 2, .vpp = 3}, .batch = {.global_batch = 4, .seq_len = 128}};
  built.parallel.schedule = Schedule::k1f1bInterleaved;
  built.framework.overlap_p2p = true;
  const graph::Graph as = Make(SmallGpt(6), built);
  std::string text = "orrery.schedule/1\n";
  for (int stage = 0; stage < 2; ++stage) {
    text += fmt::format("stage {}: {}\n", stage,
                        Passes(as, as.programs[static_cast<std::size_t>(stage)]));
  }
  Plan plan = Given(text);
  plan.parallel.vpp = 3;
  plan.batch.global_batch = 4;
  const graph::Graph g = Make(SmallGpt(6), plan);
  const Status status = graph::Verify(g, graph::VerifyLevel::kFull);
  EXPECT_TRUE(status.ok()) << status.message();
  for (std::size_t stage = 0; stage < 2; ++stage) {
    EXPECT_EQ(Passes(g, g.programs[stage]), Passes(as, as.programs[stage]));
  }
  // Between two stages go the 4 micro-batches of 5 boundaries, down and back.
  int sends = 0;
  for (const graph::Program& program : g.programs) {
    for (const graph::Call& call : program.calls) {
      for (const graph::Comm& comm : g.blocks[call.block.index()].comms) {
        sends += comm.collective == graph::Collective::kSend ? 1 : 0;
      }
    }
  }
  EXPECT_EQ(sends, 2 * 5 * 4);
}

// Four chunks in V shape, by micro-batch: down, up, down, up; a turn sends nothing.
TEST(GivenSchedule, FourChunksInVShape) {
  const auto stage = [](int number) {
    std::string line = fmt::format("stage {}:", number);
    for (int c = 0; c < 4; ++c) line += fmt::format(" F0/{} F1/{}", c, c);
    for (int c = 3; c >= 0; --c) line += fmt::format(" B1/{} D0/{} W0/{}", c, c, c);
    return line + "\n";
  };
  Plan plan = Given("orrery.schedule/1\nshape v\nmatch microbatch\n" + stage(0) + stage(1));
  plan.parallel.vpp = 4;
  const graph::Graph g = Make(SmallGpt(8), plan);
  const Status status = graph::Verify(g, graph::VerifyLevel::kFull);
  EXPECT_TRUE(status.ok()) << status.message();
  plan.parallel.vpp = 3;
  EXPECT_EQ(Validate(SmallGpt(6), plan).message(),
            "parallel.vpp: my.schedule is in V shape, which has an even number of chunks a stage, "
            "not 3");
}

}  // namespace
}  // namespace orrery::workload
