// The order of passes and exchanges, against sequences written by hand from Megatron's schedules.
#include "orrery/workload/generators/schedules/schedules.h"

#include <gtest/gtest.h>

#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

Plan Stages(Schedule schedule, int pp, int vpp, int microbatches) {
  return {.parallel = {.pp = pp, .vpp = vpp, .schedule = schedule},
          .batch = {.global_batch = microbatches, .seq_len = 128}};
}

TEST(Gpipe, AllForwardThenAllBackward) {
  const graph::Graph g = Make(SmallGpt(4), Stages(Schedule::kGpipe, 2, 1, 2));
  EXPECT_EQ(Pipeline(g, g.programs[0]), "F0/0 [sf] F1/0 [sf] [rb] B0/0 [rb] B1/0");
  EXPECT_EQ(Pipeline(g, g.programs[1]), "[rf] F0/0 [rf] F1/0 B0/0 [sb] B1/0 [sb]");
}

TEST(OneForwardOneBackward, PairsSendsWithReceives) {
  const graph::Graph g = Make(SmallGpt(3), Stages(Schedule::k1f1b, 3, 1, 3));
  EXPECT_EQ(Pipeline(g, g.programs[0]),
            "F0/0 [sf] F1/0 [sf] "   // warm-up: two
            "F2/0 [sf rb] B0/0 "     // steady: one
            "[rb] B1/0 [rb] B2/0");  // cool-down
  EXPECT_EQ(Pipeline(g, g.programs[1]),
            "[rf] F0/0 [sf] "
            "[rf] F1/0 [sf rb] B0/0 [sb rf] F2/0 [sf rb] B1/0 [sb] "
            "[rb] B2/0 [sb]");
  EXPECT_EQ(Pipeline(g, g.programs[2]), "[rf] F0/0 B0/0 [sb rf] F1/0 B1/0 [sb rf] F2/0 B2/0 [sb]");
}

TEST(OneForwardOneBackward, FewerMicrobatchesThanStages) {
  const graph::Graph g = Make(SmallGpt(3), Stages(Schedule::k1f1b, 3, 1, 1));
  EXPECT_EQ(Pipeline(g, g.programs[0]), "F0/0 [sf] [rb] B0/0");
  EXPECT_EQ(Pipeline(g, g.programs[1]), "[rf] F0/0 [sf] [rb] B0/0 [sb]");
  EXPECT_EQ(Pipeline(g, g.programs[2]), "[rf] F0/0 B0/0 [sb]");
}

TEST(OneForwardOneBackward, OneStageAccumulates) {
  const graph::Graph g = Make(SmallGpt(3), Stages(Schedule::k1f1b, 1, 1, 2));
  EXPECT_EQ(Pipeline(g, g.programs[0]), "F0/0 B0/0 F1/0 B1/0");
}

// Narayanan et al. 2021, figure 4 (bottom): 4 stages, 2 chunks, 8 micro-batches.
TEST(Interleaved, FourStagesTwoChunksEightMicrobatches) {
  const graph::Graph g = Make(SmallGpt(8), Stages(Schedule::k1f1bInterleaved, 4, 2, 8));
  EXPECT_EQ(Passes(g, g.programs[0]),
            "F0/0 F1/0 F2/0 F3/0 F0/1 F1/1 F2/1 F3/1 F4/0 F5/0 "  // 2·3 + 4 of warm-up
            "F6/0 B0/1 F7/0 B1/1 F4/1 B2/1 F5/1 B3/1 F6/1 B0/0 F7/1 B1/0 "
            "B2/0 B3/0 B4/1 B5/1 B6/1 B7/1 B4/0 B5/0 B6/0 B7/0");
  EXPECT_EQ(Passes(g, g.programs[3]),
            "F0/0 F1/0 F2/0 F3/0 "
            "F0/1 B0/1 F1/1 B1/1 F2/1 B2/1 F3/1 B3/1 F4/0 B0/0 F5/0 B1/0 F6/0 B2/0 F7/0 B3/0 "
            "F4/1 B4/1 F5/1 B5/1 F6/1 B6/1 F7/1 B7/1 "
            "B4/0 B5/0 B6/0 B7/0");
}

// By hand from Megatron's schedule with overlap_p2p_comm_warmup_flush: a receive starts a pass
// ahead, the leading stage's behind its pass; a send is waited for when the next of its direction
// starts.
TEST(Interleaved, WarmupAndFlushOverlapped) {
  Plan p = Stages(Schedule::k1f1bInterleaved, 2, 2, 2);
  p.framework.overlap_p2p_warmup_flush = true;
  const graph::Graph g = Make(SmallGpt(4), p);
  EXPECT_EQ(Pipeline(g, g.programs[0]),
            "F0/0 sf+7 F1/0 sf+8 rf+9 ?7 ?9 F0/1 sf+9 rf+7 ?8 ?7 F1/1 sf+7 ?9 "
            "[rb] rb+9 B0/1 sb+8 ?9 rb+9 B1/1 sb+10 ?8 ?9 rb+9 B0/0 ?10 ?9 B1/0");
  EXPECT_EQ(Pipeline(g, g.programs[1]),
            "[rf] rf+7 F0/0 sf+8 ?7 rf+7 F1/0 sf+9 ?8 "
            "?7 F0/1 rf+7 ?9 B0/1 sb+9 ?7 F1/1 B1/1 rb+7 sb+8 ?9 "
            "?7 B0/0 rb+7 sb+9 ?8 ?7 B1/0 sb+7 ?9 ?7");
}

