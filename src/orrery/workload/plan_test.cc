#include "orrery/workload/plan.h"

#include <gtest/gtest.h>

#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

Plan Base() {
  return {.parallel = {.tp = 8, .pp = 8, .dp = 16, .sequence_parallel = true},
          .batch = {.global_batch = 1536}};
}

std::string Error(std::string_view model, const Plan& plan) {
  return Validate(*FindModel(model), plan).message();
}

TEST(Plan, TheBasePlanIsLegal) { EXPECT_EQ(Error("gpt3-175b", Base()), ""); }

// Each message: field, value, rule, nearest values.
TEST(Plan, TensorParallelRules) {
  Plan p = Base();
  p.parallel.tp = 7;
  EXPECT_EQ(
      Error("gpt3-175b", p),
      "parallel.tp: 7 does not divide the attention heads of gpt3-175b (96); tensor parallelism "
      "gives every rank an equal share: use tp 6 or 8");
  p.parallel.tp = 16;
  EXPECT_EQ(Error("llama3-70b", p),
            "parallel.tp: 16 does not divide the key and value heads of llama3-70b (8); tensor "
            "parallelism gives every rank an equal share: use tp 8");
  p.parallel.tp = 8;
  p.batch.seq_len = 2047;
  EXPECT_EQ(
      Error("gpt3-175b", p),
      "training.seq_len: 2047 is not a multiple of tp (8), which sequence parallelism needs; use "
      "2040 or 2048 or turn parallel.sequence_parallel off");
  p.parallel.sequence_parallel = false;
  EXPECT_EQ(Error("gpt3-175b", p), "");
  p.parallel.tp = 1;  // Megatron turns sequence parallelism off by itself
  p.parallel.sequence_parallel = true;
  EXPECT_EQ(Error("gpt3-175b", p), "");
}

TEST(Plan, BatchRules) {
  Plan p = Base();
  p.batch.global_batch = 1530;
  EXPECT_EQ(
      Error("gpt3-175b", p),
      "training.global_batch: 1530 is not a multiple of micro_batch · dp = 1 · 16 = 16; every "
      "replica runs the same number of micro-batches: use 1520 or 1536");
  p.batch.global_batch = 8;
  EXPECT_EQ(Error("gpt3-175b", p),
            "training.global_batch: 8 is not a multiple of micro_batch · dp = 1 · 16 = 16; every "
            "replica runs the same number of micro-batches: use 16");
  p.batch.global_batch = 0;
  EXPECT_EQ(Error("gpt3-175b", p), "training.global_batch: 0 is outside 1 … 2147483648");
}

// Programs of all stages together took the memory of the machine.
TEST(Plan, PassesOfAllStagesAreCounted) {
  Plan p = Base();
  p.parallel.pp = 32;
  p.parallel.dp = 1;
  p.batch.global_batch = 1'000'000;
  EXPECT_EQ(Error("gpt3-175b", p),
            "training.global_batch: 1000000 makes 1000000 micro-batches of 1 chunks in each of 32 "
            "programs (stages, times ep where moe_routing is drawn), more than 20000000 passes in "
            "all; use a smaller global_batch or a larger micro_batch");
}

TEST(Plan, InterleavingRules) {
  Plan p = Base();
  p.parallel.vpp = 2;
  EXPECT_EQ(Error("gpt3-175b", p),
            "parallel.vpp: 2 chunks a stage need the schedule 1f1b-interleaved, not 1f1b; set "
            "schedule: 1f1b-interleaved or vpp: 1");
  p.parallel.schedule = Schedule::k1f1bInterleaved;
  EXPECT_EQ(Error("gpt3-175b", p), "");
  p.parallel.vpp = 1;
  EXPECT_EQ(
      Error("gpt3-175b", p),
      "parallel.vpp: the schedule 1f1b-interleaved needs at least 2 chunks a stage, not 1; set "
      "vpp: 2 or schedule: 1f1b");
  p.parallel.vpp = 2;
  p.parallel.pp = 1;
  EXPECT_EQ(
      Error("gpt3-175b", p),
      "parallel.pp: the schedule 1f1b-interleaved needs at least 2 stages, not 1; set pp: 2 or "
      "schedule: 1f1b");
  p.parallel.pp = 2;
  EXPECT_EQ(Error("gpt3-175b", p), "");
  p.framework.overlap_p2p = false;
  EXPECT_NE(Error("gpt3-175b", p), "");
  p = Base();
  p.parallel.schedule = Schedule::k1f1bInterleaved;
  p.parallel.vpp = 2;
  p.batch.global_batch = 16 * 9;
  EXPECT_EQ(
      Error("gpt3-175b", p),
      "training.global_batch: 144 gives 9 micro-batches a replica, which leaves 1 after groups "
      "of 8 (parallel.microbatch_group); the last group must have at least pp = 8: use 128 or "
      "256");
  p.batch.global_batch = 16 * 4;
  EXPECT_EQ(Error("gpt3-175b", p),
            "training.global_batch: 64 gives 4 micro-batches a replica, and the schedule "
            "1f1b-interleaved needs at least pp = 8; use 128 or more");
  p.batch.global_batch = 16 * 16;
  p.parallel.microbatch_group = 4;
  EXPECT_EQ(
      Error("gpt3-175b", p),
      "parallel.microbatch_group: 4 is outside pp … micro-batches = 8 … 16; leave it out to use "
      "pp");
  p.parallel.microbatch_group = 12;  // leaves 4, fewer than pp
  EXPECT_NE(Error("gpt3-175b", p), "");
}

TEST(Plan, KernelRules) {
  Plan p = Base();
  p.precision.type = Precision::kFp32;
  EXPECT_EQ(
      Error("gpt3-175b", p),
      "training.precision: fp32 has no flash attention kernel; use bf16 or fp16, or attention: "
      "unfused");
  p = Base();
  p.batch.seq_len = 4096;
  EXPECT_EQ(Error("gpt3-175b", p),
            "training.seq_len: 4096 is beyond the 2048 learned positions of gpt3-175b "
            "(model.max_position); use at most "
            "2048 or a model with more positions");
}

TEST(Layers, AutoIsEvenWhenDivisible) {
  EXPECT_EQ(*LayersPerChunk(*FindModel("gpt3-175b"), Base()), std::vector<int>(8, 12));
}

// 126 layers + embedding + loss = 128 = 16 · 8.
TEST(Layers, Llama405bOnSixteenStages) {
  const Plan p{.parallel = {.pp = 16}};
  std::vector<int> expected(16, 8);
  expected.front() = expected.back() = 7;
  EXPECT_EQ(*LayersPerChunk(*FindModel("llama3.1-405b"), p), expected);
}

TEST(Layers, AutoRefusesWithNearLists) {
  Plan p{.parallel = {.pp = 5}};
  const Model m = *FindModel("gpt2");  // 12 layers
  EXPECT_EQ(
      LayersPerChunk(m, p).status().message(),
      "parallel.layers_per_stage: auto cannot divide the 12 layers of gpt2 (or 14 with "
      "embedding and loss) over 5 stages; give a list, such as [2, 3, 3, 2, 2] or [3, 3, 2, 2, "
      "2], or use 4 or 6 stages");
  p.parallel.pp = 15;
  EXPECT_EQ(LayersPerChunk(m, p).status().message(),
            "parallel.pp: pp 15 · vpp 1 = 15 chunks for the 12 layers, embedding and loss of gpt2; "
            "use pp · vpp 14 or less");
}

TEST(Layers, EmbeddingAndLossMayStandAlone) {
  const Model m = *FindModel("gpt2");
  std::vector<int> expected(14, 1);
  expected.front() = expected.back() = 0;
  EXPECT_EQ(*LayersPerChunk(m, {.parallel = {.pp = 14}}), expected);
  EXPECT_EQ(*LayersPerChunk(m, {.parallel = {.pp = 3, .layers_per_stage = {0, 12, 0}}}),
            (std::vector<int>{0, 12, 0}));
}

TEST(Layers, GivenListsAreChecked) {
  const Model m = *FindModel("gpt2");
  Plan p{.parallel = {.pp = 3, .layers_per_stage = {3, 5, 4}}};
  EXPECT_EQ(*LayersPerChunk(m, p), p.parallel.layers_per_stage);
  p.parallel.layers_per_stage = {3, 5, 5};
  EXPECT_EQ(
      LayersPerChunk(m, p).status().message(),
      "parallel.layers_per_stage: [3, 5, 5] is 13 layers, but gpt2 has 12; near it: [4, 4, 4]");
  p.parallel.layers_per_stage = {12, 0, 0};
  EXPECT_EQ(LayersPerChunk(m, p).status().message(),
            "parallel.layers_per_stage: entry 2 is 0; every stage between the first and the last "
            "needs a layer");
  p.parallel.layers_per_stage = {6, 6};
  EXPECT_EQ(LayersPerChunk(m, p).status().message(),
            "parallel.layers_per_stage: 2 entries for 3 (pp 3 · vpp 1); give one entry per stage");
}

TEST(Schedules, AreFoundByName) {
  for (const ScheduleInfo& info : Schedules()) EXPECT_TRUE(FindSchedule(info.name).ok());
  EXPECT_EQ(FindSchedule("zb").status().message(),
            "unknown schedule 'zb'; did you mean 'zb-v' or 'zb-h1'? valid: gpipe, 1f1b, "
            "1f1b-interleaved, zb-h1, zb-v, dualpipe, dualpipe-v, given");
}

}  // namespace
}  // namespace orrery::workload