TEST(Interleaved, WarmupAndFlushOverlapNeedsOverlap) {
  Plan p = Stages(Schedule::k1f1bInterleaved, 3, 2, 3);
  p.framework.overlap_p2p_warmup_flush = true;
  p.framework.overlap_p2p = false;
  EXPECT_EQ(Validate(SmallGpt(6), p).message(),
            "framework_options.overlap_p2p_warmup_flush: needs the schedule 1f1b-interleaved with "
            "overlap_p2p; turn overlap_p2p on or leave it out");
}

// Groups of 3 of 5 micro-batches (the example in Megatron's source: PP2 N3 M5 VP2).
TEST(Interleaved, MicrobatchGroups) {
  Plan p = Stages(Schedule::k1f1bInterleaved, 2, 2, 5);
  p.parallel.microbatch_group = 3;
  const graph::Graph g = Make(SmallGpt(4), p);
  std::string forward;
  for (const graph::Call& call : g.programs[1].calls) {
    if (g.name(g.blocks[call.block.index()].name) != "layer.forward") continue;
    forward += fmt::format("{}/{} ", call.microbatch, call.chunk);
  }
  EXPECT_EQ(forward, "0/0 1/0 2/0 0/1 1/1 2/1 3/0 4/0 3/1 4/1 ");
}

// Two stages, two chunks, two micro-batches, p2p overlapped. Stage 0 is even: it issues sends
// forward first; stage 1 receives first. Waits name the event they release.
TEST(Interleaved, OverlappedExchanges) {
  const graph::Graph g = Make(SmallGpt(4), Stages(Schedule::k1f1bInterleaved, 2, 2, 2));
  EXPECT_EQ(Pipeline(g, g.programs[0]),
            "F0/0 [sf] F1/0 [sf rf] F0/1 [sf rf] F1/1 [sf] "  // all four are warm-up
            "[rb] B0/1 [sb rb] B1/1 [sb rb] B0/0 [rb] B1/0");
  EXPECT_EQ(Pipeline(g, g.programs[1]),
            "[rf] F0/0 [rf sf] F1/0 [rf sf] "  // two of warm-up, blocking
            "F0/1 rf+7 B0/1 sb+8 "             // F1/1's input comes during B0/1
            "?7 F1/1 B1/1 rb+7 sb+9 ?8 "       // the older send is over before its buffer goes
            "?7 B0/0 [rb sb] B1/0 [sb] ?9");   // cool-down, blocking
}

TEST(Interleaved, WithoutOverlapOneBatchPerPair) {
  Plan p = Stages(Schedule::k1f1bInterleaved, 3, 2, 3);
  p.framework.overlap_p2p = false;
  const graph::Graph g = Make(SmallGpt(6), p);
  EXPECT_EQ(Pipeline(g, g.programs[2]),
            "[rf] F0/0 [rf sf] F1/0 [rf sf] F2/0 [rf sf] "
            "F0/1 B0/1 [sb rf] F1/1 B1/1 [sb rf] F2/1 B2/1 [sb rb] "
            "B0/0 [sb rb] B1/0 [sb rb] B2/0 [sb]");
}

// The first stage reduces bucket by bucket in its last backward, the others once in the bubble.
TEST(Reduction, OverlapsOnTheFirstStageOnly) {
  Plan p = Stages(Schedule::k1f1b, 2, 1, 4);
  p.parallel.dp = 2;
  p.framework.bucket_elements = 1;  // the rule's floor, 1,000,000·dp, decides
  const graph::Graph g = Make(SmallGpt(8), p);
  // 789,760 elements a layer: the first bucket reaches 2,000,000 in the second of four layers, the
  // rest and the embedding make the second bucket.
  EXPECT_EQ(Pipeline(g, g.programs[0]), "F0/0 [sf] F1/0 [sf rb] B0/0 [rb] B1/0 R B1/0 R");
  EXPECT_EQ(Pipeline(g, g.programs[1]), "[rf] F0/0 B0/0 [sb rf] F1/0 B1/0 [sb] R");
  p.framework.align_grad_reduce = false;
  const graph::Graph free = Make(SmallGpt(8), p);
  EXPECT_EQ(Pipeline(free, free.programs[1]), "[rf] F0/0 B0/0 [sb rf] F1/0 B1/0 R [sb]");
}

// Chunks are reduced as they complete, `stage` passes late so that all stages start together.
TEST(Reduction, InterleavedIsAligned) {
  Plan p = Stages(Schedule::k1f1bInterleaved, 2, 2, 4);
  p.parallel.dp = 2;
  const graph::Graph g = Make(SmallGpt(4), p);
  const std::string first = Pipeline(g, g.programs[0]);
  EXPECT_NE(first.find("B1/1 R"), std::string::npos) << first;
  const std::string second = Pipeline(g, g.programs[1]);
  EXPECT_EQ(second.find("B1/1 R"), std::string::npos) << second;
  EXPECT_NE(second.find("B0/0 R"), std::string::npos) << second;
}

}  // namespace
}  // namespace orrery::workload
